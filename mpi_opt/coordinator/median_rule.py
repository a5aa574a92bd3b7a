"""The median stopping rule (Golovin et al., KDD 2017, section 3.2.2), with any strategy (``search.pruning: median``).

A trial is stopped at a step if its best value so far is worse than the median, over the complete trials, of the mean of
their values up to this step.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Set
from typing import final

from mpi_opt.store.records import CurveRecord

MIN_COMPLETE = 5
"""No trial is stopped before this number of complete ones have reached its step."""
FIRST_STEPS = 1
"""Number of first values of a trial that never stop it: a learning rate that warms up makes them bad."""


@final
class MedianRule:
    """The intermediate values of trials, as costs to be minimised.

    Args:
        metric: The name with which the store has the values.
        sign: The factor that turns them into costs.
    """

    def __init__(self, metric: str, sign: float) -> None:
        self._metric, self._sign = metric, sign
        self._running: dict[tuple[int, int], list[tuple[int, float]]] = {}  # (trial, attempt) -> its steps and costs
        self._complete: list[tuple[list[int], list[float]]] = []  # steps, and means of the costs up to each of them

    def prunes(self, key: tuple[int, int], step: int, cost: float) -> bool:
        """Records an intermediate cost of the attempt `key` of a trial; returns whether the trial is stopped."""
        values = self._running.setdefault(key, [])
        values.append((step, math.inf if math.isnan(cost) else cost))
        means = [mean for steps, means in self._complete if steps[-1] >= step and (mean := _at(steps, means, step))]
        if len(values) <= FIRST_STEPS or len(means) < MIN_COMPLETE:
            return False
        return min(cost for _, cost in values) > statistics.median(mean for (mean,) in means)

    def end(self, key: tuple[int, int], *, is_complete: bool) -> None:
        """Forgets an attempt, or compares later trials with it if it is complete."""
        if (values := self._running.pop(key, None)) and is_complete:
            self._add(values)

    def resume(self, curves: Iterable[CurveRecord], complete: Set[int]) -> None:
        """Starts again with the values of complete trials in the store, of the first fold."""
        self._complete.clear()
        for curve in curves:
            if curve.number in complete and curve.fold == 0 and curve.name == self._metric:
                self._add([(step, self._sign * value) for step, value in curve.points() if not math.isnan(value)])

    def _add(self, values: list[tuple[int, float]]) -> None:
        steps, means, total = [], list[float](), 0.0
        for index, (step, cost) in enumerate(sorted(values), 1):
            total += cost
            steps.append(step)
            means.append(total / index)
        if steps:
            self._complete.append((steps, means))


def _at(steps: list[int], means: list[float], step: int) -> tuple[float, ...]:
    """The mean at the last of `steps` that is not after `step`; empty without one."""
    index = bisect_right(steps, step)
    return (means[index - 1],) if index else ()
