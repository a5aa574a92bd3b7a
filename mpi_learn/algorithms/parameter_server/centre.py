"""The interface of what a master holds, and the ways to reach it: over MPI, shared memory, or in the same process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from mpi_learn.mpi.collectives import receive_into, send_from
from mpi_learn.mpi.communicators import Communicator

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

    def take(self) -> tuple[float, int, float]:
        """Total, number of updates and largest since the last time."""
        found = self.total, self.n, self.largest
        self.total, self.n, self.largest = 0.0, 0, 0.0
        return found


class Link(ABC):
    """A worker's way to its centre."""

    @abstractmethod
    def swap(self, message: np.ndarray) -> np.ndarray | None:
        """Sends `message`, whose content is lost.

        Returns:
            A vector like it that begins with the answer, to be used before the next call; None if some rank failed.
        """

    @abstractmethod
    def pull(self, message: np.ndarray) -> np.ndarray | None:
        """Asks for the centre's weights.

        Args:
            message: Room for them, which may be used.

        Returns:
            A vector like it that begins with them, to be changed and pushed, if wanted; None if some rank failed.
        """

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

    def swap(self, message: np.ndarray) -> np.ndarray | None:
        """See `Link.swap`."""
        self.centre.absorb(message)
        return message

    def pull(self, message: np.ndarray) -> np.ndarray | None:
        """See `Link.pull`."""
        message[: self.centre.weights.size] = self.centre.weights
        return message

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
        mailbox: (n + 2,) float32 in memory shared with the master, if it is on the same host: then the vectors lie
            there, both compute in it, and messages are empty. A worker writes there only while the master has
            nothing of its to look at.
    """

    def __init__(self, comm: Communicator, master: int, mailbox: np.ndarray | None = None) -> None:
        self.comm, self.master, self.mailbox, self._version = comm, master, mailbox, 0.0
        self._is_pushed = False

    def swap(self, message: np.ndarray) -> np.ndarray | None:
        """See `Link.swap`."""
        return self._answer(message) if self._send(message, SWAP) else None

    def pull(self, message: np.ndarray) -> np.ndarray | None:
        """See `Link.pull`."""
        self._is_pushed = False  # the master answers in order: it has taken what was pushed before
        send_from(self.comm, message[:0], self.master, PULL)
        return self._answer(message)

    def push(self, message: np.ndarray) -> None:
        """See `Link.push`."""
        self._is_pushed = self._send(message, PUSH)

    def next_part(self) -> slice | None:
        """See `Link.next_part`."""
        places = np.zeros(2, np.int64)
        send_from(self.comm, places[:0], self.master, NEXT)
        receive_into(self.comm, places, self.master)
        return slice(int(places[0]), int(places[1])) if places[0] >= 0 else None

    def end(self, failed: bool) -> None:
        """See `Link.end`."""
        send_from(self.comm, np.zeros(0, np.float32), self.master, FAILED if failed else DONE)

    def _send(self, message: np.ndarray, tag: int) -> bool:
        """Returns False if it was not sent, because some rank failed."""
        if self.mailbox is not None:
            if self._is_pushed and self.pull(message) is None:
                return False
            if message is not self.mailbox:
                self.mailbox[:] = message
            message = self.mailbox
        message[-N_EXTRA + VERSION] = self._version
        send_from(self.comm, message if self.mailbox is None else message[:0], self.master, tag)
        return True

    def _answer(self, message: np.ndarray) -> np.ndarray | None:
        room = message if self.mailbox is None else self.mailbox
        receive_into(self.comm, message, self.master)
        self._version = float(room[-N_EXTRA + VERSION])
        return room if self._version >= 0 else None
