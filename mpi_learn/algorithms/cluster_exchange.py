"""Which clusters exchange weights with each other, and one such exchange in the background."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mpi_learn.compression.encodings import Encoding
from mpi_learn.compression.error_feedback import KnownWeights
from mpi_learn.mpi.communicators import Communicator, Request, gathered, receive_into, wait
from mpi_learn.mpi.messaging import FAILURES

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
        known: Rank, this one or a partner's -> its weights as all partners know them, if messages are encoded.

    Attributes:
        partners: The argument.
        snapshot: The weights as the partners receive them, (n,) float32.
    """

    def __init__(
        self,
        leaders: Communicator,
        weights: np.ndarray,
        partners: tuple[int, ...],
        known: Mapping[int, KnownWeights] | None = None,
    ) -> None:
        self.partners, self._known, self._own, own = partners, known, leaders.rank, leaders.rank
        message = weights.copy() if known is None else known[own].encode(weights)
        self.snapshot: np.ndarray = message if known is None else known[own].values.copy()
        self._messages = {rank: np.empty_like(message) for rank in partners} | {own: message}
        self._requests: list[Request] = []
        for partner in partners:
            self._requests.append(leaders.Irecv(self._messages[partner], source=partner, tag=WEIGHTS))
            self._requests.append(leaders.Isend(message, dest=partner, tag=WEIGHTS))
        # a copy is tested, and only these are removed: other threads may add exchanges of their own meanwhile
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
        """The mean of this cluster's and its partners' weights, (n,) float32. Call it once, when all have arrived.

        The terms are summed in the order of ranks, so that clusters with the same snapshots compute the same bits.
        """
        total = np.zeros_like(self.snapshot)
        for rank in sorted(self._messages):
            total += self.snapshot if rank == self._own else self._received(rank)
        total /= len(self._messages)
        return total

    def _received(self, partner: int) -> np.ndarray:
        """The weights of a partner."""
        if self._known is None:
            return self._messages[partner]
        self._known[partner].follow(self._messages[partner])
        return self._known[partner].values

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


class Acquaintance:
    """The weights of each cluster as its partners know them, if messages are encoded: at first those of the epoch.

    Clusters with other partners in each round know different weights of one another.

    Args:
        encoding: The form of the messages.
        rank: This cluster.
        weights: Those with which all clusters begin the epoch, (n,) float32.
    """

    def __init__(self, encoding: Encoding, rank: int, weights: np.ndarray) -> None:
        self._encoding, self._rank, self._start = encoding, rank, weights.copy()
        self._by_partners: dict[tuple[int, ...], dict[int, KnownWeights]] = {}

    def among(self, partners: tuple[int, ...]) -> dict[int, KnownWeights]:
        """Rank -> weights as these partners know them, of this cluster and of the partners."""
        if partners not in self._by_partners:
            known = {rank: KnownWeights(self._encoding, self._start) for rank in (self._rank, *partners)}
            self._by_partners[partners] = known
        return self._by_partners[partners]

    def settle(self, partners: tuple[int, ...], weights: np.ndarray) -> None:
        """This cluster and all `partners` have computed the same `weights`, (n,) float32, and continue from these."""
        for known in self.among(partners).values():
            known.values[:] = weights


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
