"""A master's epoch: takes messages as they come, in whatever order, until all its workers are through."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from mpi_learn.algorithms.parameter_server.centre import (
    DONE,
    FAILED,
    MANY,
    N_EXTRA,
    NEXT,
    PULL,
    SWAP,
    VERSION,
    Centre,
    Deal,
    Staleness,
)
from mpi_learn.flat_layout import aligned_empty
from mpi_learn.mpi.collectives import receive_into, send_from
from mpi_learn.mpi.communicators import Communicator


class Server:
    """Serves a centre to other ranks.

    Args:
        comm: Of the training.
        children: The ranks served.
        centre: What is served.
        quorum: Answer only when this fraction of the children that are still at work have sent; None: at once.
        serves_workers: Whether the children are workers, not masters.
        mailboxes: Child -> the memory that it shares with this rank, where messages and answers lie; children on
            other hosts are left out.

    Attributes:
        deal: Deals out the samples of this epoch, where they are dealt to whoever is free.
        has_failure: Whether some rank failed: then every answer says so, and all leave the epoch.
    """

    def __init__(
        self,
        comm: Communicator,
        children: tuple[int, ...],
        centre: Centre,
        quorum: float | None = None,
        mailboxes: Mapping[int, np.ndarray] | None = None,
        serves_workers: bool = True,
    ) -> None:
        self.comm, self.children, self.centre, self.quorum = comm, children, centre, quorum
        self.serves_workers = serves_workers
        self.mailboxes = mailboxes or {}
        self.staleness = Staleness()
        self.has_failure = False
        self.deal: Deal | None = None
        self._message = aligned_empty(centre.weights.size + N_EXTRA)
        self._waiting: list[int] = []
        self._at_work: set[int] = set()

    def serve(self) -> None:
        """One epoch: returns when every child has ended its own."""
        self._at_work, self._waiting, self.has_failure = set(self.children), [], False
        while self._at_work:
            source, tag = receive_into(self.comm, self._message)
            if tag in (DONE, FAILED):
                self._at_work.discard(source)
                self.has_failure |= tag == FAILED
            elif tag == NEXT:
                self._deal(source)
            elif not self.has_failure:
                self._take(source, tag)
            elif tag in (SWAP, PULL):
                self._answer(source)
            self._answer_waiting()

    def dismiss(self) -> None:
        """This master failed: tells every child, as each comes, until all have ended."""
        self.has_failure = True
        while self._at_work:
            self._answer_waiting()
            source, tag = receive_into(self.comm, self._message)
            if tag in (DONE, FAILED):
                self._at_work.discard(source)
            elif tag == NEXT:
                self._deal(source)
            elif tag in (SWAP, PULL):
                self._answer(source)

    def _deal(self, source: int) -> None:
        part = None if self.has_failure else self.deal()
        places = (-1, -1) if part is None else (part.start, part.stop)
        send_from(self.comm, np.array(places, np.int64), source, NEXT)

    def _take(self, source: int, tag: int) -> None:
        message = self._message_of(source)
        if tag == PULL:
            message[: self.centre.weights.size] = self.centre.weights
            self._answer(source)
            return
        version = float(message[-N_EXTRA + VERSION])
        if self.quorum is not None:
            self._take_in_rounds(source, version)
            return
        self.staleness.count(version)
        self.centre.absorb(message)
        self.has_failure |= self.centre.has_failure
        if tag == SWAP:
            self._answer(source)

    def _take_in_rounds(self, source: int, version: float) -> None:
        """Keeps a message for this round; one that comes too late is dropped, and its sender gets the new weights."""
        if version == self.staleness.version % MANY:
            self.centre.absorb(self._message_of(source))
            self._waiting.append(source)
        else:
            self._message_of(source)[: self.centre.weights.size] = self.centre.weights
            self._answer(source)

    def _message_of(self, source: int) -> np.ndarray:
        """Where the last message of this child lies, and the answer to it goes."""
        return self.mailboxes.get(source, self._message)

    def _answer(self, source: int) -> None:
        message = self._message_of(source)
        message[-N_EXTRA + VERSION] = -1.0 if self.has_failure else self.staleness.version % MANY
        send_from(self.comm, message if source not in self.mailboxes else message[:0], source, SWAP)

    def _answer_waiting(self) -> None:
        """Ends a synchronous round when enough have sent: those that have ended their epoch are not waited for."""
        if not self._waiting:
            return
        enough = math.ceil(round((self.quorum or 1.0) * len(self._at_work), 6))  # 0.7 × 10 is a little more than 7
        if len(self._waiting) < enough and not self.has_failure:
            return
        if not self.has_failure:
            self.centre.flush()
            self.has_failure |= self.centre.has_failure
            self.staleness.version += 1
        n = self.centre.weights.size
        for source in self._waiting:
            self._message_of(source)[:n] = self.centre.weights
            self._answer(source)
        self._waiting = []
