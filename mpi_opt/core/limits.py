"""The limits of a search and of its trials, as plain values. No clock is read here."""

from __future__ import annotations

from dataclasses import dataclass, field

from mpi_opt.core.figures_of_merit import FiguresOfMerit, Target
from mpi_opt.core.trial import Outcome, TrialRecord

MAX_FIRST_FAILURES = 10
"""A search ends after this number of trials that failed for one reason if none of the study has succeeded and none
runs: others would fail as well."""

MIN_VALUES_WITH_NOISE = 10
"""Fewest values from which noise is distinguished from the shape of the function."""

MAX_CRASHES = 3
"""A trial is assumed to be the cause if a search was killed this number of times while it was running."""


@dataclass(frozen=True)
class SearchLimits:
    """The limits of a search.

    Attributes:
        n_trials: Number of trials of the study, including failed ones.
        target: The search stops when a trial is this good; None for no target.
        figures_of_merit: The study's figures of merit.
        retries: How often a trial is run again after its ranks were lost.
        timeout_s: Seconds that one trial may take; None for no limit.
    """

    n_trials: int
    target: Target | None = None
    figures_of_merit: FiguresOfMerit = field(default_factory=FiguresOfMerit)
    retries: int = 1
    timeout_s: float | None = None

    def reaches_target(self, ended: TrialRecord | Outcome) -> bool:
        """Whether this trial reaches the target. A pruned one does not: its figure of merit is provisional."""
        return ended.state == "complete" and self.figures_of_merit.reaches(self.target, ended)

    def is_too_long(self, duration_s: float) -> bool:
        """Whether a trial of this duration exceeds the timeout."""
        return self.timeout_s is not None and duration_s > self.timeout_s
