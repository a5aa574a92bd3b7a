"""The limits of a search and of its trials, as plain values. No clock is read here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mpi_opt.core.figures_of_merit import FiguresOfMerit, Target
from mpi_opt.core.trial import Outcome, TrialRecord

MAX_FIRST_FAILURES = 10
"""A search ends after this number of trials that failed for one reason if none of the study has succeeded and none
runs: others would fail as well."""

MIN_VALUES_WITH_NOISE = 10
"""Fewest values from which noise is distinguished from the shape of the function."""

MAX_CRASHES, MAX_CRASHES_PROTECTED = 3, 10
"""A trial is assumed to be the cause if a search was killed this number of times within `CHECKPOINT_S` of the trial's
start. The larger number is for searches that survive the loss of a trial's processes: they are rarely killed by one."""

NUMBER = r"0x[0-9a-fA-F]+|(?:(?<!\w)[+-])?(?:\d+(?:[.,]\d+)*\.?(?:[eE][+-]?\d+)?|\b(?i:nan|inf|infinity)\b)"
"""A number in the text of an error, with its sign; a minus after a letter or digit is none. Or an
address in memory."""


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


def reason_of(error: str | None) -> str:
    """The first line of an error without its rank and host, and with # for numbers, which differ between trials."""
    first_line = (error or "").partition("\n")[0]
    without_place = re.sub(r"^rank \d+ on \S+: ", "", first_line)
    without_numbers = re.sub(NUMBER, "#", without_place)
    # NumPy fills numbers of an array with spaces to the same width
    return re.sub(r"\s+(?=[,\])\s])|(?<=[\[(])\s+", "", without_numbers)[:120]
