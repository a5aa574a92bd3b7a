"""A worker of a parameter server: one rank, or a group of ranks that compute each gradient together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm, AlgorithmSetup, SampleDealing
from mpi_learn.algorithms.parameter_server.link import Centre, Link, LocalLink
from mpi_learn.flat_layout import FAILED, WEIGHT, failed_step
from mpi_learn.mpi.communicators import Communicator, broadcast_in_place, sum_in_place


class Worker(ABC):
    """A worker's side of a method.

    Attributes:
        link: To the master.
    """

    link: Link

    def begin_epoch(self, weights: np.ndarray) -> None:  # noqa: B027 - not every method has something to do
        """Begins an epoch. May change `weights`, (n,) float32, which are those of the last `Algorithm.synchronize`."""

    @abstractmethod
    def step(self, weights: np.ndarray, gradient: np.ndarray, batch_weight: float) -> bool:
        """Makes one step; changes `weights` in place.

        Args:
            weights: (n,) float32.
            gradient: (n,) float32, of the mean loss times `batch_weight`; its content is lost.
            batch_weight: The weight of the batch (see `mpi_learn.flat_layout`).

        Returns:
            False if a rank failed.
        """

    def finish_epoch(self, weights: np.ndarray) -> bool:
        """Sends the remaining gradients after the last step of an epoch; False if a rank failed."""
        return True

    def rank_state(self) -> dict[str, np.ndarray]:
        """This worker's arrays, for a checkpoint. Resuming writes into these arrays."""
        return {}


class WorkerRank(Algorithm, SampleDealing):
    """One rank of a worker. The first rank of the group, its leader, exchanges with the master.

    Args:
        setup: Communicator, weights and sizes.
        worker: The method, on the leader; None on the group's other ranks.
        group: The ranks of this worker; None if each worker has one rank.
        centre: The weights with which the worker exchanges, if the training has one rank; else None.
    """

    def __init__(
        self, setup: AlgorithmSetup, worker: Worker | None, group: Communicator | None, centre: Centre | None = None
    ) -> None:
        self.comm, self.weights, self.n, self.n_sums = setup.comm, setup.weights, setup.n, setup.n_sums
        self.n_steps, self.make_deal = setup.n_steps, setup.make_deal
        self.worker, self.group, self.centre = worker, group, centre
        self.dealing = self if self.make_deal is not None else None
        self._n_left = 0

    def run(self, steps: Iterable[np.ndarray]) -> None:
        has_finished = False
        try:
            has_begun = self._begin_epoch()
            has_finished = has_begun and all(self._step(step) for step in steps) and self._finish_epoch()
        except BaseException:
            if self.group is not None and self._n_left:
                self._report_failure(self.group)
            raise
        finally:
            if self.worker is not None:
                self.worker.link.end_epoch(has_failed=not has_finished)

    def next_part(self) -> slice | None:
        return self.worker.link.next_part() if self.worker is not None else None

    def synchronize(self) -> None:
        """All ranks take the weights of the first master."""
        if self.centre is not None:
            self.weights[:] = self.centre.weights
        broadcast_in_place(self.comm, self.weights)

    def diagnostics(self) -> dict[str, float]:
        return mean_staleness(self.comm, Counter())

    def state(self) -> dict[str, np.ndarray]:
        """The centre's state, if the training has one rank."""
        return self.centre.state() if self.centre is not None else {}

    def rank_state(self) -> dict[str, np.ndarray]:
        return self.worker.rank_state() | self.worker.link.rank_state() if self.worker is not None else {}

    def close(self) -> None:
        if self.group is not None:
            self.group.Free()

    def _begin_epoch(self) -> bool:
        """All ranks of the group take the weights of their leader; False if it failed. Collective over the group."""
        self._n_left = 0  # the group's other ranks wait in a step only while some are left
        is_ok = False
        try:
            if self.centre is not None:
                self.centre.weights[:] = self.weights  # a checkpoint may have filled them
                self.centre.begin_epoch()
            if self.worker is not None:
                self.worker.link.begin_epoch(self.weights)
                self.worker.begin_epoch(self.weights)
                if isinstance(self.worker.link, LocalLink) and self.make_deal is not None:
                    self.worker.link.deal = self.make_deal()
            is_ok = True
        finally:
            if self.group is not None:
                is_ok = self._share(self.group, is_ok)
                self._n_left = self.n_steps if is_ok else 0
        return is_ok

    def _finish_epoch(self) -> bool:
        return self.worker is None or self.worker.finish_epoch(self.weights)

    def _step(self, step: np.ndarray) -> bool:
        """One step of the group: gradients are summed, the leader exchanges, all ranks take its weights. Collective."""
        if self.group is None:
            return self.worker is not None and self._exchange(self.worker, step)
        sum_in_place(self.group, step)
        self._n_left -= 1
        is_ok = False
        try:
            is_ok = not step[FAILED] > 0 and (self.worker is None or self._exchange(self.worker, step))
        finally:
            is_ok = self._share(self.group, is_ok)
            if not is_ok:
                self._n_left = 0
        return is_ok

    def _exchange(self, worker: Worker, step: np.ndarray) -> bool:
        return worker.step(self.weights, step[: self.n], float(step[self.n + WEIGHT]))

    def _share(self, group: Communicator, is_ok: bool) -> bool:
        """Gives the group the leader's weights, or the flag that a rank failed. Collective over `group`."""
        flag = np.array([is_ok], np.float32)
        broadcast_in_place(group, flag)
        if flag[0]:
            broadcast_in_place(group, self.weights)
        return bool(flag[0])

    def _report_failure(self, group: Communicator) -> None:
        """Takes part in the step in which the group's other ranks wait, with the flag that this rank failed."""
        sum_in_place(group, failed_step(self.n + self.n_sums))
        self._share(group, False)


def mean_staleness(comm: Communicator, found: Counter[int]) -> dict[str, float]:
    """Mean and largest staleness of the workers' messages over all masters; empty without messages.

    Collective over `comm`.

    Args:
        found: Staleness -> number of messages on this rank.
    """
    sums = np.array([sum(staleness * n for staleness, n in found.items()), found.total()], np.float64)
    sum_in_place(comm, sums)
    largest = max(found, default=0)
    largest = max(comm.allgather(largest))
    return {"staleness": float(sums[0] / sums[1]), "largest_staleness": float(largest)} if sums[1] else {}
