"""Which clusters exchange weights with each other, and one such exchange in the background."""

from __future__ import annotations

import numpy as np

from mpi_learn.mpi.collectives import Request, is_message_waiting, receive_later, send_later, wait
from mpi_learn.mpi.communicators import FAILURES, Communicator

FIRST_TAG, N_TAGS, ALARM = 100, 10_000, 99

_UNDER_WAY: list[Exchange] = []
"""Keeps the memory of exchanges until MPI no longer uses it, also if the training that began them has failed."""


def partners(neighbours: str, rank: int, size: int, n_round: int) -> tuple[int, ...]:
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
        leaders: Communicator of the clusters' leaders. The partners must begin the same round sooner or later.
        weights: (n,) float32, copied.
        partners: Ranks of the partners in `leaders`.
        n_round: Number of the round.
    """

    def __init__(self, leaders: Communicator, weights: np.ndarray, partners: tuple[int, ...], n_round: int) -> None:
        self.snapshot = weights.copy()
        self._by_rank = {rank: np.empty_like(self.snapshot) for rank in partners} | {leaders.rank: self.snapshot}
        tag = FIRST_TAG + n_round % N_TAGS
        self._requests: list[Request] = []
        for partner in partners:
            self._requests.append(receive_later(leaders, self._by_rank[partner], partner, tag))
            self._requests.append(send_later(leaders, self.snapshot, partner, tag))
        _UNDER_WAY[:] = [*(one for one in _UNDER_WAY if not one._is_released()), self]

    def is_complete(self) -> bool:
        """Whether all messages have been sent and received. Never waits."""
        self._requests = [request for request in self._requests if not request.Test()]
        if not self._requests and self in _UNDER_WAY:
            _UNDER_WAY.remove(self)
        return not self._requests

    def wait(self) -> None:
        """Waits for all messages without spinning."""
        for request in self._requests:
            wait(request)
        self._requests = []
        self.is_complete()

    def mean(self) -> np.ndarray:
        """The mean of this cluster's and its partners' weights, (n,) float32. The exchange must be complete.

        The terms are summed in the order of ranks, so that all partners of a complete exchange get the same bits.
        """
        total = np.zeros_like(self.snapshot)
        for rank in sorted(self._by_rank):
            total += self._by_rank[rank]
        total /= len(self._by_rank)
        return total

    def _is_released(self) -> bool:
        """Whether MPI no longer uses the memory of this exchange, also because its communicator has failed."""
        self._requests = [request for request in self._requests if not _is_over(request)]
        return not self._requests


def _is_over(request: Request) -> bool:
    try:
        return request.Test()
    except FAILURES:
        return True


def raise_alarm(leaders: Communicator) -> None:
    """Tells all other leaders that a rank failed. Does not wait for them."""
    nothing = np.zeros(0, np.float32)
    for other in range(leaders.size):
        if other != leaders.rank:
            send_later(leaders, nothing, other, ALARM)


def has_alarm(leaders: Communicator) -> bool:
    """Whether another leader has reported a failure. Never waits."""
    return is_message_waiting(leaders, ALARM)
