"""The progress of a search as counts, in memory that does not grow with the number of trials."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mpi_learn.cli.terminal import Trend, duration
from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.core.counted import plural
from mpi_opt.core.figures_of_merit import rank_of_length
from mpi_opt.core.search_space.space import Parameters
from mpi_opt.core.trial import Outcome, Proposal, State, TrialRecord
from mpi_opt.study.study import Study


@dataclass
class ProgressCounts:
    """The progress of a search.

    Attributes:
        trials: The number of trials of the study.
        maximize: Whether larger figures of merit are better.
        blocks: Block -> whether it still exists.
        ended: State -> the number of trials that ended in this state, earlier runs included.
        busy: Block -> the number of its trial.
        best: The best figure of merit so far, among the trials that were trained for the most epochs.
        best_number: The number of the best trial.
        best_parameters: The hyperparameters of the best trial.
        trend: The best figure of merit after each complete trial.
        last_failure: The last failed trial and the first line of its error.
        began: The start of the first trial of this run, by `clock`; None before it.
        n_ended_here: The number of trials that ended in this run.
        has_ended: Whether the search has ended.
        is_finished: Whether the study is finished then.
        strategy: The name of the strategy.
        clock: Returns the time in seconds.
    """

    trials: int
    maximize: bool
    blocks: dict[int, bool] = field(default_factory=dict)
    ended: Counter[State] = field(default_factory=Counter)
    busy: dict[int, int] = field(default_factory=dict)
    best: float | None = None
    best_number: int | None = None
    best_parameters: Parameters = field(default_factory=dict)
    trend: Trend = field(default_factory=Trend)
    last_failure: str = ""
    began: float | None = None
    n_ended_here: int = 0
    has_ended: bool = False
    is_finished: bool = False
    strategy: str = ""
    clock: Callable[[], float] = time.monotonic
    _best_rank: tuple[float, float] = (math.inf, math.inf)

    @classmethod
    def of(cls, configuration: StudyConfiguration) -> ProgressCounts:
        """The counts of a search that has not begun."""
        search = configuration.search
        return cls(search.trials, configuration.figures_of_merit().sign < 0, strategy=search.strategy)

    @property
    def n_blocks(self) -> int:
        """The number of blocks that still exist."""
        return sum(self.blocks.values())

    @property
    def has_begun(self) -> bool:
        """Whether the search has a block or a trial: False if it failed before its start."""
        return bool(self.blocks or self.n_ended)

    @property
    def n_ended(self) -> int:
        """The number of finished trials."""
        return self.ended.total()

    @property
    def pace_s(self) -> float | None:
        """The mean time between the ends of two trials, in seconds; None before the first end."""
        if not self.n_ended_here or self.began is None:
            return None
        return max(self.clock() - self.began, 1e-9) / self.n_ended_here

    @property
    def left_s(self) -> float | None:
        """The expected time for the remaining trials, in seconds; None before the first trial has ended."""
        return None if self.pace_s is None else self.pace_s * max(self.trials - self.n_ended, 0)

    def resume(self, ended: Sequence[TrialRecord]) -> None:
        """Counts the trials of earlier runs, in the order in which they ended."""
        self.ended = Counter(trial.state for trial in ended)
        for trial in ended:
            if trial.state == "complete":
                self._note_best(trial.figure_of_merit, trial.proposal)

    def add_block(self, block: int) -> None:
        """Counts a block that is ready for trials."""
        self.blocks[block] = True

    def begin(self, block: int, number: int) -> None:
        """Counts a trial that starts."""
        self.busy[block] = number
        if self.began is None:
            self.began = self.clock()

    def end(self, block: int, outcome: Outcome, proposal: Proposal) -> None:
        """Counts a trial that has ended."""
        self.busy.pop(block, None)
        self.n_ended_here += 1
        self.ended[outcome.state] += 1
        if outcome.state == "complete":
            self._note_best(outcome.figure_of_merit, proposal)
        elif outcome.state == "failed":
            reason = next(iter((outcome.error or "").splitlines()), "")
            self.last_failure = f"trial {outcome.number}: {reason}"

    def requeue(self, block: int) -> None:
        """Counts a trial that is queued again; its block is free."""
        self.busy.pop(block, None)

    def lose(self, block: int) -> None:
        """Records that a block is lost or retired."""
        self.blocks[block] = False
        self.busy.pop(block, None)

    def dissolve(self, block: int) -> None:
        """Forgets a block whose ranks form another one."""
        self.blocks.pop(block, None)
        self.busy.pop(block, None)

    def take_result(self, study: Study) -> None:
        """Records whether the study is finished after the search; to be called before `conclude`."""
        self.is_finished = study.is_finished

    def conclude(self) -> None:
        """Records that the search has ended: trials that it leaves are queued again."""
        self.has_ended = True
        self.busy.clear()

    def _note_best(self, value: float | None, proposal: Proposal) -> None:
        if value is None:
            return
        rank = rank_of_length(proposal.budget, self.strategy), -value if self.maximize else value
        if rank < self._best_rank:
            self._best_rank, self.best = rank, value
            self.best_number, self.best_parameters = proposal.number, proposal.parameters
        self.trend.take(value if self.best is None else self.best)

    def __str__(self) -> str:
        parts = [f"{self.n_ended}/{self.trials} {plural('trial', self.trials)}"]
        if not self.has_ended:
            parts.append(f"{len(self.busy)}/{self.n_blocks} {plural('block', self.n_blocks)} busy")
        parts += [f"{n} {state}" for state in ("failed", "pruned") if (n := self.ended[state])]
        if self.best is not None:
            parts.append(f"best {self.best:.6g} (trial {self.best_number})")
        if self.left_s is not None and not self.has_ended:
            parts.append(f"{duration(self.left_s)} left")
        return ", ".join(parts)
