"""The links of a search in one process: coordinator and worker are two of its threads.

The messages, their order and their meaning are the same as over MPI. A waiting thread sleeps until the next message
arrives.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable
from threading import Condition
from typing import Any

from mpi_learn.mpi.communicators import Communicator
from mpi_opt.messages.messages import (
    STOP,
    TAGS,
    TO_RANK,
    CoordinatorLink,
    Disband,
    Dismissal,
    EndProcess,
    FromCoordinator,
    Join,
    ToCoordinator,
    ToRank,
    WorkerLink,
)

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
        self.n_sent = self.n_taken = self.n_handled = 0
        self.error: BaseException | None = None
        self.is_closed = False


class SerialCoordinatorLink(CoordinatorLink):
    """The coordinator's end. The only rank cannot be lost, and it is never given up: no other rank can replace it."""

    leave_s = math.inf

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
            channel.n_handled = channel.n_taken
            channel.changed.notify_all()
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
            return messages.popleft() if messages else Dismissal()

    def form_block(self, join: Join, meanwhile: Callable[[], None]) -> Communicator:
        return self._comm

    def fail(self, error: BaseException) -> None:
        """Raises `error` in the coordinator, because the worker has ended unexpectedly."""
        with self._channel.changed:
            self._channel.error = error
            self._channel.changed.notify_all()
