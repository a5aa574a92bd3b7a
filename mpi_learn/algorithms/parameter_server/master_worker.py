"""What downpour, easgd and gem have in common: masters that serve a centre, groups of workers that exchange with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm
from mpi_learn.algorithms.parameter_server.centre import N_EXTRA, Centre, Deal, Link, LocalLink
from mpi_learn.algorithms.parameter_server.server import Server
from mpi_learn.flat_layout import FAILED, N_SAMPLES
from mpi_learn.mpi.collectives import broadcast_in_place, maximum, sum_in_place
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.optimizers.optimizer import Optimizer


class Worker(ABC):
    """A worker's side of a method with a master.

    Attributes:
        keeps_weights: Whether it goes on from weights of its own after an epoch, not from the centre's.
    """

    keeps_weights = False
    link: Link
    optimizer: Optimizer | None

    @abstractmethod
    def step(self, weights: np.ndarray, message: np.ndarray, n_samples: float) -> bool:
        """One step; changes `weights` in place.

        Args:
            message: (n + 2,) float32: the gradient of the loss summed over `n_samples`, and room for two numbers; its
                content is lost.

        Returns:
            False if some rank failed.
        """

    def arrays(self) -> dict[str, np.ndarray]:
        """What it knows beyond an epoch, its weights excepted; the very arrays, so that they can be filled."""
        return {} if self.optimizer is None else {f"optimizer.{k}": v for k, v in self.optimizer.arrays().items()}

    def begin(self, weights: np.ndarray) -> None:  # noqa: B027 - most have nothing to do
        """An epoch begins with these weights."""

    def finish(self, weights: np.ndarray) -> bool:
        """The epoch's steps are made: sends what was kept back; False if some rank failed."""
        return True


class MasterWorker(Algorithm):
    """One rank's part in a tree of masters and groups of workers.

    Args:
        comm: Of the training.
        weights: The model's, (n,) float32.
        n_sums: Length of the sums behind a gradient.
        worker: This rank's side, if it leads a group.
        group: This rank's group of workers; None where groups have one rank, and on masters.
        server: This rank's, if it is a master.
        centre: What it serves, or for one rank alone what its worker exchanges with.
        link: To the master above, if it is a master below another.
    """

    def __init__(
        self,
        comm: Communicator,
        weights: np.ndarray,
        n_sums: int,
        *,
        worker: Worker | None = None,
        group: Communicator | None = None,
        server: Server | None = None,
        centre: Centre | None = None,
        link: Link | None = None,
    ) -> None:
        self.comm, self.weights, self.n_sums = comm, weights, n_sums
        self.worker, self.group, self.server, self.centre, self.link = worker, group, server, centre, link
        self._own: np.ndarray | None = None
        self._has_failure = False

    def exchange(self, weights: np.ndarray, step: np.ndarray) -> np.ndarray | None:
        """One step of a group: its ranks' gradients add up, its leader exchanges, its ranks take the new weights."""
        n = weights.size
        if self.group is not None:
            sum_in_place(self.group, step)
        sums = step[n:].copy()
        went_well = not sums[FAILED] > 0
        if went_well and self.worker is not None:
            went_well = self.worker.step(weights, step[: n + N_EXTRA], float(sums[N_SAMPLES]))
        if self.group is not None:
            went_well = self._shared(weights, went_well)
        self._has_failure = not went_well
        if not went_well:
            return None
        return sums if self.worker is not None else np.zeros_like(sums)

    def serve(self, weights: np.ndarray) -> None:
        """Serves this master's children until all have ended their epoch."""
        if self.server is None:
            return
        self.server.serve()
        if not self.server.has_failure:
            self.centre.flush()
        self._has_failure = self.server.has_failure or self.centre.has_failure

    def total(self, sums: np.ndarray) -> np.ndarray:
        """Each group's leader has added up its group's."""
        total = sums.copy()
        sum_in_place(self.comm, total)
        return total

    def settle(self, weights: np.ndarray) -> None:
        """Everybody takes the centre's weights; a worker with weights of its own keeps them aside."""
        if self.worker is not None and self.worker.keeps_weights:
            self._own = weights.copy()
        if self.comm.size == 1:
            weights[:] = self.centre.weights
        broadcast_in_place(self.comm, weights)

    def deal_by(self, deal: Deal) -> None:
        """See `Algorithm.deal_by`; a master below another asks that one."""
        if self.server is not None:
            self.server.deal = self.link.next_part if self.link is not None else deal
        elif isinstance(self.worker.link, LocalLink):
            self.worker.link.deal = deal

    def next_part(self) -> slice | None:
        """See `Algorithm.next_part`."""
        return self.worker.link.next_part()

    def notes(self) -> dict[str, float]:
        """How old the workers' messages were when their masters took them."""
        serves_workers = self.server is not None and self.server.serves_workers
        total, n, largest = self.server.staleness.take() if serves_workers else (0.0, 0, 0.0)
        sums = np.array([total, n])
        sum_in_place(self.comm, sums)
        largest = maximum(self.comm, largest)
        return {"staleness": float(sums[0] / sums[1]), "largest_staleness": largest} if sums[1] else {}

    def arrays(self) -> dict[str, np.ndarray]:
        """The centre's optimizer."""
        return self.centre.arrays() if self.centre is not None else {}

    def own_arrays(self) -> dict[str, np.ndarray]:
        """The worker's weights, if they are its own, and its other state."""
        if self.worker is None:
            return {}
        if self.worker.keeps_weights and self._own is None:
            self._own = self.weights.copy()
        return ({"weights": self._own} if self._own is not None else {}) | self.worker.arrays()

    def close(self) -> None:
        """See `Algorithm.close`."""
        if self.group is not None:
            self.group.Free()

    def sign_off(self) -> None:
        """See `Algorithm.sign_off`."""
        if self.server is not None:
            self.server.dismiss()
        if self.group is not None:
            step = np.zeros(self.weights.size + self.n_sums, np.float32)
            step[FAILED] = 1.0
            sum_in_place(self.group, step)
            self._shared(self.weights, False)
        self._end(failed=True)

    def __enter__(self) -> Self:
        if self.comm.size == 1:
            self.centre.weights[:] = self.weights  # which a checkpoint may have filled
        if self._own is not None:
            self.weights[:] = self._own
        if self.group is not None:
            broadcast_in_place(self.group, self.weights)
        self._has_failure = False
        if self.worker is not None:
            self.worker.begin(self.weights)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is not None:
            self.sign_off()
            return
        if self.worker is not None and not self._has_failure:
            self._has_failure = not self.worker.finish(self.weights)
        self._end(self._has_failure)

    def _end(self, failed: bool) -> None:
        link = self.worker.link if self.worker is not None else self.link
        if link is not None:
            link.end(failed)

    def _shared(self, weights: np.ndarray, went_well: bool) -> bool:
        """The leader's word on whether all is well, and its weights, to its group."""
        word = np.array([went_well], np.float32)
        broadcast_in_place(self.group, word)
        if word[0]:
            broadcast_in_place(self.group, weights)
        return bool(word[0])
