"""The trials of a study that wait or run, and the number of those that have begun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mpi_opt.coordinator.intermediate_values import IntermediateValues
from mpi_opt.core.limits import SearchLimits
from mpi_opt.core.trial import Outcome, Proposal
from mpi_opt.study.past_trials import PastTrials

STRANDED_S = 10.0
"""Seconds in which a block must answer after a rank of it has failed. Its other ranks may be waiting for that one."""


@dataclass(slots=True)
class RunningTrial:
    """A trial on a block. Times are in seconds by the clock of the pool.

    Attributes:
        proposal: The proposal, as the strategy made it.
        block: The index of the block.
        attempt: The number of the attempt, from 1.
        values: The intermediate values.
        started_at_s: When the trial started.
        due_s: When the block is given up if it has not answered.
        error: The error of a rank on which the trial has failed, while other ranks may wait for it; None if none has.
        is_requeued: Whether the trial is queued in the store, because the search ends or its host has failed. A
            workload system may take it.
        is_held: Whether it has failed and left its block without a verdict (see `mpi_opt.coordinator.host_faults`).
    """

    proposal: Proposal
    block: int
    attempt: int
    values: IntermediateValues
    started_at_s: float
    due_s: float = float("inf")
    error: str | None = None
    is_requeued: bool = False
    is_held: bool = False

    @property
    def number(self) -> int:
        """The number of the trial."""
        return self.proposal.number

    def failure(self, now_s: float, limits: SearchLimits, why: str) -> str | None:
        """The error of a trial that has raised an exception or exceeds its timeout; None if it may run again.

        Args:
            why: The reason why the trial has not answered.
        """
        if self.error is None and limits.is_too_long(now_s - self.started_at_s):
            return f"the trial took longer than trial.timeout, {limits.timeout_s:g} s: {why}"
        return self.error


@dataclass
class UnfinishedTrials:
    """The trials of a study that have not ended, and the number of those that have begun.

    Attributes:
        n_trials: Number of trials of the study.
        waiting: Proposals to run before the strategy is asked for others, with the number of the attempt.
        running: Trial number -> the trial on its block.
        held: Trials that have failed, perhaps because of their hosts, with their outcomes. The store has them queued.
        n_begun: Number of trials that run or have ended.
    """

    n_trials: int
    waiting: list[tuple[Proposal, int]] = field(default_factory=list)
    running: dict[int, RunningTrial] = field(default_factory=dict)
    held: list[tuple[RunningTrial, Outcome]] = field(default_factory=list)
    n_begun: int = 0

    @property
    def has_begun_all(self) -> bool:
        """Whether all trials of the study run or have ended."""
        return self.n_begun >= self.n_trials and not (self.waiting or self.held)

    def resume(self, past: PastTrials) -> None:
        """Queues the unfinished trials of the study, except those that run on a block or in a workload system."""
        running = past.external | set(self.running)
        self.waiting = [
            (record.proposal, record.attempts + 1) for record in past.unfinished if record.number not in running
        ]
        self.held.clear()  # they are queued in the store
        self.n_begun = len(past.ended) + len(running)

    def next(self, count: int, ask: Callable[[int], list[Proposal]]) -> list[tuple[Proposal, int]]:
        """At most `count` trials to start: waiting ones first, then new ones from `ask`. They count as begun."""
        first, self.waiting = self.waiting[:count], self.waiting[count:]
        wanted = min(count - len(first), self.n_trials - self.n_begun - len(first))
        asked = ask(wanted) if wanted > 0 else []
        self.n_begun += len(first) + len(asked)
        return first + [(proposal, 1) for proposal in asked]

    def put_back(self, proposal: Proposal, attempt: int) -> None:
        """Queues a trial again whose attempt has ended without a result, on a block or in a workload system."""
        self.running.pop(proposal.number, None)
        self.waiting.append((proposal, attempt + 1))
        self.n_begun -= 1

    def hold(self, running: RunningTrial, outcome: Outcome) -> None:
        """Takes a trial off its block that has failed, perhaps because of its host."""
        del self.running[running.number]
        running.is_held = True
        self.held.append((running, outcome))

    def put_held_back(self) -> None:
        """Queues the held trials again: their hosts have failed."""
        held, self.held = self.held, []
        for running, _ in held:
            self.put_back(running.proposal, running.attempt)

    def take_held(self) -> list[tuple[RunningTrial, Outcome]]:
        """The held trials, which have failed because of themselves."""
        held, self.held = self.held, []
        return held

    def abandon(self, block: int, number: int, error: str, now_s: float) -> None:
        """Records that a trial has failed on one rank. The block then has `STRANDED_S` to answer."""
        running = self.running.get(number)
        if running is not None and running.block == block:
            running.error, running.due_s = error, min(running.due_s, now_s + STRANDED_S)

    def running_on(self, block: int) -> RunningTrial | None:
        """The trial that runs on a block; None if there is none."""
        return next((running for running in self.running.values() if running.block == block), None)
