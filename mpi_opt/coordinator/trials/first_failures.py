"""Decides whether a search in which no trial has succeeded yet should go on.

Trials that fail usually end sooner than others. At any time, the trials that have ended are therefore mostly failed
ones, and their number says little while others run: of 64 trials of which 15 % fail at once, the first ten to end have
all failed. A verdict therefore waits until no trial runs. New trials start meanwhile only if some of the running ones
have run longer than failed trials do, so that a search whose trials all fail does not use up its study.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable

from mpi_opt.core.limits import MAX_FIRST_FAILURES, reason_of
from mpi_opt.core.trial import Outcome

MANY_REASONS = 3
"""Failures for different reasons end a search once there are `MANY_REASONS` × `MAX_FIRST_FAILURES` of them."""

SURVIVAL, MIN_SURVIVAL_S = 1.2, 10.0
"""A running trial survives if it has run for `SURVIVAL` × the median duration of the failed ones, and at least for
`MIN_SURVIVAL_S` seconds: trials that fail for the same reason take about the same time."""


class FirstFailures:
    """The failed trials of a search, as long as none of the study has succeeded.

    Attributes:
        n: Number of trials that have failed in this search.
    """

    def __init__(self) -> None:
        self.n = 0
        self._reasons: Counter[str] = Counter()
        self._durations_s: list[float] = []

    def add(self, outcome: Outcome) -> None:
        """Records a trial that has failed."""
        self.n += 1
        self._reasons[reason_of(outcome.error)] += 1
        self._durations_s.append(outcome.duration_s)

    @property
    def are_enough(self) -> bool:
        """Whether further trials would probably fail as well: many have failed for one reason, or very many have."""
        most = max(self._reasons.values(), default=0)
        return most >= MAX_FIRST_FAILURES or self.n >= MANY_REASONS * MAX_FIRST_FAILURES

    def allow_another(self, ages_s: Iterable[float]) -> bool:
        """Whether another trial may start while trials run, `ages_s` seconds ago each.

        Each running trial that survives allows as many failures as the first trials may have.
        """
        if not self.are_enough:
            return True
        survival_s = max(SURVIVAL * statistics.median(self._durations_s), MIN_SURVIVAL_S)
        n_surviving = sum(age_s > survival_s for age_s in ages_s)
        return self.n < MAX_FIRST_FAILURES * (1 + n_surviving)

    def __str__(self) -> str:
        """``the first 12 trials all failed``, and how often for which reason if there are several."""
        if self.n == 1:
            return "the first trial failed"
        most = self._reasons.most_common(MANY_REASONS)
        counts = [f"{count} × {reason}" for reason, count in most]
        if n_others := self.n - sum(count for _, count in most):
            counts.append(f"{n_others} × other reasons")
        return f"the first {self.n} trials all failed" + (f" ({', '.join(counts)})" if len(counts) > 1 else "")
