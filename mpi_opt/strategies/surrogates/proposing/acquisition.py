"""Acquisition functions: how promising a point is under a model.

``log-ei`` is that of Ament et al. (NeurIPS 36, 2023), ``ei`` that of Jones, Schonlau and Welch (J. Global Optim. 13,
1998), ``pi`` that of Kushner (J. Basic Eng. 86, 1964), and ``lcb`` that of Cox and John (IEEE SMC, 1992).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy  # loads its subpackages on first use

from mpi_opt.core.arrays import Floats
from mpi_opt.strategies.points.beliefs import Beliefs
from mpi_opt.strategies.surrogates.gaussian_process import GaussianProcess

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def log_improvement(u: Floats | float) -> Floats:
    """log(φ(u) + u Φ(u)), accurate also where the improvement underflows (Ament et al. 2023, eq. 9); shape of `u`."""
    u = np.asarray(u, dtype=float)
    density = -0.5 * u * u - _HALF_LOG_2PI
    near = np.maximum(u, -1.0)
    direct = np.log(np.exp(-0.5 * near * near - _HALF_LOG_2PI) + near * scipy.special.ndtr(near))
    middle = np.clip(u, -1e3, -1.0)
    tail = density + np.log1p(middle * math.sqrt(0.5 * math.pi) * scipy.special.erfcx(-middle / math.sqrt(2.0)))
    far = density - 2.0 * np.log(np.maximum(-u, 1.0))
    result: Floats = np.where(u > -1.0, direct, np.where(u > -1e3, tail, far))
    return result


class Criterion(ABC):
    """An acquisition function of the predicted mean and standard deviation of a value to be minimised.

    Attributes:
        adds_log_success: Whether the logarithm of the probability of success is added to the function. Otherwise the
            function is multiplied by the probability.
        resolution: The smallest difference that counts as an improvement of the acquisition function.
    """

    adds_log_success = True
    resolution = 1e-9

    @abstractmethod
    def values(self, mean: Floats, std: Floats, best: float) -> Floats:
        """The acquisition function, to be maximised.

        Args:
            mean: Shape (m,), predicted means.
            std: Shape (m,), predicted standard deviations.
            best: The incumbent: the smallest value so far.

        Returns:
            Shape (m,).
        """

    @abstractmethod
    def slopes(self, mean: float, std: float, best: float) -> tuple[float, float]:
        """The derivatives with respect to `mean` and `std`."""


@final
@dataclass(frozen=True)
class LogExpectedImprovement(Criterion):
    """log E[max(best - margin - y, 0)] (Ament et al. 2023), whose slope does not vanish where improvement is unlikely.

    Attributes:
        margin: The least improvement that counts.
    """

    margin: float = 0.0

    def values(self, mean: Floats, std: Floats, best: float) -> Floats:
        return log_improvement((best - self.margin - mean) / std) + np.log(std)

    def slopes(self, mean: float, std: float, best: float) -> tuple[float, float]:
        u = (best - self.margin - mean) / std
        by_u = math.exp(min(float(scipy.special.log_ndtr(u) - log_improvement(u)), 700.0))
        return -by_u / std, (1.0 - by_u * u) / std


@final
@dataclass(frozen=True)
class ExpectedImprovement(Criterion):
    """E[max(best - margin - y, 0)] (Jones et al. 1998, eq. 15), which is flat where an improvement is unlikely."""

    adds_log_success = False
    resolution = 0.0
    margin: float = 0.0

    def values(self, mean: Floats, std: Floats, best: float) -> Floats:
        return np.exp(log_improvement((best - self.margin - mean) / std)) * std

    def slopes(self, mean: float, std: float, best: float) -> tuple[float, float]:
        u = (best - self.margin - mean) / std
        return -float(scipy.special.ndtr(u)), math.exp(-0.5 * u * u - _HALF_LOG_2PI)


@final
@dataclass(frozen=True)
class ProbabilityOfImprovement(Criterion):
    """log P(y < best - margin) (Kushner 1964)."""

    margin: float = 0.0

    def values(self, mean: Floats, std: Floats, best: float) -> Floats:
        result: Floats = scipy.special.log_ndtr((best - self.margin - mean) / std)
        return result

    def slopes(self, mean: float, std: float, best: float) -> tuple[float, float]:
        u = (best - self.margin - mean) / std
        by_u = math.exp(min(-0.5 * u * u - _HALF_LOG_2PI - float(scipy.special.log_ndtr(u)), 700.0))
        return -by_u / std, -by_u * u / std


@final
@dataclass(frozen=True)
class LowerConfidenceBound(Criterion):
    """kappa · std - mean: minus the lower confidence bound of the value (Cox and John 1992)."""

    kappa: float = 1.96

    def values(self, mean: Floats, std: Floats, best: float) -> Floats:
        return self.kappa * std - mean

    def slopes(self, mean: float, std: float, best: float) -> tuple[float, float]:
        return -1.0, self.kappa


@final
class Acquisition:
    """An acquisition function under a model.

    Args:
        model: The posterior.
        best: The incumbent's value, in units of the model.
        criterion: The acquisition function of mean and standard deviation.
        log_success: Rows (m, n_dimensions) -> logarithm of the probability of success, shape (m,).
        excluded: A dimension and a value: rows with this value in this dimension get minus infinity.
        beliefs: The beliefs of the user, and the exponent of their density.
    """

    def __init__(
        self,
        model: GaussianProcess,
        best: float,
        criterion: Criterion,
        log_success: Callable[[Floats], Floats] | None = None,
        excluded: tuple[int, float] | None = None,
        beliefs: tuple[Beliefs, float] | None = None,
    ) -> None:
        self._model, self._best, self._criterion, self._log_success = model, best, criterion, log_success
        self._excluded, self._beliefs = excluded, beliefs
        self.resolution = criterion.resolution

    def __call__(self, rows: Floats) -> Floats:
        """At each of `rows` (m, n_dimensions): shape (m,)."""
        values = self._criterion.values(*self._model.predict(rows), self._best)
        if self._excluded is not None:
            index, value = self._excluded
            values = np.where(rows[:, index] == value, -np.inf, values)
        weights = self._log_weights(rows)
        return values + weights if self._criterion.adds_log_success else values * np.exp(weights)

    def with_slope(self, row: Floats) -> tuple[float, Floats]:
        """The value and the gradient at one row (n_dimensions,). The probability of success is taken as constant."""
        mean, std, mean_slope, std_slope = self._model.predict_with_slopes(row)
        value = float(self._criterion.values(np.array([mean]), np.array([std]), self._best)[0])
        by_mean, by_std = self._criterion.slopes(mean, std, self._best)
        slope = by_mean * mean_slope + by_std * std_slope
        weight, weight_slope = float(self._log_weights(row[None, :])[0]), np.zeros_like(row)
        if self._beliefs is not None:
            weight_slope = self._beliefs[1] * self._beliefs[0].slope(row)
        if self._criterion.adds_log_success:
            return value + weight, slope + weight_slope
        return value * math.exp(weight), (slope + value * weight_slope) * math.exp(weight)

    def _log_weights(self, rows: Floats) -> Floats:
        """The logarithm of the factors of the acquisition function: shape (m,)."""
        weights = np.zeros(len(rows)) if self._log_success is None else self._log_success(rows)
        if self._beliefs is None:
            return weights
        beliefs, exponent = self._beliefs
        return weights + exponent * beliefs.log_density(rows)
