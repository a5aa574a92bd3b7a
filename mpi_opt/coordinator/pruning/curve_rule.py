"""Stops trials that are unlikely to become the best one, by a model of learning curves (``search.pruning: curves``).

A trial may be stopped at steps 1 to 8, 10, 12, 15 and so on, each about a quarter larger, counted from 0. The model of
a step (`CurveModel`) predicts from the complete trials how likely a trial ends better than the best of them. A new
trial would do so with some probability as well, and takes some steps. A trial is stopped if it is `PATIENCE` times less
likely per remaining step than a new trial per step.

The rule stops nothing that it would have stopped of the best trials so far: its threshold is at most the probability
that the model of the same step predicts for the best `N_CHECKED` complete trials, each from the others. If good trials
cannot be recognised at a step, none is therefore stopped there. One in `SPARED` trials is trained to its end in any
case, because otherwise the rule would see only trials that it has expected to be good.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from statistics import fmean, median
from typing import final

import numpy as np

from mpi_opt.coordinator.pruning.pruning_rule import PruningRule, Values
from mpi_opt.core.arrays import Floats
from mpi_opt.core.search_space.space import Space
from mpi_opt.core.trial import MAX_STEP, Proposal
from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.surrogates.curve_model import LARGEST, CurveModel, curve_features

MIN_COMPLETE, MAX_COMPLETE = 8, 80
"""The number of complete trials before the first one is stopped, and their largest number in a model: the best half
and the latest others."""
MIN_VALUES = 2
"""A trial is not stopped before it has reported this number of values."""
PATIENCE = 2.0
N_CHECKED = 3
SPARED = 50
N_RECENT = 20
"""The number of trials, the last ones that have ended, that say how good and how long a new trial will be."""
FIT_GROWTH = 1.05
"""A model is fitted again when the number of complete trials has grown by this factor."""


def _check_steps() -> list[int]:
    steps = [1]
    while steps[-1] < MAX_STEP:
        steps.append(max(steps[-1] + 1, int(1.25 * steps[-1])))
    return steps


CHECK_STEPS = _check_steps()
"""The steps at which trials may be stopped, ascending. A trial that reports at others is compared at its next value."""


@dataclass(frozen=True)
class _Complete:
    """The row of a complete trial, the features of its curve up to each check step, its last step and its cost."""

    row: Floats
    features: list[tuple[float, float]]
    last_step: int
    cost: float


@dataclass(frozen=True)
class _Ended:
    """The row of a trial that has ended, the features of its curve up to the first check step, and its steps."""

    row: Floats
    first: tuple[float, float] | None
    n_steps: int


@dataclass(frozen=True)
class _Fitted:
    """A model, and the least probability that it has for the best trials."""

    model: CurveModel
    least_of_best: float


@final
class CurveRule(PruningRule):
    """Keeps at most `MAX_COMPLETE` trials, and for each of them about ten features for each factor of ten of steps.

    Args:
        metric: As of `PruningRule`.
        sign: As of `PruningRule`.
        space: The space of the study.
    """

    def __init__(self, metric: str, sign: float, space: Space) -> None:
        super().__init__(metric, sign)
        self._encoding = Encoding(space)
        self.forget()

    def forget(self) -> None:
        self._complete: list[_Complete] = []
        self._n_complete, self._next_fit = 0, MIN_COMPLETE
        self._fit_from: list[_Complete] = []
        self._models: dict[int, _Fitted] = {}  # check step ->
        self._latest: deque[_Ended] = deque(maxlen=N_RECENT)
        self._per_step_of_new: float | None = None  # None: to be computed again

    def is_bad(self, proposal: Proposal, values: Values) -> bool:
        is_spared = proposal.number % SPARED == SPARED - 1
        if is_spared or len(values) < MIN_VALUES or self._n_complete < MIN_COMPLETE:
            return False
        step, n_checks = values[-1][0], bisect_right(CHECK_STEPS, values[-1][0])
        # no check step since the last value, or none with enough trials
        if n_checks <= bisect_right(CHECK_STEPS, values[-2][0]) or (fitted := self._model_at(n_checks - 1)) is None:
            return False
        features = curve_features([cost for _, cost in values])
        probability = fitted.model.probability(self._encoding.row(proposal.parameters), features)
        n_left = max(1.0, median(one.last_step for one in self._complete) - step)
        return probability < min(self._expected_of_new() * n_left / PATIENCE, fitted.least_of_best)

    def learn(self, proposal: Proposal, values: Values, cost: float | None) -> None:
        steps, costs = [step for step, _ in values], [value for _, value in values]
        checks = CHECK_STEPS[: bisect_right(CHECK_STEPS, steps[-1])]
        features = [curve_features(costs[: bisect_left(steps, check) + 1]) for check in checks]
        row = self._encoding.row(proposal.parameters)
        self._latest.append(_Ended(row, features[0] if features else None, steps[-1] + 1))
        self._per_step_of_new = None
        if cost is None or not abs(cost) < LARGEST:
            return
        self._complete.append(_Complete(row, features, steps[-1], cost))
        self._n_complete += 1
        if len(self._complete) > MAX_COMPLETE:
            by_cost = sorted(range(len(self._complete)), key=lambda index: self._complete[index].cost)
            del self._complete[min(by_cost[MAX_COMPLETE // 2 :])]
        if self._n_complete >= self._next_fit:  # not when a trial asks: a search that continues has the same models
            self._fit_from, self._models = list(self._complete), {}
            self._next_fit = max(self._n_complete + 1, math.ceil(FIT_GROWTH * self._n_complete))

    def _expected_of_new(self) -> float:
        """The probability that a new trial becomes the best one, per step that it takes."""
        if self._per_step_of_new is None:
            fitted = self._model_at(0)
            known = [(one.row, one.first) for one in self._latest if one.first is not None]
            probabilities = [fitted.model.probability(*one) for one in known] if fitted else []
            self._per_step_of_new = fmean(probabilities or [0.0]) / fmean(one.n_steps for one in self._latest)
        return self._per_step_of_new

    def _model_at(self, check: int) -> _Fitted | None:
        """The model at a check step; None if too few trials have reached it."""
        known = self._models.get(check)
        if known is None:
            reached = [one for one in self._fit_from if len(one.features) > check]
            if len(reached) < MIN_COMPLETE:
                return None
            rows, curves = np.array([one.row for one in reached]), np.array([one.features[check] for one in reached])
            costs = np.array([one.cost for one in reached])
            model = CurveModel(rows, curves, costs, self._encoding.is_category)
            known = self._models[check] = _Fitted(model, model.least_of_best(N_CHECKED))
        return known
