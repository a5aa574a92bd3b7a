"""How promising a point is, by the criterion of one's choice."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

if TYPE_CHECKING:
    from mpi_opt.strategies.surrogates.forest import Forest
    from mpi_opt.strategies.surrogates.gaussian_process import GaussianProcess

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def log_improvement(u: np.ndarray) -> np.ndarray:
    """log(φ(u) + u Φ(u)), exact also where the improvement is less than 1e-300 (Ament et al. 2023, eq. 9)."""
    u = np.asarray(u, dtype=float)
    density = -0.5 * u * u - _HALF_LOG_2PI
    near = np.maximum(u, -1.0)
    direct = np.log(np.exp(-0.5 * near * near - _HALF_LOG_2PI) + near * ndtr(near))
    middle = np.clip(u, -1e3, -1.0)
    tail = density + np.log1p(middle * math.sqrt(0.5 * math.pi) * erfcx(-middle / math.sqrt(2.0)))
    far = density - 2.0 * np.log(np.maximum(-u, 1.0))
    return np.where(u > -1.0, direct, np.where(u > -1e3, tail, far))


class Criterion(ABC):
    """How promising a point is, from what a model predicts there: mean and standard deviation of a value to minimise.

    Attributes:
        has_logarithm: The logarithm of the probability that a trial gives a value is added; else, the value is
            multiplied by the probability.
        resolution: A difference that is worth a step.
    """

    has_logarithm = True
    resolution = 1e-9

    @abstractmethod
    def values(self, mean: np.ndarray, std: np.ndarray, best: float) -> np.ndarray:
        """The larger the better; all of shape (m,). `best` is the smallest value so far."""

    @abstractmethod
    def slopes(self, mean: float, std: float, best: float) -> tuple[float, float]:
        """The derivatives of the value by `mean` and by `std`."""


@final
@dataclass(frozen=True)
class LogExpectedImprovement(Criterion):
    """log E[max(best - margin - y, 0)]; it has a slope also where an improvement is next to impossible.

    Attributes:
        margin: Only what is better by more than this is an improvement.
    """

    margin: float = 0.0

    def values(self, mean: np.ndarray, std: np.ndarray, best: float) -> np.ndarray:
        return log_improvement((best - self.margin - mean) / std) + np.log(std)

    def slopes(self, mean: float, std: float, best: float) -> tuple[float, float]:
        u = (best - self.margin - mean) / std
        by_u = math.exp(min(_log_cdf(u) - float(log_improvement(u)), 700.0))
        return -by_u / std, (1.0 - by_u * u) / std


@final
@dataclass(frozen=True)
class ExpectedImprovement(Criterion):
    """E[max(best - margin - y, 0)] as it stands (Jones et al. 1998, eq. 15); flat where there is none to expect."""

    has_logarithm = False
    resolution = 0.0
    margin: float = 0.0

    def values(self, mean: np.ndarray, std: np.ndarray, best: float) -> np.ndarray:
        return np.exp(log_improvement((best - self.margin - mean) / std)) * std

    def slopes(self, mean: float, std: float, best: float) -> tuple[float, float]:
        u = (best - self.margin - mean) / std
        return -float(ndtr(u)), math.exp(-0.5 * u * u - _HALF_LOG_2PI)


@final
@dataclass(frozen=True)
class ProbabilityOfImprovement(Criterion):
    """log P(y < best - margin) (Kushner 1964)."""

    margin: float = 0.0

    def values(self, mean: np.ndarray, std: np.ndarray, best: float) -> np.ndarray:
        return log_ndtr((best - self.margin - mean) / std)

    def slopes(self, mean: float, std: float, best: float) -> tuple[float, float]:
        u = (best - self.margin - mean) / std
        by_u = math.exp(min(-0.5 * u * u - _HALF_LOG_2PI - _log_cdf(u), 700.0))
        return -by_u / std, -by_u * u / std


@final
@dataclass(frozen=True)
class LowerConfidenceBound(Criterion):
    """kappa · std - mean: how low the value may be (Cox and John 1992)."""

    kappa: float = 1.96

    def values(self, mean: np.ndarray, std: np.ndarray, best: float) -> np.ndarray:
        return self.kappa * std - mean

    def slopes(self, mean: float, std: float, best: float) -> tuple[float, float]:
        return -1.0, self.kappa


@final
class Gain:
    """A criterion under a model.

    Args:
        model: The posterior.
        best: The smallest value so far, in the model's units.
        criterion: What makes a point promising.
        log_success: Row(s) (m, n_dimensions) -> log of the probability that a trial there gives a value, (m,).
        left: A dimension and a value: rows with this value there have no gain.
    """

    def __init__(
        self,
        model: GaussianProcess | Forest,
        best: float,
        criterion: Criterion,
        log_success: Callable[[np.ndarray], np.ndarray] | None = None,
        left: tuple[int, float] | None = None,
    ) -> None:
        self._model, self._best, self._criterion, self._log_success = model, best, criterion, log_success
        self._left = left
        self.resolution = criterion.resolution

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """At each of `rows` (m, n_dimensions): shape (m,)."""
        values = self._criterion.values(*self._model.predict(rows), self._best)
        if self._left is not None:
            index, value = self._left
            values = np.where(rows[:, index] == value, -np.inf, values)
        if self._log_success is None:
            return values
        weights = self._log_success(rows)
        return values + weights if self._criterion.has_logarithm else values * np.exp(weights)

    def with_slope(self, row: np.ndarray) -> tuple[float, np.ndarray]:
        """At one row (n_dimensions,), with the gradient; the probability of success counts as constant in it."""
        mean, std, mean_slope, std_slope = self._model.predict_with_slopes(row)
        value = float(self._criterion.values(np.array([mean]), np.array([std]), self._best)[0])
        by_mean, by_std = self._criterion.slopes(mean, std, self._best)
        slope = by_mean * mean_slope + by_std * std_slope
        if self._log_success is None:
            return value, slope
        weight = float(self._log_success(row[None, :])[0])
        if self._criterion.has_logarithm:
            return value + weight, slope
        return value * math.exp(weight), slope * math.exp(weight)


def _log_cdf(u: float) -> float:
    """log Φ(u)."""
    if u > -1.0:
        return math.log(float(ndtr(u)))
    return -0.5 * u * u + math.log(0.5 * float(erfcx(-u / math.sqrt(2.0))))
