"""Which clusters exchange weights with each other, and one such exchange in the background."""

from __future__ import annotations

import numpy as np

from mpi_learn.mpi.collectives import Request, gathered, receive_into, wait
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.mpi.lost_ranks import FAILURES

WEIGHTS, ALARM = 100, 99
"""Tags. Any two clusters begin their common exchanges in the same order, so that one tag is enough for weights."""
NOTHING = np.zeros(0, np.float32)

_UNDER_WAY: set[Exchange] = set()
"""Keeps the memory of exchanges until MPI no longer uses it, also if the training that began them has failed."""


def partners_of(neighbours: str, rank: int, size: int, n_round: int) -> tuple[int, ...]:
    """The clusters with which cluster `rank` exchanges in a round; the relation is symmetric.

    Args:
        neighbours: ``ring``, ``random`` (pairs; with an odd number of clusters one has no partner) or ``all``.
        n_round: Number of the round, from 0; all clusters draw the same pairs for it.
    """
    if neighbours == "all":
        return tuple(other for other in range(size) if other != rank)
    if neighbours == "ring":
        return tuple(sorted({(rank - 1) % size, (rank + 1) % size} - {rank}))
    order = np.random.default_rng([size, n_round]).permutation(size)
    place = int(np.flatnonzero(order == rank)[0])
    partner = place ^ 1
    return (int(order[partner]),) if partner < size else ()


class Exchange:
    """One exchange of weights between clusters. It begins when it is created and continues while this rank computes.

    Args:
        leaders: Communicator of the clusters' leaders. The partners must eventually begin the same round.
        weights: (n,) float32, copied.
        partners: Ranks of the partners in `leaders`.
    """

    def __init__(self, leaders: Communicator, weights: np.ndarray, partners: tuple[int, ...]) -> None:
        self.snapshot = weights.copy()
        self._by_rank = {rank: np.empty_like(self.snapshot) for rank in partners} | {leaders.rank: self.snapshot}
        self._requests: list[Request] = []
        for partner in partners:
            self._requests.append(leaders.Irecv(self._by_rank[partner], source=partner, tag=WEIGHTS))
            self._requests.append(leaders.Isend(self.snapshot, dest=partner, tag=WEIGHTS))
        _UNDER_WAY.difference_update([one for one in tuple(_UNDER_WAY) if one._has_ended()])
        _UNDER_WAY.add(self)

    def is_complete(self) -> bool:
        """Whether all messages have been sent and received. Never waits."""
        self._requests = [request for request in self._requests if not request.Test()]
        if not self._requests:
            self._forget()
        return not self._requests

    def wait(self) -> None:
        """Waits for all messages without busy waiting."""
        for request in self._requests:
            wait(request)
        self._requests = []
        self._forget()

    def mean(self) -> np.ndarray:
        """The mean of this cluster's and its partners' weights, (n,) float32. The exchange must be complete.

        The terms are summed in the order of ranks, so that clusters with the same snapshots compute the same bits.
        """
        total = np.zeros_like(self.snapshot)
        for rank in sorted(self._by_rank):
            total += self._by_rank[rank]
        total /= len(self._by_rank)
        return total

    def _forget(self) -> None:
        """Lets the memory of this exchange be freed: MPI no longer uses it."""
        _UNDER_WAY.discard(self)

    def _has_ended(self) -> bool:
        """Tests the remaining requests; returns whether none is left. A request of a failed communicator has ended."""
        self._requests = [request for request in self._requests if not _is_over(request)]
        return not self._requests


def _is_over(request: Request) -> bool:
    try:
        return request.Test()
    except FAILURES:
        return True


class Alarm:
    """Reports to the leaders of the other clusters that a rank failed.

    Args:
        leaders: Communicator of the clusters' leaders.
    """

    def __init__(self, leaders: Communicator) -> None:
        self.leaders, self._is_raised = leaders, False

    def send(self) -> None:
        """Sends it once, without waiting for the other leaders."""
        if self._is_raised:
            return
        self._is_raised = True
        for other in range(self.leaders.size):
            if other != self.leaders.rank:
                self.leaders.Isend(NOTHING, dest=other, tag=ALARM)

    def has_arrived(self) -> bool:
        """Whether another leader has sent it. Never waits."""
        return self.leaders.Iprobe(tag=ALARM)

    def receive_all(self) -> None:
        """Receives the alarms of all leaders: MPICH would deliver them to a later communicator. Collective."""
        for other, (is_raised,) in enumerate(gathered(self.leaders, np.array([self._is_raised]))):
            if is_raised and other != self.leaders.rank:
                receive_into(self.leaders, NOTHING.copy(), other)
        self._is_raised = False
