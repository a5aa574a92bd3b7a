"""Fakes with the interfaces of the real classes, for tests of the classes that use them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mpi_opt.core.trial import Failed, Outcome, Proposal, TrialRecord
from mpi_opt.errors import UserError
from mpi_opt.messages.messages import (
    Assignment,
    CoordinatorLink,
    Disband,
    Dismissal,
    EndProcess,
    FromCoordinator,
    Join,
    LeftBlock,
    Ready,
    Stop,
    ToCoordinator,
)
from mpi_opt.store.records import AttemptRecord
from mpi_opt.strategies.strategy import Strategy


class ListedStrategy(Strategy):
    """Proposes x = 0, 1, 2, … and records the reported outcomes."""

    def __init__(self, n: int = 10**6) -> None:
        self.left, self.next, self.told, self.pending = n, 0, [], []

    def ask(self, count: int) -> list[Proposal]:
        assert count > 0, "a strategy is asked for at least one proposal"
        numbers = range(self.next, self.next + min(count, self.left))
        self.next, self.left = numbers.stop, self.left - len(numbers)
        return [Proposal(number, {"x": number}) for number in numbers]

    @property
    def finished(self) -> bool:
        return self.left == 0

    def tell(self, proposal: Proposal, outcome: float | Failed) -> None:
        self.told.append((proposal.number, outcome))

    def resume(self, told, pending=()) -> None:
        for proposal, outcome in told:
            self.tell(proposal, outcome)
        self.pending = list(pending)
        self.next = len(self.told) + len(self.pending)


class ListedStore:
    """A store that keeps its rows in lists, with the part of the interface that the coordinator uses."""

    def __init__(self, records: list[TrialRecord] = ()) -> None:
        self.records, self.started, self.finished, self.requeued, self.events = list(records), [], [], [], []
        self.details: list[str] = []
        self.attempted: list[AttemptRecord] = []
        self.chosen: list[dict[str, Any]] = []

    def hints(self, study_id):
        return []

    def trials(self, study_id: int, states=None, numbers=None) -> list[TrialRecord]:
        found = [record for record in self.records if numbers is None or record.number in numbers]
        return [record for record in found if states is None or record.state in states]

    def attempts(self, study_id: int, numbers) -> list[AttemptRecord]:
        return [one for one in self.attempted if one.number in numbers]

    def ended_trials(self, study_id: int) -> list[TrialRecord]:
        return [record for record in self.records if record.state in ("complete", "failed", "pruned")]

    def start(self, study_id: int, starts) -> None:
        self.started += starts

    def finish(self, study_id: int, finished) -> None:
        self.finished += finished

    def record(self, study_id: int, ended, started=()) -> None:
        if started:  # first, because a conflict must leave the outcomes out
            self.start(study_id, started)
        if ended:
            self.finish(study_id, ended)

    def requeue(self, study_id: int, numbers, error: str, outcome: str = "lost", at: str | None = None) -> None:
        self.requeued += numbers

    def mark_lost(self, study_id: int, killed) -> None:
        pass

    def choose(self, study_id: int, values) -> None:
        self.chosen.append(values)

    def event(self, study_id: int, kind: str, detail: str) -> None:
        assert detail, f"an event without details: {kind}"
        self.events.append(kind)
        self.details.append(detail)


SILENCE_S = 5.0
"""A test fails if its search waits this long and no message can come, in seconds."""


class ScriptedLink(CoordinatorLink):
    """Blocks that answer at once, in an order that the test determines.

    Args:
        run: Returns the outcome of a trial.
        order: Which of the running trials ends next, by its place in the list of running ones.
        error: The message of every block instead of being ready.

    Attributes:
        joined: The blocks that were formed.
        stopped: Rank and number of the trial of each message `Stop`.
    """

    def __init__(
        self,
        run: Callable[[Assignment], Outcome],
        order: Callable[[list[int]], int] = lambda numbers: 0,
        error: UserError | None = None,
    ) -> None:
        self.run, self.order, self.error = run, order, error
        self.waiting: list[tuple[int, ToCoordinator]] = []
        self.assigned: dict[int, tuple[int, Assignment]] = {}
        self.log: list[str] = []
        self.joined: list[int] = []
        self.stopped: list[tuple[int, int]] = []
        self.called: list[tuple[int, str]] = []
        self.dismissed: set[int] = set()
        self.spoke_at_s = time.monotonic()

    is_protected = True

    def send(self, rank: int, message: FromCoordinator) -> None:
        match message:
            case Join():
                if rank == message.ranks[0]:
                    self.joined.append(message.block)
                    self.waiting.append((rank, Ready(message.block, f"host{message.block}", self.error)))
            case Assignment():
                assert rank not in [busy for busy, _ in self.assigned.values()], "a busy block got a trial"
                self.assigned[message.number] = (rank, message)
                self.log.append(f"start {message.number}")
            case Stop():
                self.stopped.append((rank, message.number))
            case Disband() | EndProcess():
                self.call_watchdog(rank, message)
            case Dismissal():
                self.dismissed.add(rank)

    def call_watchdog(self, rank: int, message: Disband | EndProcess) -> None:
        self.called.append((rank, type(message).__name__))
        if isinstance(message, Disband):
            self.assigned = {n: (busy, one) for n, (busy, one) in self.assigned.items() if busy != rank}
            self.waiting.append((rank, LeftBlock(message.block)))

    def receive(self, timeout_s: float, is_interrupted: Callable[[], bool]) -> list[tuple[int, ToCoordinator]]:
        if not self.waiting and not self.assigned:
            assert time.monotonic() - self.spoke_at_s < SILENCE_S, "the search waits for ever"
            return []
        self.spoke_at_s = time.monotonic()
        if self.waiting:
            messages, self.waiting = self.waiting, []
            return messages
        numbers = list(self.assigned)
        number = numbers[self.order(numbers)]
        rank, assignment = self.assigned.pop(number)
        self.log.append(f"end {number}")
        return [(rank, self.run(assignment))]
