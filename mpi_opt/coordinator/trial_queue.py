"""Which trials wait, which run, and how many there have been. Pure bookkeeping of the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mpi_opt.coordinator.fold_reports import Reports
from mpi_opt.core.trial import Proposal, TrialRecord
from mpi_opt.study.open_study import Past, proposal_of

STRANDED_S = 10.0
"""A block has so long to answer when one of its ranks has failed and cannot free the others, in seconds."""


@dataclass(slots=True)
class Running:
    """A trial on a block.

    Attributes:
        proposal: What was asked for.
        block: Where it runs.
        attempt: 1-based.
        reports: Its intermediate values.
        since: When it began, in seconds, by the clock of the pool.
        until: When its block must have answered.
        error: Why it has failed, where a rank said so that cannot free the others of its block.
    """

    proposal: Proposal
    block: int
    attempt: int
    reports: Reports
    since: float
    until: float = float("inf")
    error: str | None = None


@dataclass
class TrialQueue:
    """The trials of a study that are not over, and the count of all.

    Attributes:
        trials: How many the study gets in all.
        waiting: Proposals to run before new ones are asked for, with the number of the attempt.
        running: Trial number -> the trial on its block.
        n_begun: Trials that run or are over.
    """

    trials: int
    waiting: list[tuple[Proposal, int]] = field(default_factory=list)
    running: dict[int, Running] = field(default_factory=dict)
    n_begun: int = 0

    @property
    def is_done(self) -> bool:
        """Whether all trials are over, or running."""
        return self.n_begun >= self.trials and not self.waiting

    def take_up(self, past: Past) -> None:
        """What an earlier run left unfinished comes first; what runs, here or elsewhere, goes on."""
        going_on = past.outside | set(self.running)
        self.waiting = [
            (proposal_of(record), record.attempts + 1) for record in past.unfinished if record.number not in going_on
        ]
        self.n_begun = len(past.ended) + len(going_on)

    def next(self, count: int, ask: Callable[[int], list[Proposal]]) -> list[tuple[Proposal, int]]:
        """At most `count` trials to begin now: those that wait, then as many new ones as the study still gets."""
        first, self.waiting = self.waiting[:count], self.waiting[count:]
        wanted = min(count - len(first), self.trials - self.n_begun - len(first))
        asked = ask(wanted) if wanted > 0 else []
        self.n_begun += len(first) + len(asked)
        return first + [(proposal, 1) for proposal in asked]

    def put_back(self, running: Running) -> None:
        """A trial that ran without an end will be run again."""
        del self.running[running.proposal.number]
        self.waiting.append((running.proposal, running.attempt + 1))
        self.n_begun -= 1

    def take_back(self, record: TrialRecord) -> None:
        """A trial that others ran, and gave back, will be run here."""
        self.waiting.append((proposal_of(record), record.attempts + 1))
        self.n_begun -= 1

    def abandon(self, block: int, number: int, error: str, now_s: float) -> None:
        """A trial has failed on a rank of its block, which has a little time from now to answer, if it can."""
        running = self.running.get(number)
        if running is not None and running.block == block:
            running.error, running.until = error, min(running.until, now_s + STRANDED_S)

    def on(self, block: int) -> list[Running]:
        """The trial on a block, if there is one."""
        return [running for running in self.running.values() if running.block == block]
