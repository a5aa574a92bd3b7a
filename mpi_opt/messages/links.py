"""The links between coordinator and workers: over MPI, where rank 0 coordinates, and in one process.

Messages, their order and their meaning are the same in both. In one process, a waiting thread sleeps until the next
message arrives.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition
from typing import TYPE_CHECKING, Any

from mpi_learn.job.started_by import check_world, is_launched
from mpi_learn.mpi import communicators, messaging, process_end
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.mpi.library import MPI
from mpi_learn.mpi.messaging import Outbox, Pause, RankLost
from mpi_opt.messages.messages import (
    STOP,
    TAGS,
    TO_COORDINATOR,
    TO_MEMBER,
    TO_RANK,
    TO_WATCHDOG,
    CoordinatorLink,
    Disband,
    Dismissal,
    EndProcess,
    FromCoordinator,
    Join,
    LeftBlock,
    Lost,
    ReadyToForm,
    SearchResult,
    ToCoordinator,
    ToRank,
    WorkerLink,
)

if TYPE_CHECKING:
    from mpi_opt.errors import MPILearnError
    from mpi_opt.study.study import Study


def world_communicator() -> Communicator | None:
    """The world communicator; None in a process that no MPI launcher has started, or if it is alone.

    Raises:
        UserError: A launcher has started several processes, but MPI does not connect them.
    """
    if not is_launched():
        return None
    from mpi_learn.mpi.library import MPI

    check_world(MPI.COMM_WORLD.size, MPI.Get_library_version())
    return MPI.COMM_WORLD if MPI.COMM_WORLD.size > 1 else None


MAX_MESSAGES_AT_ONCE = 32
"""Most messages per call of `receive`, so that the first block gets its next trial before all results are read."""

YIELD_S = 50e-6
"""Time for which the coordinator polls without sleeping, in seconds. After short trials a message arrives soon."""

MAX_PAUSE_S = 0.002
"""The longest sleep of the coordinator between two polls, in seconds. It delays the answers to all blocks."""

DELIVERY_S = 5.0
"""Time that the other ranks have to receive the result of the search, in seconds."""


class MPICoordinatorLink(CoordinatorLink):
    """The coordinator's end, over the world communicator. Messages to dead ranks are dropped.

    Attributes:
        has_called_watchdog: Whether a message has been sent to a watchdog.
        ranks_to_end: The ranks that must end their process. Without protection `EndProcess` is not sent, because the
            death of a rank would end the job.
    """

    def __init__(self, world: Communicator, *, processes_continue: bool = False) -> None:
        self.world, self.processes_continue = world, processes_continue
        self.has_called_watchdog = False
        self.ranks_to_end: set[int] = set()
        self._lost: set[int] = set()
        self._outbox = Outbox(world)
        self._is_new = True

    def send(self, rank: int, message: FromCoordinator) -> None:
        if isinstance(message, EndProcess):
            self.ranks_to_end.add(rank)
            if not self.is_protected:
                return
        tag = TAGS[type(message)]
        self.has_called_watchdog = self.has_called_watchdog or tag == TO_WATCHDOG
        if rank not in self._lost:
            self._outbox.send(message, rank, tag)

    @property
    def is_protected(self) -> bool:
        return messaging.is_protected()

    @property
    def unreliable_version(self) -> str:
        return messaging.unreliable_version(MPI.Get_library_version())

    def receive(self, timeout_s: float, is_interrupted: Callable[[], bool]) -> list[tuple[int, ToCoordinator]]:
        pause = Pause(MAX_PAUSE_S, YIELD_S)
        while not (messages := self._arrived()) and pause.waited_s < timeout_s and not is_interrupted():
            pause()
        return messages

    def send_result(self, study: Study | None, error: MPILearnError | None) -> None:
        """Sends a `SearchResult` to all live ranks, and prepares the end of this process.

        ``MPI_Finalize`` needs all ranks. It is skipped if a rank was lost, cannot be reached, or may have been lost
        unnoticed. With protection it is also skipped if the processes end right after the search, because a death in
        those last moments would block the other ranks.

        Args:
            study: The study for the other ranks; None if they do not receive it.
            error: The error that ended the search.
        """
        gone = messaging.acknowledge(self.world) | self.ranks_to_end
        skips_finalize = bool(gone) or (self.is_protected and (self.has_called_watchdog or not self.processes_continue))
        reachable = [rank for rank in range(1, self.world.size) if rank not in gone]
        # a rank that has not received the result would report the end of this process as a loss
        result = SearchResult(study, error, skips_finalize)
        messaging.deliver(self.world, result, reachable, TO_RANK, DELIVERY_S)
        if self.is_protected:
            messaging.await_deaths(self.world, self.ranks_to_end, DELIVERY_S)
        if skips_finalize:
            process_end.skip_finalize(self.world, reachable)

    def _arrived(self) -> list[tuple[int, ToCoordinator]]:
        messages: list[tuple[int, ToCoordinator]] = []
        if self._is_new:  # ranks that an earlier search has lost raise no error in this one
            self._is_new = False
            messages += self._losses()
        try:
            while len(messages) < MAX_MESSAGES_AT_ONCE and (found := messaging.poll(self.world, tag=TO_COORDINATOR)):
                messages.append((found[1], found[0]))
                if isinstance(found[0], LeftBlock):
                    self.ranks_to_end.discard(found[1])  # a late answer: the rank is alive
        except RankLost:  # each receive from any source raises until the death is acknowledged
            messages += self._losses()
        return messages

    def _losses(self) -> list[tuple[int, ToCoordinator]]:
        """The ranks that have died since the last call. Receives from any source then work again."""
        new = messaging.acknowledge(self.world) - self._lost
        self._lost |= new
        return [(0, Lost(frozenset(new)))] if new else []


class MPIWorkerLink(WorkerLink):
    """A worker's end, over the world communicator."""

    def __init__(self, world: Communicator) -> None:
        self.world = world

    @property
    def rank(self) -> int:
        return self.world.rank

    @property
    def has_thread(self) -> bool:
        return communicators.threads_may_call()

    def send(self, message: ToCoordinator) -> None:
        self.world.send(message, dest=0, tag=TO_COORDINATOR)

    def poll(self, tag: int) -> object | None:
        found = messaging.poll(self.world, source=0, tag=tag)
        return None if found is None else found[0]

    def receive(self, meanwhile: Callable[[], None]) -> ToRank:
        message: ToRank = messaging.receive(self.world, source=0, tag=TO_RANK, meanwhile=meanwhile)[0]
        return message

    def form_block(self, join: Join, meanwhile: Callable[[], None]) -> Communicator:
        self._await_members(join, meanwhile)
        return communicators.from_ranks(self.world, join.ranks, f"mpi_opt block {join.block}")

    def receive_result(self) -> SearchResult:
        """Waits for the result of the search from rank 0. Drops stop messages that no trial has read.

        Raises:
            RankLost: Rank 0 has died.
        """
        result: SearchResult = messaging.receive(self.world, source=0, tag=TO_RANK)[0]
        with suppress(*messaging.FAILURES):  # the trials of the next search have the same numbers
            while self.poll(STOP) is not None:
                pass
        if result.skips_finalize:
            process_end.skip_finalize(self.world)
        return result

    def _await_members(self, join: Join, meanwhile: Callable[[], None]) -> None:
        """Waits until all members are ready, so that the creation of their communicator takes no time.

        This wait can be interrupted. The creation of a communicator together with a dead rank cannot.
        """
        leader, *members = join.ranks
        if self.rank == leader:
            for member in members:
                self._await_present(join.block, member, meanwhile)
            self._send_present(join.block, members)
        else:
            self._send_present(join.block, [leader])
            self._await_present(join.block, leader, meanwhile)

    def _send_present(self, block: int, ranks: Sequence[int]) -> None:
        messaging.send_to_all(self.world, ReadyToForm(block), ranks, TO_MEMBER)

    def _await_present(self, block: int, rank: int, meanwhile: Callable[[], None]) -> None:
        message = None
        while message != ReadyToForm(block):  # other messages belong to blocks that were never formed
            message, _, _ = messaging.receive(self.world, source=rank, tag=TO_MEMBER, meanwhile=meanwhile)


