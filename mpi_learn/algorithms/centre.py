"""The interface of what a master holds, and the two ways to reach it: over MPI, or in the same process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from mpi_learn.buffers import receive_into, send_from
from mpi_learn.comm import Communicator

PULL, PUSH, SWAP, DONE, FAILED, NEXT = 11, 12, 13, 14, 15, 16
"""What a worker wants: the weights; that its message is taken; both; to say that its epoch is over; that it failed; to
know which samples it may take next."""

N_EXTRA, VERSION, WEIGHT = 2, 0, 1
"""Behind the vector of a message stand the version of the weights it started from (sent back: the version now, or −1 if
some rank failed), and the number of samples that it speaks of."""
MANY = float(1 << 23)
"""Versions count modulo this: up to there float32 knows every whole number."""


Deal = Callable[[], slice | None]
"""Deals out the samples of an epoch to whoever asks; None when all are dealt."""


class Centre(ABC):
    """What a master holds: common weights that change with each message.

    Attributes:
        weights: (n,) float32, changed in place.
        has_failure: Whether a master above said that some rank failed.
    """

    weights: np.ndarray
    has_failure: bool = False

    @abstractmethod
    def absorb(self, message: np.ndarray) -> None:
        """Takes one worker's message in.

        Args:
            message: (n + 2,) float32; in a swap its first n are replaced by the answer.
        """

    def arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold besides the weights."""
        return {}

    def flush(self) -> None:  # noqa: B027 - most centres keep nothing back
        """The epoch is over: passes on what was kept back."""


class Staleness:
    """How many updates of others came between a worker's look at the weights and its own update."""

    def __init__(self) -> None:
        self.version, self.total, self.n, self.largest = 0, 0.0, 0, 0.0

    def count(self, started_from: float) -> None:
        """Takes note of one update."""
        found = (self.version % MANY - started_from) % MANY
        self.total, self.n, self.largest = self.total + found, self.n + 1, max(self.largest, found)
        self.version += 1

    def take(self) -> dict[str, float]:
        """Mean and largest since the last time."""
        found = {"staleness": self.total / self.n, "largest_staleness": self.largest} if self.n else {}
        self.total, self.n, self.largest = 0.0, 0, 0.0
        return found


class Link(ABC):
    """A worker's way to its centre."""

    @abstractmethod
    def swap(self, message: np.ndarray) -> bool:
        """Sends `message`, whose first n are replaced by the answer; False if some rank failed."""

    @abstractmethod
    def pull(self, message: np.ndarray) -> bool:
        """Writes the centre's weights over the first n of `message`; False if some rank failed."""

    @abstractmethod
    def push(self, message: np.ndarray) -> None:
        """Sends `message`; nothing comes back."""

    @abstractmethod
    def next_part(self) -> slice | None:
        """The samples that this worker may take next, from whoever deals them; None when all are dealt."""

    @abstractmethod
    def end(self, failed: bool) -> None:
        """This worker's epoch is over."""


class LocalLink(Link):
    """A worker that is its own master: the same mathematics, no communication."""

    def __init__(self, centre: Centre) -> None:
        self.centre = centre
        self.deal: Deal | None = None

    def next_part(self) -> slice | None:
        """See `Link.next_part`."""
        return self.deal()

    def swap(self, message: np.ndarray) -> bool:
        """See `Link.swap`."""
        self.centre.absorb(message)
        return True

    def pull(self, message: np.ndarray) -> bool:
        """See `Link.pull`."""
        message[: self.centre.weights.size] = self.centre.weights
        return True

    def push(self, message: np.ndarray) -> None:
        """See `Link.push`."""
        self.centre.absorb(message)

    def end(self, failed: bool) -> None:
        """See `Link.end`."""
        if not failed:
            self.centre.flush()


class RemoteLink(Link):
    """A worker whose master is another rank.

    Args:
        comm: Of the training.
        master: The rank.
    """

    def __init__(self, comm: Communicator, master: int) -> None:
        self.comm, self.master, self._version = comm, master, 0.0

    def swap(self, message: np.ndarray) -> bool:
        """See `Link.swap`."""
        message[-N_EXTRA + VERSION] = self._version
        send_from(self.comm, message, self.master, SWAP)
        return self._answered(message)

    def pull(self, message: np.ndarray) -> bool:
        """See `Link.pull`."""
        send_from(self.comm, message[:0], self.master, PULL)
        return self._answered(message)

    def push(self, message: np.ndarray) -> None:
        """See `Link.push`."""
        message[-N_EXTRA + VERSION] = self._version
        send_from(self.comm, message, self.master, PUSH)

    def next_part(self) -> slice | None:
        """See `Link.next_part`."""
        places = np.zeros(2, np.int64)
        send_from(self.comm, places[:0], self.master, NEXT)
        receive_into(self.comm, places, self.master)
        return slice(int(places[0]), int(places[1])) if places[0] >= 0 else None

    def end(self, failed: bool) -> None:
        """See `Link.end`."""
        send_from(self.comm, np.zeros(0, np.float32), self.master, FAILED if failed else DONE)

    def _answered(self, message: np.ndarray) -> bool:
        receive_into(self.comm, message, self.master)
        self._version = float(message[-N_EXTRA + VERSION])
        return self._version >= 0
