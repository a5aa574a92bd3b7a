"""Synchronous data parallelism: every step, all workers take the mean gradient over all their samples."""

from __future__ import annotations

from types import TracebackType

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm, OnReady
from mpi_learn.algorithms.buckets import Buckets
from mpi_learn.algorithms.reduction import Compression
from mpi_learn.flat_layout import FAILED, N_SAMPLES
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.optimizers.optimizer import Optimizer


class SynchronousAllReduce(Algorithm):
    """One collective a step: gradient, sums and the word that a rank failed add up together.

    The gradients are of losses *summed* over each rank's samples; divided by the number of samples of all ranks, which
    rides along, they give the mean over the global batch exactly, whatever the shares.

    Args:
        comm: Of all workers.
        optimizer: Makes the same step on every rank.
        n_sums: Length of the sums behind a gradient.
        compression: How the vectors are summed.
        accumulate: Steps whose gradients each rank adds up before they are summed over ranks: a larger batch.
    """

    def __init__(
        self, comm: Communicator, optimizer: Optimizer, n_sums: int, compression: Compression, accumulate: int = 1
    ) -> None:
        self.comm, self.optimizer, self.n_sums = comm, optimizer, n_sums
        self.compression, self.accumulate = compression, accumulate
        self._kept = np.zeros(optimizer.layout.size + n_sums if accumulate > 1 else 0, np.float32)
        self._n_kept = 0
        self._late = np.zeros(n_sums)
        self._weights: np.ndarray | None = None

    def exchange(self, weights: np.ndarray, step: np.ndarray) -> np.ndarray | None:
        """Adds up all ranks' step vectors in place, then makes one optimizer step."""
        if self.accumulate == 1:
            return self._exchange(weights, step)
        n, n_open = self.optimizer.layout.size, self._n_open
        self._kept[:n_open] += step[:n_open]  # what is behind it is being summed
        self._kept[n:] += step[n:]
        self._n_kept += 1
        self._weights = weights
        if self._n_kept == self.accumulate:
            return self._exchange_kept(weights)
        return np.zeros(self.n_sums)

    @property
    def on_ready(self) -> OnReady | None:
        """See `Algorithm.on_ready`."""
        return self._begin if isinstance(self.compression, Buckets) and self.comm.size > 1 else None

    def serve(self, weights: np.ndarray) -> None:
        """There is no master here."""

    def total(self, sums: np.ndarray) -> np.ndarray:
        """The sums were added up over the ranks step by step."""
        total = sums + self._late
        self._late = np.zeros(self.n_sums)
        return total

    def settle(self, weights: np.ndarray) -> None:
        """All ranks have the same weights already."""

    def arrays(self) -> dict[str, np.ndarray]:
        """The optimizer's state."""
        return self.optimizer.arrays()

    def own_arrays(self) -> dict[str, np.ndarray]:
        """What this rank's compression has kept back."""
        return self.compression.arrays(self.optimizer.layout.size)

    def sign_off(self) -> None:
        """Joins the step that the others are in, with nothing but the word that this rank failed."""
        n = self.optimizer.layout.size
        step = np.zeros(n + self.n_sums, np.float32)
        step[FAILED] = 1.0
        self.compression.sum(self.comm, step, n)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is not None:
            self.sign_off()
        elif self._n_kept:
            found = self._exchange_kept(self._weights)
            if found is not None:
                self._late = found.astype(np.float64)

    @property
    def _n_open(self) -> int:
        return self.compression.n_open if isinstance(self.compression, Buckets) else self.optimizer.layout.size

    def _begin(self, step: np.ndarray, array: int) -> None:
        """Begins to sum what is complete, if this step is one that ends with an exchange."""
        if self._n_kept + 1 < self.accumulate:
            return
        for part in self.compression.ready(array):
            if self.accumulate > 1:
                self._kept[part] += step[part]
            self.compression.begin(step if self.accumulate == 1 else self._kept, part)

    def _exchange_kept(self, weights: np.ndarray) -> np.ndarray | None:
        found = self._exchange(weights, self._kept)
        sums = None if found is None else found.copy()
        self._kept[:] = 0
        self._n_kept = 0
        return sums

    def _exchange(self, weights: np.ndarray, step: np.ndarray) -> np.ndarray | None:
        n = weights.size
        self.compression.sum(self.comm, step, n)
        sums = step[n:]
        if sums[FAILED] > 0:
            return None
        self.optimizer.update(weights, step[:n], 1.0 / max(float(sums[N_SAMPLES]), 1.0))
        return sums
