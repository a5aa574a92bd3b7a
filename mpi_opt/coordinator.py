"""Rank 0 of a search: ask the strategy, dispatch to blocks, receive, record, tell.

The only place that sees both strategy and store. A result is committed before its block gets its next trial. Figures of
merit are in the user's direction everywhere but here, where strategies are told values to minimise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mpi_opt.errors import SearchFailed
from mpi_opt.layout import fold_groups
from mpi_opt.links import Link
from mpi_opt.messages import Assignment, Ready, Report, ToCoordinator
from mpi_opt.store.records import Finish, Start
from mpi_opt.strategies.strategy import Decision, Strategy
from mpi_opt.trial import FINISHED, Failed, Outcome, Proposal, TrialRecord

if TYPE_CHECKING:
    from mpi_opt.store.store import Store

TICK_S = 0.5
"""How often the progress display is refreshed when nothing happens, in seconds."""

HOPELESS = 10
"""So many failed trials, and no other, end a search: something is wrong with all of them."""


@dataclass(frozen=True)
class Rules:
    """When a search is over.

    Attributes:
        trials: The study has so many trials, failed ones included.
        target: A figure of merit is this good (None: never).
        maximize: Whether more is better.
    """

    trials: int
    target: float | None = None
    maximize: bool = False

    @property
    def sign(self) -> float:
        """What turns a figure of merit into a value to minimise, and back."""
        return -1.0 if self.maximize else 1.0

    def is_reached(self, figure_of_merit: float | None) -> bool:
        """Whether this figure of merit is good enough to stop."""
        if self.target is None or figure_of_merit is None:
            return False
        return self.sign * figure_of_merit <= self.sign * self.target


class Progress(Protocol):
    """Who is told what happens, to show it."""

    def ready(self, block: int, n_blocks: int) -> None:
        """A block can take trials."""

    def started(self, block: int, number: int) -> None:
        """A block begins a trial."""

    def finished(self, block: int, outcome: Outcome) -> None:
        """A trial ended."""

    def tick(self) -> None:
        """Time has passed."""


@dataclass(slots=True)
class Running:
    """A trial on a block.

    Attributes:
        proposal: What was asked for.
        block: Where it runs.
        attempt: 1-based.
        reports: step -> fold -> value, until all fold groups have reported the step.
        reporters: The world ranks that report on it.
    """

    proposal: Proposal
    block: int
    attempt: int
    reports: dict[int, dict[int, float]]
    reporters: set[int]


class Coordinator:
    """Runs a study to its end.

    Args:
        link: The way to the blocks.
        strategy: What to ask; knows nothing of earlier runs yet.
        store: Where to record.
        study_id: The study in the store.
        rules: When to end.
        folds: K.
        progress: Whom to tell.
    """

    def __init__(
        self,
        link: Link,
        strategy: Strategy,
        store: Store,
        study_id: int,
        rules: Rules,
        *,
        folds: int = 1,
        progress: Progress | None = None,
    ) -> None:
        self.link, self.strategy, self.store, self.study_id = link, strategy, store, study_id
        self.rules, self.progress = rules, progress
        self.groups = [len(fold_groups(len(ranks), folds)) for ranks in link.blocks]
        self.hosts: dict[int, str] = {}
        self.free: list[int] = []
        self.running: dict[int, Running] = {}
        self.queue: list[tuple[Proposal, int]] = []
        self.n_started = self.n_usable = self.n_failed = 0
        self.is_stopping = False

    def run(self) -> None:
        """The search loop; returns when the study is over and every block has been dismissed.

        Raises:
            UserError: A block could not prepare its objective.
            SearchFailed: The first trials all failed.
        """
        try:
            self._take_up()
            while not self._is_over():
                for rank, message in self.link.receive(TICK_S):
                    self._note(rank, message)
                self._record()
                self._dispatch()
                if self.progress:
                    self.progress.tick()
        finally:
            self.link.dismiss()

    def _take_up(self) -> None:
        """Continues from what the store knows of this study."""
        self._outcomes: list[tuple[Running, Outcome]] = []
        records = {record.number: record for record in self.store.trials(self.study_id)}
        if not records:
            return
        ended = self.store.told_order(self.study_id)
        unfinished = [record for record in records.values() if record.state not in FINISHED]
        running = [record.number for record in unfinished if record.state == "running"]
        if running:
            self.store.requeue(self.study_id, running, "the search ended before the trial did")
        self.strategy.resume(
            [(_proposal(record), self._told(record)) for record in ended], [_proposal(record) for record in unfinished]
        )
        self.queue = [(_proposal(record), record.attempts + 1) for record in unfinished]
        self.n_started = len(ended)
        self.n_usable = sum(record.figure_of_merit is not None for record in ended)
        self.is_stopping = any(self.rules.is_reached(record.figure_of_merit) for record in ended)
        self.store.event(self.study_id, "study_resumed", f"{len(ended)} finished, {len(unfinished)} queued")

    def _told(self, record: TrialRecord) -> float | Failed:
        if record.figure_of_merit is None:
            return Failed(record.error or "failed")
        return self.rules.sign * record.figure_of_merit

    def _is_over(self) -> bool:
        if self.running:
            return False
        if self.is_stopping or (self.n_started >= self.rules.trials and not self.queue):
            return True
        return self.strategy.finished and not self.queue

    def _note(self, rank: int, message: ToCoordinator) -> None:
        if isinstance(message, Outcome):
            running = self.running.pop(message.number)
            self._outcomes.append((running, message))
        elif isinstance(message, Report):
            self.take_report(rank, message)
        elif isinstance(message, Ready):
            if message.error is not None:
                raise message.error
            self.hosts[message.block] = message.hosts
            self.free.append(message.block)
            if self.progress:
                self.progress.ready(message.block, len(self.link.blocks))

    def _record(self) -> None:
        """Commits what has ended, and only then tells the strategy and frees the blocks."""
        outcomes, self._outcomes = self._outcomes, []
        if not outcomes:
            return
        self.store.finish(
            self.study_id, [Finish(outcome, running.attempt, running.block) for running, outcome in outcomes]
        )
        for running, outcome in outcomes:
            self.free.append(running.block)
            self._tell(running.proposal, outcome)
            if self.progress:
                self.progress.finished(running.block, outcome)
        if self.n_failed >= HOPELESS and not self.n_usable:
            raise SearchFailed(f"the first {self.n_failed} trials all failed; the last one:\n{outcomes[-1][1].error}")

    def _tell(self, proposal: Proposal, outcome: Outcome) -> None:
        if outcome.figure_of_merit is None:
            self.n_failed += 1
            self.strategy.tell(proposal, Failed(outcome.error or "failed"))
            return
        self.n_usable += 1
        self.strategy.tell(proposal, self.rules.sign * outcome.figure_of_merit)
        if outcome.state == "complete" and self.rules.is_reached(outcome.figure_of_merit):
            self._stop_all()

    def _stop_all(self) -> None:
        self.is_stopping = True
        for number, running in self.running.items():
            self.link.stop(number, [self.link.blocks[running.block].start, *running.reporters])

    def _dispatch(self) -> None:
        """Gives every free block a trial, as far as there are any."""
        if self.is_stopping or not self.free:
            return
        trials = self._next_trials(len(self.free))
        if not trials:
            self.is_stopping = not self.running  # nothing to wait for: the strategy has no more
            return
        started = [
            Running(proposal, block, attempt, {}, set())
            for (proposal, attempt), block in zip(trials, self.free, strict=False)
        ]
        del self.free[: len(started)]
        self.store.start(self.study_id, [self._start(running) for running in started])
        for running in started:
            proposal = running.proposal
            self.running[proposal.number] = running
            self.link.send(
                running.block,
                Assignment(proposal.number, proposal.parameters, proposal.budget, proposal.resume_from),
            )
            if self.progress:
                self.progress.started(running.block, proposal.number)

    def _next_trials(self, count: int) -> list[tuple[Proposal, int]]:
        queued, self.queue = self.queue[:count], self.queue[count:]
        wanted = min(count - len(queued), self.rules.trials - self.n_started - len(queued))
        asked = self.strategy.ask(wanted) if wanted > 0 else []
        self.n_started += len(queued) + len(asked)
        return queued + [(proposal, 1) for proposal in asked]

    def _start(self, running: Running) -> Start:
        ranks = self.link.blocks[running.block]
        proposal = running.proposal
        return Start(
            number=proposal.number,
            parameters=proposal.parameters,
            attempt=running.attempt,
            block=running.block,
            ranks=f"{ranks.start}-{ranks.stop - 1}" if len(ranks) > 1 else str(ranks.start),
            hosts=self.hosts.get(running.block, ""),
            budget=proposal.budget,
            resume_from=proposal.resume_from,
        )

    def take_report(self, rank: int, report: Report) -> None:
        """Passes a step on to the strategy once all fold groups of the block have reported it."""
        running = self.running.get(report.number)
        if running is None:
            return
        running.reporters.add(rank)
        values = running.reports.setdefault(report.step, {})
        n_groups = self.groups[running.block]
        if len(values) >= n_groups:  # folds in turn: the first one decides
            return
        values[report.fold] = report.value
        if len(values) == n_groups:
            value = self.rules.sign * sum(values.values()) / n_groups
            decision = self.strategy.report(running.proposal, report.step, value)
            if decision is Decision.STOP:
                self.link.stop(report.number, sorted(running.reporters))


def _proposal(record: TrialRecord) -> Proposal:
    return Proposal(record.number, record.parameters, record.budget, record.resume_from)


