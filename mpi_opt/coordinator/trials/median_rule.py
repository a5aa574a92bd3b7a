"""The median stopping rule (Golovin et al., KDD 2017, section 3.2.2), with any strategy (``search.pruning: median``).

A trial is stopped at a step if its best value so far is worse than the median, over the complete trials, of the mean of
their values up to this step.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import final

from mpi_opt.store.records import CurveRecord

MIN_COMPLETE = 5
"""No trial is stopped before this number of complete ones have reached its step."""
FIRST_STEPS = 1
"""Number of first values of a trial that never stop it: a learning rate that warms up makes them bad."""
MAX_STEPS = 1000
"""The largest number of steps whose means are kept sorted; those of other steps are collected again when needed."""


@dataclass
class _Running:
    """What an attempt has reported: steps and costs, and the smallest cost."""

    values: list[tuple[int, float]] = field(default_factory=list)
    lowest: float = math.inf


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
class MedianRule:
    """The intermediate values of trials, as costs to be minimised. A report costs no more with more complete trials.

    Args:
        metric: The name with which the store has the values.
        sign: The factor that turns them into costs.
    """

    def __init__(self, metric: str, sign: float) -> None:
        self._metric, self._sign = metric, sign
        self._running: dict[tuple[int, int], _Running] = {}  # (trial, attempt) ->
        self._complete: list[_Complete] = []
        self._means: dict[int, list[float]] = {}  # step -> sorted means of the complete trials; used last at the end

    def prunes(self, key: tuple[int, int], step: int, cost: float) -> bool:
        """Records an intermediate cost of the attempt `key` of a trial; returns whether the trial is stopped."""
        cost = math.inf if math.isnan(cost) else cost
        running = self._running.setdefault(key, _Running())
        running.values.append((step, cost))
        running.lowest = min(running.lowest, cost)
        if len(running.values) <= FIRST_STEPS or len(self._complete) < MIN_COMPLETE:
            return False
        means = self._means_at(step)
        if len(means) < MIN_COMPLETE:
            return False
        middle = len(means) // 2
        return running.lowest > 0.5 * (means[middle] + means[-1 - middle])

    def carry(self, key: tuple[int, int], to: tuple[int, int]) -> None:
        """Makes the values of an attempt those of the attempt that continues it."""
        if (running := self._running.pop(key, None)) is not None:
            self._running[to] = running

    def end(self, key: tuple[int, int], *, is_complete: bool) -> None:
        """Forgets an attempt, or compares later trials with it if it is complete."""
        if (running := self._running.pop(key, None)) and is_complete:
            self._add(running.values)

    def resume(self, curves: Iterable[CurveRecord], complete: Set[int]) -> None:
        """Starts again with the values of complete trials in the store, of the first fold."""
        self._complete.clear()
        self._means.clear()
        for curve in curves:
            if curve.number in complete and curve.fold == 0 and curve.name == self._metric:
                self._add([(step, self._sign * value) for step, value in curve.points() if not math.isnan(value)])

    def _add(self, values: list[tuple[int, float]]) -> None:
        steps, means, total = [], list[float](), 0.0
        for index, (step, cost) in enumerate(sorted(values), 1):
            total += cost
            steps.append(step)
            means.append(math.inf if math.isnan(total) else total / index)  # NaN, of -inf and inf, has no order
        if steps:
            trial = _Complete(steps, means)
            self._complete.append(trial)
            for step, of_others in self._means.items():
                if (mean := trial.mean_at(step)) is not None:
                    insort(of_others, mean)

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
