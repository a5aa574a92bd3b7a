"""The limits of a search. They do not read a clock: the caller passes the time."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from mpi_opt.core.figures_of_merit import FiguresOfMerit, Target
from mpi_opt.core.trial import Outcome, TrialRecord

FRACTION_IN_TIME = 0.9
"""A trial starts if at least this fraction of the earlier trials, started now, would end before the time limit."""

MAX_FIRST_FAILURES = 10
"""A search ends if its first `MAX_FIRST_FAILURES` trials all failed, because all others would probably fail as well."""

MAX_CRASHES = 3
"""A trial is assumed to be the cause if a search was killed this number of times while it was running."""


@dataclass(frozen=True)
class SearchLimits:
    """The limits of a search.

    Attributes:
        trials: Number of trials of the study, including failed ones.
        target: The search stops when a trial is this good; None for no target.
        figures_of_merit: The study's figures of merit.
        retries: How often a trial is run again after its ranks were lost.
        timeout_s: Seconds that one trial may take; None for no limit.
    """

    trials: int
    target: Target | None = None
    figures_of_merit: FiguresOfMerit = field(default_factory=FiguresOfMerit)
    retries: int = 1
    timeout_s: float | None = None

    def is_reached(self, ended: TrialRecord | Outcome) -> bool:
        """Whether this trial reaches the target. A pruned one does not: its figure of merit is provisional."""
        return ended.state == "complete" and self.figures_of_merit.is_reached(self.target, ended)

    def is_too_long(self, duration_s: float) -> bool:
        """Whether a trial of this duration exceeds the timeout."""
        return self.timeout_s is not None and duration_s > self.timeout_s


@dataclass
class TimeLimit:
    """The time limit of a run, and the durations of its trials.

    Attributes:
        limit_s: Seconds that this run may take; None for no limit.
    """

    limit_s: float | None
    _durations_s: list[float] = field(default_factory=list)

    def add_duration(self, duration_s: float) -> None:
        """Records the duration of a trial."""
        if self.limit_s is not None:
            insort(self._durations_s, duration_s)

    def has_time_for_one(self, elapsed_s: float) -> bool:
        """Whether a trial that starts now is likely to end in time. True while no duration is known."""
        if self.limit_s is None:
            return True
        ranked = self._durations_s
        likely_s = ranked[min(int(FRACTION_IN_TIME * len(ranked)), len(ranked) - 1)] if ranked else 0.0
        return elapsed_s + likely_s < self.limit_s

    def is_over(self, elapsed_s: float) -> bool:
        """Whether the time limit is reached."""
        return self.limit_s is not None and elapsed_s >= self.limit_s
