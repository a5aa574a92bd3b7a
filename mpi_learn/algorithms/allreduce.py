"""Synchronous data parallelism: every step, all workers take the mean gradient over all their samples."""

from __future__ import annotations

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm
from mpi_learn.buffers import sum_in_place
from mpi_learn.comm import Communicator
from mpi_learn.flat import FAILED, N_SAMPLES
from mpi_learn.optimizers.optimizer import Optimizer


class SynchronousAllReduce(Algorithm):
    """One collective a step: gradient, sums and the word that a rank failed add up together.

    The gradients are of losses *summed* over each rank's samples; divided by the number of samples of all ranks, which
    rides along, they give the mean over the global batch exactly, whatever the shares.

    Args:
        comm: Of all workers.
        optimizer: Makes the same step on every rank.
        n_sums: Length of the sums behind a gradient.
    """

    def __init__(self, comm: Communicator, optimizer: Optimizer, n_sums: int) -> None:
        self.comm, self.optimizer, self.n_sums = comm, optimizer, n_sums

    def exchange(self, weights: np.ndarray, step: np.ndarray) -> np.ndarray | None:
        """Adds up all ranks' step vectors in place, then makes one optimizer step."""
        sum_in_place(self.comm, step)
        sums = step[weights.size :]
        if sums[FAILED] > 0:
            return None
        self.optimizer.update(weights, step[: weights.size], 1.0 / max(float(sums[N_SAMPLES]), 1.0))
        return sums

    def serve(self, weights: np.ndarray) -> None:
        """There is no master here."""

    def total(self, sums: np.ndarray) -> np.ndarray:
        """The sums were added up over the ranks step by step."""
        return sums

    def settle(self, weights: np.ndarray) -> None:
        """All ranks have the same weights already."""

    def arrays(self) -> dict[str, np.ndarray]:
        """The optimizer's state."""
        return self.optimizer.arrays()

    def sign_off(self) -> None:
        """Joins the step that the others are in, with nothing but the word that this rank failed."""
        step = np.zeros(self.optimizer.layout.size + self.n_sums, np.float32)
        step[FAILED] = 1.0
        sum_in_place(self.comm, step)
