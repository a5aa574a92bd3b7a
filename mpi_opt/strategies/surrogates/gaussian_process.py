"""A compact Gaussian process for a few hundred points: correlation, likelihood with gradients, posterior.

scikit-learn's and scikit-optimize's fit length scales by maximum likelihood from random starts, know no categories
but one-hot, and give no gradient of the posterior; at 400 points a fit takes them seconds. Here mean and variance are
profiled out in closed form (Rasmussen and Williams 2006, 2.4 and 5.4), the rest is fitted by L-BFGS under a prior, and
a category is one dimension whose distance is 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

SMALLEST_NOISE, LARGEST_NOISE = 1e-8, 1.0
LENGTH_BOUNDS = (5e-3, 50.0)
VARIANCE_PRIOR = 1.0
"""As many points as the prior belief is worth that the variance is that of the data."""


def _squared_exponential(r2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    value = np.exp(-0.5 * r2)
    return value, -0.5 * value


def _matern52(r2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r = np.sqrt(5.0 * r2)
    decay = np.exp(-r)
    return (1.0 + r + r * r / 3.0) * decay, (-5.0 / 6.0) * (1.0 + r) * decay


CORRELATIONS: dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "matern": _matern52,
    "gaussian": _squared_exponential,
}
"""Name -> function of the scaled squared distance that gives correlation and its derivative."""


@dataclass(frozen=True)
class Hyperparameters:
    """What a fit finds.

    Attributes:
        correlation: A name in `CORRELATIONS`.
        log_weights: Shape (n_dimensions,): logarithms of 1 / length scale².
        log_noise: Logarithm of the noise's variance in units of the function's.
    """

    correlation: str
    log_weights: np.ndarray
    log_noise: float

    @staticmethod
    def default(n_dimensions: int, correlation: str = "matern") -> Hyperparameters:
        """The mode of the prior."""
        return Hyperparameters(correlation, np.full(n_dimensions, -2.0 * length_prior(n_dimensions)[0]), math.log(1e-5))

    def with_lengths_up_to(self, longest: float, of: np.ndarray) -> Hyperparameters:
        """The same with length scales of at most `longest` in the dimensions `of` (n_dimensions,), bool."""
        least = np.where(of, -2.0 * math.log(longest), -math.inf)
        return replace(self, log_weights=np.maximum(self.log_weights, least))


def length_prior(n_dimensions: int) -> tuple[float, float]:
    """Mean and standard deviation of a log length scale; longer in more dimensions (Hvarfner et al. 2024)."""
    return math.log(0.3) + 0.5 * math.log(n_dimensions), 1.3


NOISE_PRIOR = (math.log(1e-5), 3.0)
CATEGORY_LENGTH_MEAN = math.log(0.8)
"""Categories count as rather different, however many dimensions there are."""


def squared_distances(x: np.ndarray, z: np.ndarray, is_category: np.ndarray) -> np.ndarray:
    """By dimension: the square of the difference, or for a category whether the two differ.

    Args:
        x: Shape (n, n_dimensions).
        z: Shape (m, n_dimensions).
        is_category: Shape (n_dimensions,), bool.

    Returns:
        Shape (n_dimensions, n, m).
    """
    difference = x.T[:, :, None] - z.T[:, None, :]
    squares = difference * difference
    squares[is_category] = difference[is_category] != 0.0
    return squares


@final
class Likelihood:
    """The posterior density of hyperparameters, for one set of points.

    Args:
        x: Shape (n, n_dimensions), the points in the unit cube, categories as whole numbers.
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, x: np.ndarray, is_category: np.ndarray) -> None:
        n = len(x)
        self._rows, self._columns = np.tril_indices(n, -1)
        squares = squared_distances(x, x, is_category)
        self._squares = squares[:, self._rows, self._columns]  # (n_dimensions, n (n - 1) / 2): half is enough
        self._n, self._n_dimensions = n, x.shape[1]
        self._length_means = np.where(is_category, CATEGORY_LENGTH_MEAN, length_prior(self._n_dimensions)[0])

    def fit(self, y: np.ndarray, variances: np.ndarray, start: Hyperparameters, max_iterations: int) -> Hyperparameters:
        """The most probable hyperparameters, from `start`.

        Args:
            y: Shape (n,), standardised values.
            variances: Shape (n,): known noise of every value, in units of the standardised values' variance.
            start: Where to start; its correlation is kept.
            max_iterations: Of L-BFGS.
        """
        low, high = (-2.0 * math.log(length) for length in reversed(LENGTH_BOUNDS))
        bounds = [(low, high)] * self._n_dimensions + [(math.log(SMALLEST_NOISE), math.log(LARGEST_NOISE))]
        found = minimize(
            self.cost,
            np.clip(np.append(start.log_weights, start.log_noise), *np.array(bounds).T),
            args=(y, variances, start.correlation),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": max_iterations},
        )
        return replace(start, log_weights=found.x[:-1], log_noise=float(found.x[-1]))

    def cost(
        self, theta: np.ndarray, y: np.ndarray, variances: np.ndarray, correlation: str
    ) -> tuple[float, np.ndarray]:
        """Minus the log density at `theta` = (log weights, log noise), constants left out, and its gradient."""
        n, weights, noise = self._n, np.exp(theta[:-1]), math.exp(theta[-1])
        values, slopes = CORRELATIONS[correlation](weights @ self._squares)
        factor = self._factor(values, noise + variances)
        if factor is None:
            return 1e10, np.zeros_like(theta)
        inverse = np.tril(lapack.dpotri(factor, lower=1)[0])
        alpha, scatter = _weighted_residuals(factor, y)
        degrees = n + VARIANCE_PRIOR
        cost = 0.5 * degrees * math.log(scatter + VARIANCE_PRIOR) + np.log(np.diagonal(factor)).sum()
        inner = inverse[self._rows, self._columns] - (degrees / (scatter + VARIANCE_PRIOR)) * (
            alpha[self._rows] * alpha[self._columns]
        )
        by_weight = (self._squares @ (inner * slopes)) * weights
        by_noise = 0.5 * noise * (np.trace(inverse) - degrees / (scatter + VARIANCE_PRIOR) * (alpha @ alpha))
        prior, prior_slope = _prior(theta, self._length_means)
        return cost + prior, np.append(by_weight, by_noise) + prior_slope

    def density(self, y: np.ndarray, variances: np.ndarray, at: Hyperparameters) -> float:
        """Minus the logarithm of the density, for comparing values `y` that were transformed in different ways."""
        return self.cost(np.append(at.log_weights, at.log_noise), y, variances, at.correlation)[0]

    def _factor(self, values: np.ndarray, noise: np.ndarray) -> np.ndarray | None:
        matrix = np.zeros((self._n, self._n), order="F")
        matrix[self._rows, self._columns] = values
        np.fill_diagonal(matrix, 1.0 + noise)
        factor, failure = lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
        return None if failure else factor