MEANWHILE_S = 0.1
"""The interval at which a waiting worker calls ``meanwhile``, in seconds."""

INTERRUPT_S = 0.02
"""The interval at which the waiting coordinator calls ``is_interrupted``, in seconds."""


class _Channel:
    """The messages in both directions and the shared state of the two threads."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.to_coordinator: deque[ToCoordinator] = deque()
        self.to_worker: defaultdict[int, deque[Any]] = defaultdict(deque)
        # messages to the coordinator: those that were sent, that it has received, and that it has handled
        self.n_sent = self.n_taken = self.n_handled = 0
        self.error: BaseException | None = None
        self.is_closed = False


class SerialCoordinatorLink(CoordinatorLink):
    """The coordinator's end. The only rank cannot be lost, and it is never given up: no other rank can replace it."""

    leave_s = math.inf
    shares_process = True

    def __init__(self) -> None:
        self.channel = _Channel()
        self._block = -1

    @property
    def is_protected(self) -> bool:
        return True

    def send(self, rank: int, message: FromCoordinator) -> None:
        """Sends a message. For `EndProcess` the worker leaves its block and is dismissed: the process must not end."""
        if isinstance(message, Join):
            self._block = message.block
        if isinstance(message, EndProcess):
            self._put(Disband(self._block))
            self._put(Dismissal())
        else:
            self._put(message)

    def receive(self, timeout_s: float, is_interrupted: Callable[[], bool]) -> list[tuple[int, ToCoordinator]]:
        channel, until_s = self.channel, time.monotonic() + timeout_s

        def is_over() -> bool:
            if channel.to_coordinator or channel.error is not None:
                return True
            return is_interrupted() or time.monotonic() >= until_s

        with channel.changed:
            channel.n_handled = channel.n_taken  # the coordinator waits again when it has handled what it received
            channel.changed.notify_all()
            # nothing notifies of an interruption or of the end of the time: these are looked at again at intervals
            while not channel.changed.wait_for(is_over, INTERRUPT_S):
                pass
            if channel.error is not None:
                raise channel.error
            messages = [(0, message) for message in channel.to_coordinator]
            channel.to_coordinator.clear()
            channel.n_taken += len(messages)
        return messages

    def close(self) -> None:
        """Ends every wait of the worker, because the coordinator has ended."""
        with self.channel.changed:
            self.channel.is_closed = True
            self.channel.changed.notify_all()

    def _put(self, message: FromCoordinator) -> None:
        with self.channel.changed:
            self.channel.to_worker[TAGS[type(message)]].append(message)
            self.channel.changed.notify_all()


