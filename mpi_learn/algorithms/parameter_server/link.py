"""How a worker reaches its master: in the same process, through memory of the host, or over the network.

Every message is a header. If the message has a vector, it follows the header, unless both ranks share its memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from mpi_learn.algorithms.algorithm import Deal
from mpi_learn.algorithms.parameter_server.transfer import VECTOR, Transfers
from mpi_learn.mpi.communicators import Communicator, receive_into, send_from

PULL, PUSH, SWAP, NEXT, DONE, FAILED_EPOCH, ANSWER = range(10, 17)
"""Tags. A worker requests the weights (PULL) or its next samples (NEXT), sends a vector (PUSH, or SWAP to receive an
answer), and reports the end of its epoch (DONE, FAILED_EPOCH). ANSWER is a master's header."""


def make_header(first: float = 0, second: float = 0) -> np.ndarray:
    """A header, (2,) float64, which holds every whole number below 2^53.

    With a worker's vector: the version of the weights that it was computed from, and the weight of its batches (1 if
    the vector is not a gradient). In an answer: the version of the weights. In the answer to NEXT: the first position
    in the epoch's order, and the one after the last.
    """
    return np.array([first, second], np.float64)


NO_ANSWER = make_header(-1, -1)
"""The answer of a master if a rank failed; no vector follows it. As the answer to NEXT, it also
means that no samples are left."""


class Link(ABC):
    """A worker's connection to the weights of its master.

    Attributes:
        version: Version of the weights that the worker has received last.
    """

    version: int = 0

    def begin_epoch(self, weights: np.ndarray) -> None:  # noqa: B027 - only messages depend on earlier ones
        """Begins an epoch, with the weights of the last `Algorithm.synchronize`, (n,) float32."""

    def rank_state(self) -> dict[str, np.ndarray]:
        """As `Algorithm.rank_state`."""
        return {}

    @abstractmethod
    def swap(self, vector: np.ndarray, batch_weight: float = 1) -> np.ndarray | None:
        """Sends `vector`, whose content is lost.

        Args:
            vector: (n,) float32.
            batch_weight: The weight of its batches, if it is a gradient (see `mpi_learn.flat_layout`).

        Returns:
            The answer, (n,) float32, valid until the next call; None if a rank failed.
        """

    @abstractmethod
    def pull(self, vector: np.ndarray) -> np.ndarray | None:
        """Requests the weights of the master.

        Args:
            vector: Memory for them, (n,) float32, which may be used.

        Returns:
            The weights, (n,) float32, which may be changed and pushed; None if a rank failed.
        """

    @abstractmethod
    def push(self, vector: np.ndarray) -> None:
        """Sends `vector`, (n,) float32, a change of the weights, without an answer, and may overwrite it.

        Called at most once after a `pull`, and no `swap` or further `push` before the next `pull`: the master may still
        read the vector, and only the answer to a `pull` says that it has finished.
        """

    @abstractmethod
    def next_part(self) -> slice | None:
        """The worker's next samples in the epoch's order; None when all have been dealt."""

    @abstractmethod
    def end_epoch(self, *, has_failed: bool) -> None:
        """Reports the end of the worker's epoch to the master."""


class LocalLink(Link):
    """The link of a rank that is its own master: the same equations without communication.

    Attributes:
        deal: Deals out the samples of the epoch.
    """

    def __init__(self, centre: Centre) -> None:
        self.centre = centre
        self.deal: Deal | None = None

    def swap(self, vector: np.ndarray, batch_weight: float = 1) -> np.ndarray | None:
        self.centre.absorb(vector, batch_weight)
        self.centre.flush()  # a round of one worker
        self.centre.answer(vector)
        return vector

    def pull(self, vector: np.ndarray) -> np.ndarray | None:
        vector[:] = self.centre.weights
        return vector

    def push(self, vector: np.ndarray) -> None:
        self.centre.absorb(vector, 1)

    def next_part(self) -> slice | None:
        return self.deal() if self.deal is not None else None

    def end_epoch(self, *, has_failed: bool) -> None:
        """Has no effect: each swap has ended its round."""