def _prior(theta: np.ndarray, length_means: np.ndarray) -> tuple[float, np.ndarray]:
    """Minus the log of normal densities of log length scales and log noise, and the gradient."""
    std = length_prior(len(theta) - 1)[1]
    lengths = (-0.5 * theta[:-1] - length_means) / std
    noise = (theta[-1] - NOISE_PRIOR[0]) / NOISE_PRIOR[1]
    return 0.5 * (lengths @ lengths + noise * noise), np.append(-0.5 * lengths / std, noise / NOISE_PRIOR[1])


def _solve(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    return lapack.dpotrs(factor, right, lower=1)[0]


def _weighted_residuals(factor: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """K⁻¹ (y - mean) and (y - mean)ᵀ K⁻¹ (y - mean) with the mean that fits best."""
    both = _solve(factor, np.column_stack([y, np.ones_like(y)]))
    mean = both[:, 0].sum() / both[:, 1].sum()
    alpha = both[:, 0] - mean * both[:, 1]
    return alpha, float((y - mean) @ alpha)


@final
class GaussianProcess:
    """The posterior at given hyperparameters.

    Points may be added at their own predicted mean (`pretend`): the mean stays, the uncertainty near them goes.

    Args:
        x: Shape (n, n_dimensions), as in `Likelihood`.
        y: Shape (n,), standardised.
        is_category: Shape (n_dimensions,), bool.
        hyperparameters: As found by `Likelihood.fit`.
        variances: As in `Likelihood.fit`.
    """

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        is_category: np.ndarray,
        hyperparameters: Hyperparameters,
        variances: np.ndarray,
    ) -> None:
        self.hyperparameters = hyperparameters
        self._is_category = is_category
        self._weights = np.exp(hyperparameters.log_weights)
        self._correlation = CORRELATIONS[hyperparameters.correlation]
        self._x = x
        self._noise = math.exp(hyperparameters.log_noise)
        matrix = self.correlation(x, x)[0]
        matrix[np.diag_indices_from(matrix)] = 1.0 + self._noise + variances
        self._inverse_factor = _inverse_factor(matrix)
        self._ones = self._inverse_factor @ np.ones(len(x))
        weighted = self._inverse_factor @ y
        self.mean = float(self._ones @ weighted / (self._ones @ self._ones))
        residuals = weighted - self.mean * self._ones
        self._alpha = self._inverse_factor.T @ residuals
        self.variance = float((residuals @ residuals + VARIANCE_PRIOR) / (len(y) + VARIANCE_PRIOR))
        self._all_x = x

    def correlation(self, z: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Correlations of `z` (m, n_dimensions) with `x` (n, n_dimensions) and their derivatives by r²; both (m, n)."""
        numbers = ~self._is_category
        scale = np.sqrt(self._weights[numbers])
        left, right = z[:, numbers] * scale, x[:, numbers] * scale
        r2 = (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1)[None, :] - 2.0 * (left @ right.T)
        np.maximum(r2, 0.0, out=r2)
        for index in np.flatnonzero(self._is_category):
            r2 += self._weights[index] * (z[:, index][:, None] != x[:, index][None, :])
        return self._correlation(r2)

    def predict(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the function at `z` (m, n_dimensions); both shape (m,)."""
        values, _ = self.correlation(z, self._all_x)
        mean = self.mean + values[:, : len(self._x)] @ self._alpha
        white = self._inverse_factor @ values.T
        return mean, np.sqrt(self.variance * np.maximum(1.0 - (white * white).sum(axis=0), 1e-12))

    def predict_with_slopes(self, z: np.ndarray) -> tuple[float, float, np.ndarray, np.ndarray]:
        """Mean and standard deviation at one point `z` (n_dimensions,), and their gradients (0 for categories)."""
        values, slopes = (row[0] for row in self.correlation(z[None, :], self._all_x))
        white = self._inverse_factor @ values
        std = math.sqrt(self.variance * max(1.0 - white @ white, 1e-12))
        by_point = (2.0 * slopes)[:, None] * ((z - self._all_x) * (self._weights * ~self._is_category))
        mean_slope = self._alpha @ by_point[: len(self._x)]
        std_slope = (-self.variance / std) * ((self._inverse_factor.T @ white) @ by_point)
        return self.mean + float(values[: len(self._x)] @ self._alpha), std, mean_slope, std_slope

    def pretend(self, z: np.ndarray) -> None:
        """Adds the points `z` (m, n_dimensions) at their predicted means."""
        if not len(z):
            return
        white = self._inverse_factor @ self.correlation(z, self._all_x)[0].T
        left = self.correlation(z, z)[0] - white.T @ white
        left[np.diag_indices_from(left)] += self._noise
        corner = _inverse_factor(left)
        n, m = len(self._all_x), len(z)
        grown = np.zeros((n + m, n + m))
        grown[:n, :n] = self._inverse_factor
        grown[n:, :n] = -corner @ (white.T @ self._inverse_factor)
        grown[n:, n:] = corner
        self._inverse_factor, self._all_x = grown, np.vstack([self._all_x, z])


def _inverse_factor(matrix: np.ndarray) -> np.ndarray:
    """The inverse of the lower Cholesky factor of a correlation matrix. Jitter is added until the factor exists.

    Raises:
        numpy.linalg.LinAlgError: `matrix` has an entry that is not finite, or is far from positive definite.
    """
    if np.isfinite(matrix).all():
        for jitter in (0.0, *10.0 ** np.arange(-10.0, 1.0)):
            factor, failure = lapack.dpotrf(matrix + jitter * np.eye(len(matrix)), lower=1, clean=1)
            if not failure:
                return np.ascontiguousarray(np.tril(lapack.dtrtri(factor, lower=1)[0]))
    raise np.linalg.LinAlgError("the correlation matrix of the observed points has no Cholesky factor")
