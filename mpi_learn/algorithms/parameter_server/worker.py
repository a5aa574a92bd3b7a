"""A worker of a parameter server: one rank, or ranks that compute each gradient together; its link to its master.

Every message is a header. If the message has a vector, it follows the header, unless both ranks share its memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm, AlgorithmSetup, Deal, SampleDealing
from mpi_learn.algorithms.parameter_server.transfer import VECTOR, Transfers
from mpi_learn.flat_layout import FAILED, WEIGHT, failed_step
from mpi_learn.mpi.communicators import Communicator, broadcast_in_place, receive_into, send_from, sum_in_place

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
            if self.worker is not None:  # the master waits for it, also after an error
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
        finally:  # also if the leader raises: the others wait for its weights or its flag
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
        self._share(group, False)  # each step ends with it


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
