"""What was told, as a model: the transformation, the correlation and the length scales that explain it best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from mpi_opt.strategies.surrogates.gaussian_process import CORRELATIONS, GaussianProcess, Hyperparameters, Likelihood
from mpi_opt.strategies.surrogates.observations import Told
from mpi_opt.strategies.surrogates.warp import OFFSETS, scale_of, warped

ANCHOR_GROWTH = 1.2
N_ANCHOR_ITERATIONS, N_ITERATIONS = 40, 15
SCEPTICAL_LENGTH = 1.0
"""A sceptic's longest length scale of a category: trials of one are no proof of what is to be had with another."""
SUCCESS_LENGTH, SUCCESS_PRIOR = 0.1, 0.2
LEAST_SUCCESS = 0.35
"""Where success is less likely than this nothing is tried as long as there is another place."""
LARGEST_SUCCESS = 2000
LARGEST_VARIANCE = 10.0
LARGEST_FIT = 400
"""How many values a model has at most: of more, the best half and an even choice of the others."""


@dataclass(frozen=True)
class Choice:
    """The transformation and the hyperparameters that explain some values best."""

    offset: float
    hyperparameters: Hyperparameters


@final
class Surrogate:
    """Fits models. A model is a function of what was told: the same after a restart as without.

    Transformation and correlation are chosen anew each time that the number of values has grown by a fifth (at an
    *anchor*), from the values told until then; in between the length scales follow from there.

    Args:
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, is_category: np.ndarray) -> None:
        self._is_category = is_category
        self._anchor_size = 0
        self._anchor: Choice | None = None

    def fit(self, told: Told, is_sceptical: bool = False) -> tuple[GaussianProcess, float]:
        """The model of `told` (without failures, at least two), and the smallest value in its units.

        A search stays with a category if the model takes it for certain, from a few trials elsewhere in the space, that
        the others are alike but worse. A sceptic's model is the same with categories that are less alike.
        """
        size = _anchor_size(len(told.values))
        if size != self._anchor_size or self._anchor is None:
            anchor = told.first(size).thinned(LARGEST_FIT // 2)
            self._anchor, self._anchor_size = self._chosen(anchor), size
        longest_category = SCEPTICAL_LENGTH if is_sceptical else math.inf
        return self._fitted(told.thinned(LARGEST_FIT), self._anchor, longest_category)

    def fit_afresh(self, told: Told) -> tuple[GaussianProcess, float]:
        """The same for a part of what was told, with a choice of its own and without transforming the values."""
        return self._fitted(told, self._chosen(told, (math.inf,)))

    def _fitted(self, told: Told, start: Choice, longest_category: float = math.inf) -> tuple[GaussianProcess, float]:
        y, variances = _standardised(told, start.offset)
        likelihood = Likelihood(told.rows, self._is_category)
        found = likelihood.fit(y, variances, start.hyperparameters, N_ITERATIONS)
        found = found.with_lengths_up_to(longest_category, self._is_category)
        model = GaussianProcess(told.rows, y, self._is_category, found, variances)
        return model, float(model.predict(told.rows)[0].min())

    def _chosen(self, told: Told, offsets: tuple[float, ...] = OFFSETS) -> Choice:
        likelihood = Likelihood(told.rows, self._is_category)
        n_dimensions = told.rows.shape[1]
        starts = [Hyperparameters.default(n_dimensions, name) for name in CORRELATIONS]
        found = [_fitted(likelihood, told, start, offsets) for start in starts]
        return min(found, key=lambda pair: pair[0])[1]


def _fitted(
    likelihood: Likelihood, told: Told, start: Hyperparameters, offsets: tuple[float, ...]
) -> tuple[float, Choice]:
    """Minus the log density, and the choice, with `start`'s correlation."""
    cost, offset, found = math.inf, 1.0 if len(offsets) > 1 else offsets[0], start
    for _ in range(min(2, len(offsets))):
        found = likelihood.fit(*_standardised(told, offset), found, N_ANCHOR_ITERATIONS)
        costs = [_cost(likelihood, told, other, found) for other in offsets]
        cost, offset = min(costs), offsets[int(np.argmin(costs))]
    return cost, Choice(offset, found)


def _cost(likelihood: Likelihood, told: Told, offset: float, at: Hyperparameters) -> float:
    slopes = warped(told.values, offset)[1]
    return likelihood.density(*_standardised(told, offset), at) - float(slopes.sum())


def _standardised(told: Told, offset: float) -> tuple[np.ndarray, np.ndarray]:
    """Values and their variances, transformed, in units of the values' standard deviation."""
    y, slopes = warped(told.values, offset)
    relative = told.variances / scale_of(told.values) ** 2
    return y, np.minimum(relative * np.exp(2.0 * slopes), LARGEST_VARIANCE)


def _anchor_size(n: int) -> int:
    size = min(n, 8)
    while int(size * ANCHOR_GROWTH) <= n and size >= 8:
        size = int(size * ANCHOR_GROWTH)
    return size


@final
class Success:
    """How likely a trial gives a value, from the trials around: a kernel estimate with fixed lengths.

    Args:
        told: Failed trials included. Of more than 2,000 an even choice counts.
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, told: Told, is_category: np.ndarray) -> None:
        kept = np.linspace(0, len(told.values) - 1, min(len(told.values), LARGEST_SUCCESS)).astype(int)
        self._rows, self._is_category = told.rows[kept], is_category
        self._has_value = np.isfinite(told.values[kept])
        self._rate = max(float(self._has_value.mean()), 0.5)

    def log_probability(self, rows: np.ndarray) -> np.ndarray:
        """At `rows` (m, n_dimensions): shape (m,)."""
        length = SUCCESS_LENGTH * math.sqrt(rows.shape[1])
        difference = (rows[:, None, :] - self._rows[None, :, :]) / length
        difference[:, :, self._is_category] = 1.5 * (difference[:, :, self._is_category] != 0)
        nearness = np.exp(-0.5 * (difference * difference).sum(axis=2))
        success = nearness @ self._has_value + SUCCESS_PRIOR * self._rate
        return np.log(success / (nearness.sum(axis=1) + SUCCESS_PRIOR))

    def is_likely(self, rows: np.ndarray) -> np.ndarray:
        """Whether it is worth a try, at `rows` (m, n_dimensions): shape (m,), bool."""
        return self.log_probability(rows) >= math.log(LEAST_SUCCESS)
