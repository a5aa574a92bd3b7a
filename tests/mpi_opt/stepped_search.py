"""A search whose coordinator runs in a thread, one step at a time: it waits until the test gives it messages.

The ranks are in the link. They answer at once when they join or leave a block; the test decides when trials end, which
ranks die, and where the coordinator's process is killed.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mpi_learn.job.stop_request import StopRequest
from mpi_opt.configuration.plan import Plan
from mpi_opt.coordinator import run_coordinator as module
from mpi_opt.messages.messages import (
    Assignment,
    CoordinatorLink,
    Disband,
    Dismissal,
    EndProcess,
    FromCoordinator,
    Join,
    Leave,
    LeftBlock,
    Ready,
    ToCoordinator,
)
from mpi_opt.store.database import Database
from mpi_opt.study.opening.lease import Lease

PATIENCE_S = 60.0


class Killed(BaseException):
    """The process of the coordinator is killed."""


class SteppedLink(CoordinatorLink):
    """The coordinator's end.

    Attributes:
        running: The leader of a block -> the trial that it runs.
        blocks: Block -> its ranks, the leader first.
        assigned: Every trial that was ever assigned, in order.
        asked: The leader of a block -> the trial that it was asked to let go.
    """

    leave_s = float("inf")

    def __init__(self, is_protected: bool) -> None:
        self._is_protected = is_protected
        self.running: dict[int, Assignment] = {}
        self.blocks: dict[int, tuple[int, ...]] = {}
        self.assigned: list[Assignment] = []
        self.asked: dict[int, int] = {}
        self.changed = threading.Condition()
        self.inbox: list[tuple[int, ToCoordinator]] = []
        self.is_woken = self.is_killed = self.has_ended = False
        self._replies: list[tuple[int, ToCoordinator]] = []
        self._is_waiting = False

    @property
    def is_protected(self) -> bool:
        return self._is_protected

    def send(self, rank: int, message: FromCoordinator) -> None:
        match message:
            case Join():
                self.blocks[message.block] = message.ranks
                if rank == message.ranks[0]:
                    self._replies.append((rank, Ready(message.block, f"host{rank}")))
            case Assignment():
                assert rank not in self.running, "a busy block receives a trial"
                self.running[rank] = message
                self.assigned.append(message)
            case Leave():
                self.asked[rank] = message.number
            case Disband():
                self.forget(message.block)
                self._replies.append((rank, LeftBlock(message.block)))
            case EndProcess() | Dismissal():
                self.running.pop(rank, None)

    def forget(self, block: int) -> None:
        """The block runs no trial any more."""
        for rank in self.blocks.pop(block, ()):
            self.running.pop(rank, None)

    def receive(self, timeout_s: float, is_interrupted: Callable[[], bool]) -> list[tuple[int, ToCoordinator]]:
        with self.changed:
            if self._replies:
                replies, self._replies = self._replies, []
                return replies
            self._is_waiting = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.inbox or self.is_woken or self.is_killed, PATIENCE_S)
            self._is_waiting = self.is_woken = False
            if self.is_killed:
                raise Killed
            messages, self.inbox = self.inbox, []
            return messages

    def settle(self) -> None:
        """Waits until the coordinator waits for messages or has ended."""

        def is_settled() -> bool:
            is_waiting = self._is_waiting and not (self.inbox or self.is_woken or self.is_killed)
            return is_waiting or self.has_ended

        with self.changed:
            assert self.changed.wait_for(is_settled, PATIENCE_S), "the search hangs"


@dataclass
class KillPlan:
    """Where a coordinator is killed: at its next transaction number `n_writes` that writes, 1-based.

    Attributes:
        place: Before the transaction, before its commit, or after it.
    """

    n_writes: int
    place: str


next_plan: KillPlan | None = None
"""That of the next search, from its start."""

_plans: dict[int, KillPlan] = {}
_leases: dict[int, Lease] = {}
_write, _leased = Database.writing, module.leased


@contextmanager
def writing(database: Database, *, durably: bool = True) -> Iterator[object]:
    """`Database.writing`, in which the coordinator may be killed."""
    plan = _plans.get(threading.get_ident())
    if plan is not None:
        plan.n_writes -= 1
    place = plan.place if plan is not None and plan.n_writes == 0 else None
    if place == "before":
        raise Killed
    with _write(database, durably=durably) as connection:
        yield connection
        if place == "inside":
            raise Killed
    if place == "after":
        raise Killed


@contextmanager
def leased(*arguments: object, **options: object) -> Iterator[Lease | None]:
    """`leased`, which remembers the lease of the thread."""
    with _leased(*arguments, **options) as lease:
        _leases[threading.get_ident()] = lease
        yield lease


class SteppedSearch:
    """A search that runs a study until its next wait for messages at each step.

    Attributes:
        error: The exception that has ended it; None while it runs, and after an orderly end.
    """

    def __init__(self, plan: Plan, is_protected: bool = True) -> None:
        self.link, self.request = SteppedLink(is_protected), StopRequest()
        self.error: BaseException | None = None
        self._plan, self._ident = plan, 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.link.settle()

    @property
    def is_running(self) -> bool:
        return not self.link.has_ended

    def step(self, *messages: tuple[int, ToCoordinator]) -> None:
        """Gives messages to the coordinator, with the ranks of their senders; it waits for others afterwards."""
        with self.link.changed:
            for rank, message in messages:
                self.link.inbox.append((rank, message))
            self.link.is_woken = True
            self.link.changed.notify_all()
        self.link.settle()

    def kill(self) -> None:
        """Kills the process while it waits for messages."""
        with self.link.changed:
            self.link.is_killed = True
            self.link.changed.notify_all()
        self.link.settle()

    def kill_at(self, plan: KillPlan | None) -> None:
        """Kills the process at a later transaction; None: it is not killed any more."""
        if plan is None:
            _plans.pop(self._ident, None)
        else:
            _plans[self._ident] = plan

    def notice_lease(self) -> None:
        """Renews the lease, as its thread does every few seconds."""
        if (other := _leases[self._ident]._renew(None)) is not None:
            other.close()

    def _run(self) -> None:
        global next_plan
        self._ident = threading.get_ident()
        self.kill_at(next_plan)
        next_plan = None
        try:
            module.run_coordinator(self._plan, self.link, self.request, itertools.count(), None)
        except BaseException as error:  # noqa: BLE001 - the test judges it
            self.error = error
        finally:
            _plans.pop(self._ident, None)
            with self.link.changed:
                self.link.has_ended = True
                self.link.changed.notify_all()
