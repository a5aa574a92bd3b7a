"""Predicts the final cost of a trial from its hyperparameters and the costs that it has reported so far.

The model is a Gaussian process of the final costs of complete trials: linear in two features of the curve, plus a
smooth function of hyperparameters and features. Its amplitude and noise are those of a small grid with the largest
density of each final cost given the others (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006,
section 5.4.2). If the errors of these predictions are larger than predicted, all distributions become wider by the same
factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import numpy as np
from scipy.special import stdtr

from mpi_opt.core.arrays import Bools, Floats

AMPLITUDES = (0.1, 0.3, 1.0)
"""The variances of the smooth function to choose from, in units of the variance of the final costs."""
NOISES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""The variances of the noise to choose from, in the same units."""
LENGTH, FEATURE_LENGTH = 0.3, 3.0
"""Length scales: of a number, times the square root of the number of hyperparameters; of a feature, in its standard
deviations."""
CATEGORY_DISTANCE = 1.5
"""The squared distance of two categories, divided by the number of hyperparameters."""
SHARPNESS, FARTHEST = 0.3, 10.0
"""Costs are compared on a logarithmic scale at distances from the best one beyond `SHARPNESS` times that of the median,
and count as equally bad beyond `FARTHEST` times that."""
DEGREES = 5.0
"""Degrees of freedom of a predicted distribution, whose tails are heavier than those of a normal distribution."""
N_FITTED = 4
"""The number of quantities that are fitted to the complete trials: a constant, two slopes and the grid. As in a linear
regression, errors are larger than those of the fit by n / (n - 4). With twelve complete trials, 1.5
times as many simulated trials as predicted became the best one without it, and 1.2 times as many with it."""
LARGEST = 1e100
"""Costs beyond it, or not finite, count as this large."""


def curve_features(costs: Sequence[float]) -> tuple[float, float]:
    """Two features of a curve: its level now, and its level after the first half of its costs.

    A level is the mean of the last quarter of the costs, which is less noisy than the last one.
    """
    return _level(costs), _level(costs[: (len(costs) + 1) // 2])


def _level(costs: Sequence[float]) -> float:
    part = [min(max(cost, -LARGEST), LARGEST) for cost in costs[-max(1, len(costs) // 4) :]]
    return math.fsum(part) / len(part)


@final
class CurveModel:
    """The model for one step.

    Args:
        rows: Hyperparameters of at least five complete trials, as rows of an `Encoding`: shape (n, n_dimensions).
        curves: The features of their curves up to the step: shape (n, 2), finite.
        costs: Their final costs: shape (n,), finite.
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, rows: Floats, curves: Floats, costs: Floats, is_category: Bools) -> None:
        self._rows, self._curves, self._is_category = rows, curves, is_category
        positions = self._positions(curves)
        # 1e-9: curves that agree so far, or equal costs, have no spread to divide by
        self._shift, self._spread = positions.mean(axis=0), positions.std(axis=0) + 1e-9
        self._features = (positions - self._shift) / self._spread
        self._costs = _scaled(costs, costs)
        self._mean, self._std = float(self._costs.mean()), float(self._costs.std()) + 1e-9
        self._fit((self._costs - self._mean) / self._std)

    def probability(self, row: Floats, curve: tuple[float, float]) -> float:
        """The probability that a trial ends with a cost below that of the best complete one."""
        new = (self._positions(np.array([curve])) - self._shift) / self._spread
        covariances = (1.0 + new @ self._features.T + self._amplitude * self._correlations(row[None, :], new))[0]
        white = self._vectors.T @ covariances
        prior = 1.0 + float((new * new).sum()) + self._amplitude + self._noise
        variance = max(prior - float(white * white @ self._weights), self._noise)
        mean = self._mean + self._std * float(covariances @ self._alpha)
        return _probability_below(float(self._costs.min()), mean, self._std * self._widening * math.sqrt(variance))

    def least_of_best(self, count: int) -> float:
        """The smallest probability among the best `count` complete trials of being the best, given all others."""
        probabilities = []
        for index in np.argsort(self._costs, kind="stable")[:count]:
            best = float(np.delete(self._costs, index).min())
            mean = float(self._costs[index] - self._std * self._errors[index])
            std = self._std * self._widening / math.sqrt(self._precisions[index])
            probabilities.append(_probability_below(best, mean, std))
        return min(probabilities)

    def _fit(self, y: Floats) -> None:
        """Chooses amplitude and noise for standardised costs, shape (n,)."""
        linear, smooth = 1.0 + self._features @ self._features.T, self._correlations(self._rows, self._features)
        largest = -math.inf
        for amplitude in AMPLITUDES:
            values, vectors = np.linalg.eigh(linear + amplitude * smooth)
            projected = vectors.T @ y
            for noise in NOISES:
                weights = 1.0 / (np.maximum(values, 0.0) + noise)
                alpha, precisions = vectors @ (weights * projected), (vectors * vectors) @ weights
                errors = alpha / precisions  # of each cost, predicted from the others
                squares = errors * errors * precisions
                density = float((np.log(precisions) - squares).sum())
                if density > largest:
                    largest, self._amplitude, self._noise = density, amplitude, noise
                    self._vectors, self._weights, self._alpha = vectors, weights, alpha
                    self._errors, self._precisions = errors, precisions
                    self._widening = math.sqrt(max(1.0, float(squares.mean())) * len(y) / (len(y) - N_FITTED))

    def _positions(self, curves: Floats) -> Floats:
        """The level and the progress of curves relative to those of the complete trials, from features (m, 2)."""
        now, half = (_scaled(curves[:, index], self._curves[:, index]) for index in (0, 1))
        return np.column_stack([now, now - half])

    def _correlations(self, rows: Floats, features: Floats) -> Floats:
        """Those of the smooth function (Matérn 5/2) with the complete trials: shape (m, n)."""
        numbers, n_dimensions = ~self._is_category, rows.shape[1]
        length = LENGTH * math.sqrt(n_dimensions)
        left = np.column_stack([rows[:, numbers] / length, features / FEATURE_LENGTH])
        right = np.column_stack([self._rows[:, numbers] / length, self._features / FEATURE_LENGTH])
        r2 = ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2)
        differs = rows[:, None, self._is_category] != self._rows[None, :, self._is_category]
        r = np.sqrt(5.0 * (r2 + CATEGORY_DISTANCE / n_dimensions * differs.sum(axis=2)))
        result: Floats = (1.0 + r + r * r / 3.0) * np.exp(-r)
        return result


def _scaled(values: Floats, reference: Floats) -> Floats:
    """The positions of costs relative to the best (0) and the median of others."""
    best = reference.min()
    scale = np.median(reference) - best or reference.max() - best or 1.0
    with np.errstate(over="ignore"):  # a distance may be 1e100, and the scale 1e-300
        distances = np.clip((values - best) / scale, -FARTHEST, FARTHEST)
    result: Floats = np.arcsinh(distances / SHARPNESS)
    return result


def _probability_below(limit: float, mean: float, std: float) -> float:
    return float(stdtr(DEGREES, (limit - mean) / std))
