"""When a search is over, and when it must not begin another trial. Pure: whoever asks says what time it is."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mpi_opt.core.figures_of_merit import Merits, Target

if TYPE_CHECKING:
    from mpi_opt.core.trial import Outcome, TrialRecord

LIKELY = 0.9
"""A trial is begun before a time limit if it would end in time in this fraction of the cases, going by those so far."""

HOPELESS = 10
"""So many failed trials, and no other, end a search: something is wrong with all of them."""

FATAL = 3
"""A trial that ran each of so many times that a search ended without a word is thought to be what ended it."""


@dataclass(frozen=True)
class Rules:
    """What the user wants.

    Attributes:
        trials: The study gets so many, failed ones included.
        target: Stop when a trial is this good (None: never).
        merits: The study's figures of merit.
        retries: How often a trial is run again after its ranks were lost.
        time_limit_s: Seconds that this run may take (None: any).
        timeout_s: Seconds that one trial may take (None: any).
    """

    trials: int
    target: Target | None = None
    merits: Merits = field(default_factory=Merits)
    retries: int = 1
    time_limit_s: float | None = None
    timeout_s: float | None = None

    def is_reached(self, ended: TrialRecord | Outcome) -> bool:
        """Whether this trial is good enough to stop."""
        return self.merits.is_reached(self.target, ended)

    def is_too_long(self, duration_s: float) -> bool:
        """Whether a trial that takes so long should have been ended."""
        return self.timeout_s is not None and duration_s > self.timeout_s


@dataclass
class TimeLimit:
    """Whether there is still time for a trial.

    Attributes:
        limit_s: Seconds that this run may take; None: any.
    """

    limit_s: float | None
    _durations_s: list[float] = field(default_factory=list)

    def take(self, duration_s: float) -> None:
        """Learns how long a trial took."""
        if self.limit_s is not None:
            insort(self._durations_s, duration_s)

    def has_time_for_one(self, elapsed_s: float) -> bool:
        """Whether a trial that begins now is likely to end in time; the first ones are begun on trust."""
        if self.limit_s is None:
            return True
        ranked = self._durations_s
        likely_s = ranked[min(int(LIKELY * len(ranked)), len(ranked) - 1)] if ranked else 0.0
        return elapsed_s + likely_s < self.limit_s

    def is_over(self, elapsed_s: float) -> bool:
        """Whether the time is up."""
        return self.limit_s is not None and elapsed_s >= self.limit_s