class SerialWorkerLink(WorkerLink):
    """The worker's end. `comm`, the communicator of the only block, contains this process alone."""

    rank = 0
    has_thread = True

    def __init__(self, coordinator: SerialCoordinatorLink, comm: Communicator) -> None:
        self._channel, self._comm = coordinator.channel, comm

    def send(self, message: ToCoordinator) -> None:
        with self._channel.changed:
            self._channel.to_coordinator.append(message)
            self._channel.n_sent += 1
            self._channel.changed.notify_all()

    def poll(self, tag: int) -> object | None:
        """The next message with this tag, or None. For `STOP` it waits until all earlier messages are handled.

        Pruning therefore does not depend on timing, and a search in one process is reproducible.
        """
        channel = self._channel
        with channel.changed:
            if tag == STOP:
                channel.changed.wait_for(lambda: channel.n_handled >= channel.n_sent or channel.is_closed)
            message: object = channel.to_worker[tag].popleft() if channel.to_worker[tag] else None
            return message

    def receive(self, meanwhile: Callable[[], None]) -> ToRank:
        channel = self._channel
        messages: deque[ToRank] = channel.to_worker[TO_RANK]
        with channel.changed:
            while not channel.changed.wait_for(lambda: bool(messages) or channel.is_closed, MEANWHILE_S):
                meanwhile()
            # the coordinator may have ended with an error, without a message to this worker
            return messages.popleft() if messages else Dismissal()

    def form_block(self, join: Join, meanwhile: Callable[[], None]) -> Communicator:
        return self._comm

    def fail(self, error: BaseException) -> None:
        """Raises `error` in the coordinator, because the worker has ended unexpectedly."""
        with self._channel.changed:
            self._channel.error = error
            self._channel.changed.notify_all()
