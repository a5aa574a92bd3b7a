"""What was told, as a model: the transformation, the correlation and the length scales that explain it best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from mpi_opt.strategies.gaussian_process import CORRELATIONS, GaussianProcess, Hyperparameters, Likelihood
from mpi_opt.strategies.warp import OFFSETS, warped

ANCHOR_GROWTH = 1.2
N_ANCHOR_ITERATIONS, N_ITERATIONS = 40, 15
SUCCESS_LENGTH, SUCCESS_PRIOR = 0.15, 0.2


@dataclass(frozen=True)
class Told:
    """What came of trials, in the order in which they ended.

    Attributes:
        rows: Shape (n, n_dimensions).
        values: Shape (n,), to minimise; NaN for a failed trial.
        variances: Shape (n,): known variance of each value, 0 where none is known.
    """

    rows: np.ndarray
    values: np.ndarray
    variances: np.ndarray

    def succeeded(self) -> Told:
        """Those with a value."""
        kept = np.isfinite(self.values)
        return Told(self.rows[kept], self.values[kept], self.variances[kept])

    def first(self, n: int) -> Told:
        """The first `n`."""
        return Told(self.rows[:n], self.values[:n], self.variances[:n])


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

    def fit(self, told: Told) -> tuple[GaussianProcess, float]:
        """The model of `told` (without failures, at least two), and the smallest value in its units."""
        size = _anchor_size(len(told.values))
        if size != self._anchor_size or self._anchor is None:
            self._anchor, self._anchor_size = self._chosen(told.first(size)), size
        offset, start = self._anchor.offset, self._anchor.hyperparameters
        y, variances = _standardised(told, offset)
        found, _ = Likelihood(told.rows, self._is_category, variances).fit(y, start, N_ITERATIONS)
        model = GaussianProcess(told.rows, y, self._is_category, found, variances)
        return model, float(model.predict(told.rows)[0].min())

    def _chosen(self, told: Told) -> Choice:
        best: tuple[float, Choice] | None = None
        for correlation in CORRELATIONS:
            choice, cost = self._chosen_with(told, correlation)
            if best is None or cost < best[0]:
                best = cost, choice
        return best[1]

    def _chosen_with(self, told: Told, correlation: str) -> tuple[Choice, float]:
        found, offset, cost = Hyperparameters.default(told.rows.shape[1], correlation), 1.0, 0.0
        for _ in range(2):
            y, variances = _standardised(told, offset)
            found, _ = Likelihood(told.rows, self._is_category, variances).fit(y, found, N_ANCHOR_ITERATIONS)
            costs = [self._cost(told, other, found) for other in OFFSETS]
            offset, cost = OFFSETS[int(np.argmin(costs))], min(costs)
        return Choice(offset, found), cost

    def _cost(self, told: Told, offset: float, at: Hyperparameters) -> float:
        y, slopes = warped(told.values, offset)
        _, variances = _standardised(told, offset)
        return Likelihood(told.rows, self._is_category, variances).density(y, at) - float(slopes.sum())


def _standardised(told: Told, offset: float) -> tuple[np.ndarray, np.ndarray]:
    y, _ = warped(told.values, offset)
    return y, np.zeros_like(y)


def _anchor_size(n: int) -> int:
    size = min(n, 8)
    while int(size * ANCHOR_GROWTH) <= n and size >= 8:
        size = int(size * ANCHOR_GROWTH)
    return size


@final
class Success:
    """How likely a trial gives a value, from the trials around: a kernel estimate with fixed lengths.

    Args:
        told: Failed trials included.
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, told: Told, is_category: np.ndarray) -> None:
        self._rows, self._is_category = told.rows, is_category
        self._has_value = np.isfinite(told.values)

    def log_probability(self, rows: np.ndarray) -> np.ndarray:
        """At `rows` (m, n_dimensions): shape (m,)."""
        difference = (rows[:, None, :] - self._rows[None, :, :]) / SUCCESS_LENGTH
        difference[:, :, self._is_category] = 1.5 * (difference[:, :, self._is_category] != 0)
        nearness = np.exp(-0.5 * (difference * difference).sum(axis=2))
        success = nearness @ self._has_value + SUCCESS_PRIOR
        return np.log(success / (nearness.sum(axis=1) + SUCCESS_PRIOR))