class RemoteLink(Link):
    """The link to a master on another rank.

    Args:
        comm: Communicator of the training.
        master: Rank of the master.
        mailbox: (n,) float32 in memory shared with the master if it is on the same host, else None. With a mailbox both
            ranks read and write vectors there and only headers are sent. The worker writes there only when the master
            has finished with it.
        transfers: The form of the vectors that are sent.
    """

    def __init__(self, comm: Communicator, master: int, mailbox: np.ndarray | None, transfers: Transfers) -> None:
        self.comm, self.master, self.mailbox, self.transfers = comm, master, mailbox, transfers

    def begin_epoch(self, weights: np.ndarray) -> None:
        self.transfers.begin_epoch(weights)

    def rank_state(self) -> dict[str, np.ndarray]:
        return self.transfers.rank_state("to_master")

    def swap(self, vector: np.ndarray, batch_weight: float = 1) -> np.ndarray | None:
        self._send(vector, SWAP, batch_weight)
        return self._answer(vector)

    def pull(self, vector: np.ndarray) -> np.ndarray | None:
        send_from(self.comm, make_header(), self.master, PULL)
        return self._answer(vector)  # the master answers in order: it has finished with the vector pushed before

    def push(self, vector: np.ndarray) -> None:
        self._send(vector, PUSH, 1)

    def next_part(self) -> slice | None:
        header = make_header()
        send_from(self.comm, header, self.master, NEXT)
        receive_into(self.comm, header, self.master)
        return slice(int(header[0]), int(header[1])) if header[0] >= 0 else None

    def end_epoch(self, *, has_failed: bool) -> None:
        send_from(self.comm, make_header(), self.master, FAILED_EPOCH if has_failed else DONE)

    def _send(self, vector: np.ndarray, tag: int, batch_weight: float) -> None:
        """Sends a header and a vector."""
        if self.mailbox is not None and vector is not self.mailbox:
            self.mailbox[:] = vector
        message = self.transfers.up.message(vector, batch_weight) if self.mailbox is None else None
        send_from(self.comm, make_header(self.version, batch_weight), self.master, tag)
        if message is not None:
            send_from(self.comm, message, self.master, VECTOR)

    def _answer(self, vector: np.ndarray) -> np.ndarray | None:
        header = make_header()
        receive_into(self.comm, header, self.master)
        if header[0] < 0:
            return None
        self.version = int(header[0])
        if self.mailbox is not None:
            return self.mailbox
        self.transfers.down.receive(self.comm, vector, self.master, 1)
        return vector


class Centre(ABC):
    """Common weights that change with each message of a worker.

    Attributes:
        weights: (n,) float32, changed in place.
        version: Number of changes so far; the difference of two versions is a staleness.
        has_failure: Whether the first master has reported that a rank failed.
    """

    weights: np.ndarray
    version: int = 0
    has_failure: bool = False

    def begin_epoch(self) -> None:  # noqa: B027 - most centres have nothing to do
        """Begins an epoch, with the weights of the last `Algorithm.synchronize`."""

    @abstractmethod
    def absorb(self, vector: np.ndarray, batch_weight: float) -> None:
        """Applies a worker's message.

        Args:
            vector: (n,) float32; may be changed.
            batch_weight: The weight of its batches (see `mpi_learn.flat_layout`).
        """

    @abstractmethod
    def answer(self, vector: np.ndarray) -> None:
        """Replaces `vector`, (n,) float32, which `absorb` has received, by the answer to a swap."""

    def flush(self) -> None:  # noqa: B027 - most centres hold nothing back
        """Applies the collected messages, or sends them to the first master, at the end of a round or an epoch."""

    def state(self) -> dict[str, np.ndarray]:
        """The common arrays besides the weights, for a checkpoint. Resuming writes into these arrays."""
        return {}

    def rank_state(self) -> dict[str, np.ndarray]:
        """This master's arrays, for a checkpoint. Resuming writes into these arrays."""
        return {}
