"""With whom a cluster exchanges, and one exchange of weights that nobody waits for."""

from __future__ import annotations

import numpy as np

from mpi_learn.mpi.collectives import Request, is_message_waiting, receive_later, send_later, wait
from mpi_learn.mpi.communicators import Communicator

FIRST_TAG, N_TAGS, ALARM = 100, 10_000, 99
_ABANDONED: list[Exchange] = []


def partners(neighbours: str, rank: int, size: int, n_round: int) -> tuple[int, ...]:
    """The clusters with which `rank` exchanges in a round; if a names b, b names a.

    Args:
        neighbours: ``ring``, ``random`` (pairs; with an odd number one cluster sits out) or ``all``.
        n_round: Of the whole training; all clusters draw the same pairs for it.
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
    """One exchange, begun when made; it goes on while this rank computes.

    Args:
        leaders: Of the clusters' leaders. The partners must begin the same round, sooner or later.
        weights: (n,) float32, copied.
        whom: The partners.
        n_round: Tells the rounds apart.
    """

    def __init__(self, leaders: Communicator, weights: np.ndarray, whom: tuple[int, ...], n_round: int) -> None:
        self._snapshot = weights.copy()
        self._theirs = [np.empty_like(self._snapshot) for _ in whom]
        tag = FIRST_TAG + n_round % N_TAGS
        self._requests: list[Request] = []
        for partner, buffer in zip(whom, self._theirs, strict=True):
            self._requests.append(receive_later(leaders, buffer, partner, tag))
            self._requests.append(send_later(leaders, self._snapshot, partner, tag))

    def result(self) -> np.ndarray | None:
        """The mean less the own snapshot, (n,); None while something is under way. Never waits."""
        self._requests = [request for request in self._requests if not request.Test()]
        return None if self._requests else self._delta()

    def wait(self) -> np.ndarray:
        """The same; waits for it without spinning."""
        for request in self._requests:
            wait(request)
        self._requests = []
        return self._delta()

    def abandon(self) -> None:
        """Some rank failed and nobody waits for this any more; the memory stays where a late message would land."""
        _ABANDONED.append(self)

    def _delta(self) -> np.ndarray:
        total = self._snapshot.copy()
        for other in self._theirs:
            total += other
        total /= 1 + len(self._theirs)
        total -= self._snapshot
        return total

    @staticmethod
    def alarm(leaders: Communicator) -> None:
        """Tells all other leaders that some rank failed. Waits for nobody."""
        nothing = np.zeros(0, np.float32)
        for other in range(leaders.size):
            if other != leaders.rank:
                send_later(leaders, nothing, other, ALARM)

    @staticmethod
    def is_alarmed(leaders: Communicator) -> bool:
        """Whether some leader has told so."""
        return is_message_waiting(leaders, ALARM)
