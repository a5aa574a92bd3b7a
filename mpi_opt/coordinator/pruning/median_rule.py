"""The median stopping rule (Golovin et al., KDD 2017, section 3.2.2), with any strategy (``search.pruning: median``).

A trial is stopped at a step if its best value so far is worse than the median, over the complete trials, of the mean of
their values up to this step.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import final

from mpi_opt.coordinator.pruning.pruning_rule import PruningRule, Values
from mpi_opt.core.trial import Proposal

MIN_COMPLETE = 5
"""No trial is stopped before this number of complete ones have reached its step."""
FIRST_STEPS = 1
"""Number of first values of a trial that never stop it: a learning rate that warms up makes them bad."""
MAX_STEPS = 1000
"""The largest number of steps whose means are kept sorted; those of other steps are collected again when needed."""


@dataclass(frozen=True)
class _Complete:
    """The steps of a complete trial, sorted, and the mean of its costs up to each of them."""

    steps: list[int]
    means: list[float]

    def mean_at(self, step: int) -> float | None:
        """The mean of the costs up to `step`; None if the trial began later or ended before."""
        index = bisect_right(self.steps, step)
        return self.means[index - 1] if index and self.steps[-1] >= step else None


@final
class MedianRule(PruningRule):
    """Keeps the means of complete trials sorted, so that a value costs no more with more of them."""

    def __init__(self, metric: str, sign: float) -> None:
        super().__init__(metric, sign)
        self._complete: list[_Complete] = []
        self._means: dict[int, list[float]] = {}  # step -> sorted means of the complete trials; used last at the end

    def is_bad(self, proposal: Proposal, values: Values) -> bool:
        if len(values) <= FIRST_STEPS or len(self._complete) < MIN_COMPLETE:
            return False
        means = self._means_at(values[-1][0])
        if len(means) < MIN_COMPLETE:
            return False
        middle = len(means) // 2
        median = 0.5 * (means[middle] + means[-1 - middle])
        return all(cost > median for _, cost in reversed(values))  # of a good trial, one of the last values decides

    def learn(self, proposal: Proposal, values: Values, cost: float | None) -> None:
        if cost is None:
            return
        steps, means, total = [], list[float](), 0.0
        for index, (step, value) in enumerate(values, 1):
            total += value
            steps.append(step)
            means.append(math.inf if math.isnan(total) else total / index)  # NaN, of -inf and inf, has no order
        trial = _Complete(steps, means)
        self._complete.append(trial)
        for step, of_others in self._means.items():
            if (mean := trial.mean_at(step)) is not None:
                insort(of_others, mean)

    def forget(self) -> None:
        self._complete.clear()
        self._means.clear()

    def _means_at(self, step: int) -> list[float]:
        """The means of the complete trials at a step, sorted."""
        means = self._means.pop(step, None)
        if means is None:
            found = (trial.mean_at(step) for trial in self._complete)
            means = sorted(mean for mean in found if mean is not None)
            if len(self._means) >= MAX_STEPS:
                del self._means[next(iter(self._means))]
        self._means[step] = means
        return means
