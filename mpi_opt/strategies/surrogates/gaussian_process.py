"""A compact Gaussian process for a few hundred points: correlation, likelihood with gradients, posterior.

The Gaussian processes of scikit-learn and scikit-optimize fit length scales by maximum likelihood from random starts,
encode categories as one-hot vectors and have no gradient of the posterior; with 400 points a fit takes seconds. Here
the mean and the variance are eliminated in closed form (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, sections 2.7 and 5.4), the other hyperparameters are fitted by L-BFGS-B with a prior, and a category is
one dimension with distances 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import scipy  # loads its subpackages on first use

from mpi_opt.core.arrays import Bools, Floats

SMALLEST_NOISE, LARGEST_NOISE = 1e-8, 1.0
"""Bounds of the variance of the noise, in units of the variance of the function."""
LENGTH_BOUNDS = (5e-3, 50.0)
"""The smallest and the largest length scale, in units of the range of a hyperparameter."""
VARIANCE_PRIOR = 1.0
"""Weight of the prior that the variance is that of the data, as a number of points."""
NOISE_PRIOR = (math.log(1e-5), 3.0)
"""Mean and standard deviation of the logarithm of the noise."""
CATEGORY_LENGTH_MEAN = math.log(0.8)
"""Mean of the log length scale of a category. It is short and does not depend on the number of dimensions."""


def _squared_exponential(r2: Floats) -> tuple[Floats, Floats]:
    value = np.exp(-0.5 * r2)
    return value, -0.5 * value


def _matern52(r2: Floats) -> tuple[Floats, Floats]:
    r = np.sqrt(5.0 * r2)
    decay = np.exp(-r)
    return (1.0 + r + r * r / 3.0) * decay, (-5.0 / 6.0) * (1.0 + r) * decay


CORRELATIONS: dict[str, Callable[[Floats], tuple[Floats, Floats]]] = {
    "matern": _matern52,
    "gaussian": _squared_exponential,
}
"""Name -> function of the squared scaled distance that returns the correlation and its derivative."""


@dataclass(frozen=True)
class Hyperparameters:
    """The hyperparameters of a Gaussian process.

    Attributes:
        correlation: A name in `CORRELATIONS`.
        log_weights: Shape (n_dimensions,): logarithms of 1 / length scale².
        log_noise: Logarithm of the variance of the noise, in units of the variance of the function.
        axes: Shape (n_dimensions, n_dimensions): the length scales are along its columns; None if they are along the
            dimensions.
    """

    correlation: str
    log_weights: Floats
    log_noise: float
    axes: Floats | None = None

    def along_axes(self, x: Floats) -> Floats:
        """The coordinates of `x` (m, n_dimensions) along the axes: same shape."""
        return x if self.axes is None else x @ self.axes

    @staticmethod
    def default(n_dimensions: int, correlation: str = "matern") -> Hyperparameters:
        """A starting point for `Likelihood.fit`: the mode of the prior of numbers, also for categories."""
        return Hyperparameters(correlation, np.full(n_dimensions, -2.0 * length_prior(n_dimensions)[0]), math.log(1e-5))


def length_prior(n_dimensions: int) -> tuple[float, float]:
    """Mean and standard deviation of a log length scale; the mean grows with log √d (Hvarfner et al., ICML 2024)."""
    return math.log(0.3) + 0.5 * math.log(n_dimensions), 1.3


@final
class Likelihood:
    """The posterior density of the hyperparameters for one set of points.

    Args:
        x: Shape (n, n_dimensions), points in the unit cube, categories as whole numbers.
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, x: Floats, is_category: Bools) -> None:
        n = len(x)
        self._rows, self._columns = np.tril_indices(n, -1)
        difference = x.T[:, self._rows] - x.T[:, self._columns]
        self._squares = difference * difference  # (n_dimensions, n (n - 1) / 2): each pair of points once
        self._squares[is_category] = difference[is_category] != 0.0
        self._n, self._n_dimensions = n, x.shape[1]
        self._length_means = np.where(is_category, CATEGORY_LENGTH_MEAN, length_prior(self._n_dimensions)[0])

    def fit(
        self,
        y: Floats,
        variances: Floats,
        start: Hyperparameters,
        max_iterations: int,
        largest_noise: float = LARGEST_NOISE,
    ) -> Hyperparameters:
        """The hyperparameters with the largest density that L-BFGS-B finds.

        Args:
            y: Shape (n,), standardised values.
            variances: Shape (n,): known variance of each value, in units of the variance of `y`. The model takes
                them as relative to the variance of the process. For a smooth function this can be twice that of `y`;
                known noise is then overestimated by this factor.
            start: The starting point. Its correlation is not changed.
            max_iterations: Iterations of L-BFGS-B.
            largest_noise: The upper bound of the variance of the noise.
        """
        low, high = (-2.0 * math.log(length) for length in reversed(LENGTH_BOUNDS))
        bounds = [(low, high)] * self._n_dimensions + [(math.log(SMALLEST_NOISE), math.log(largest_noise))]
        found = scipy.optimize.minimize(
            self.minus_log_density_with_gradient,
            np.clip(np.append(start.log_weights, start.log_noise), *np.array(bounds).T),
            args=(y, variances, start.correlation),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": max_iterations},
        )
        return replace(start, log_weights=found.x[:-1], log_noise=float(found.x[-1]))

    def minus_log_density_with_gradient(
        self, theta: Floats, y: Floats, variances: Floats, correlation: str
    ) -> tuple[float, Floats]:
        """Minus the log density at `theta` = (log weights, log noise), up to a constant, and its gradient."""
        n, weights, noise = self._n, np.exp(theta[:-1]), math.exp(theta[-1])
        values, slopes = CORRELATIONS[correlation](weights @ self._squares)
        factor = self._factor(values, noise + variances)
        if factor is None:
            return 1e10, np.zeros_like(theta)
        inverse = np.tril(scipy.linalg.lapack.dpotri(factor, lower=1)[0])
        alpha, scatter = _weighted_residuals(factor, y)
        degrees = n + VARIANCE_PRIOR
        misfit = 0.5 * degrees * math.log(scatter + VARIANCE_PRIOR) + np.log(np.diagonal(factor)).sum()
        inner = inverse[self._rows, self._columns] - (degrees / (scatter + VARIANCE_PRIOR)) * (
            alpha[self._rows] * alpha[self._columns]
        )
        by_weight = (self._squares @ (inner * slopes)) * weights
        by_noise = 0.5 * noise * (np.trace(inverse) - degrees / (scatter + VARIANCE_PRIOR) * (alpha @ alpha))
        prior, prior_slope = _prior(theta, self._length_means)
        return misfit + prior, np.append(by_weight, by_noise) + prior_slope

    def minus_log_density(self, y: Floats, variances: Floats, at: Hyperparameters) -> float:
        """Minus the log density, up to a constant, to compare different transformations of `y`."""
        theta = np.append(at.log_weights, at.log_noise)
        return self.minus_log_density_with_gradient(theta, y, variances, at.correlation)[0]

    def _factor(self, values: Floats, noise: Floats) -> Floats | None:
        matrix = np.zeros((self._n, self._n), order="F")
        matrix[self._rows, self._columns] = values
        np.fill_diagonal(matrix, 1.0 + noise)
        factor, failure = scipy.linalg.lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
        return None if failure else factor


def _prior(theta: Floats, length_means: Floats) -> tuple[float, Floats]:
    """Minus the logarithm of the normal densities of log length scales and log noise, and its gradient."""
    std = length_prior(len(theta) - 1)[1]
    lengths = (-0.5 * theta[:-1] - length_means) / std
    noise = (theta[-1] - NOISE_PRIOR[0]) / NOISE_PRIOR[1]
    return 0.5 * (lengths @ lengths + noise * noise), np.append(-0.5 * lengths / std, noise / NOISE_PRIOR[1])


def _weighted_residuals(factor: Floats, y: Floats) -> tuple[Floats, float]:
    """K⁻¹ (y - mean) and (y - mean)ᵀ K⁻¹ (y - mean) with the generalised least-squares mean."""
    both = scipy.linalg.lapack.dpotrs(factor, np.column_stack([y, np.ones_like(y)]), lower=1)[0]
    mean = both[:, 0].sum() / both[:, 1].sum()
    alpha = both[:, 0] - mean * both[:, 1]
    return alpha, float((y - mean) @ alpha)


@final
class GaussianProcess:
    """The posterior for given hyperparameters.

    `add_pending` adds pending points with their predicted means as values: the kriging believer of Ginsbourger, Le
    Riche and Carraro (in Computational Intelligence in Expensive Optimization Problems, 2010). The predicted mean does
    not change; the standard deviation near these points shrinks.

    Args:
        x: Shape (n, n_dimensions), as in `Likelihood`.
        y: Shape (n,), standardised values.
        is_category: Shape (n_dimensions,), bool.
        hyperparameters: The result of `Likelihood.fit`.
        variances: As in `Likelihood.fit`.

    Attributes:
        hyperparameters: As given.
        mean: The constant mean of the process.
        variance: The variance of the process.
    """

    def __init__(
        self, x: Floats, y: Floats, is_category: Bools, hyperparameters: Hyperparameters, variances: Floats
    ) -> None:
        self._is_category = is_category
        self._weights = np.exp(hyperparameters.log_weights)
        self._correlation = CORRELATIONS[hyperparameters.correlation]
        self.hyperparameters = hyperparameters
        self._x = x = hyperparameters.along_axes(x)
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

    def correlation(self, z: Floats, x: Floats) -> tuple[Floats, Floats]:
        """The correlations of `z` with `x`, and their derivatives with respect to r².

        Args:
            z: Shape (m, n_dimensions).
            x: Shape (n, n_dimensions).

        Returns:
            Both of shape (m, n).
        """
        numbers = ~self._is_category
        scale = np.sqrt(self._weights[numbers])
        left, right = z[:, numbers] * scale, x[:, numbers] * scale
        r2 = (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1)[None, :] - 2.0 * (left @ right.T)
        np.maximum(r2, 0.0, out=r2)
        for index in np.flatnonzero(self._is_category):
            r2 += self._weights[index] * (z[:, index][:, None] != x[:, index][None, :])
        return self._correlation(r2)

    def predict(self, z: Floats) -> tuple[Floats, Floats]:
        """The mean and the standard deviation of the function at `z` (m, n_dimensions); both of shape (m,).

        The constant mean of the process counts as known. The standard deviation does not include the noise.
        """
        values, _ = self.correlation(self.hyperparameters.along_axes(z), self._all_x)
        mean = self.mean + values[:, : len(self._x)] @ self._alpha
        white = self._inverse_factor @ values.T
        # 1e-12: at a point that is known without noise, rounding can make the variance negative
        return mean, np.sqrt(self.variance * np.maximum(1.0 - (white * white).sum(axis=0), 1e-12))

    def predict_with_slopes(self, z: Floats) -> tuple[float, float, Floats, Floats]:
        """Mean and standard deviation at one point `z` (n_dimensions,), and their gradients (0 for categories)."""
        z, axes = self.hyperparameters.along_axes(z), self.hyperparameters.axes
        values, slopes = (row[0] for row in self.correlation(z[None, :], self._all_x))
        white = _times_lower(self._inverse_factor, values)
        std = math.sqrt(self.variance * max(1.0 - float(white @ white), 1e-12))  # its slope has 1 / std
        by_point = (2.0 * slopes)[:, None] * ((z - self._all_x) * (self._weights * ~self._is_category))
        mean_slope = self._alpha @ by_point[: len(self._x)]
        std_slope = (-self.variance / std) * (_times_lower(self._inverse_factor, white, is_transposed=True) @ by_point)
        if axes is not None:
            mean_slope, std_slope = axes @ mean_slope, axes @ std_slope
        return self.mean + float(values[: len(self._x)] @ self._alpha), std, mean_slope, std_slope

    def add_pending(self, z: Floats) -> None:
        """Adds the pending points `z` (m, n_dimensions), with their predicted means as values."""
        if not len(z):
            return
        z = self.hyperparameters.along_axes(z)
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


def _times_lower(factor: Floats, vector: Floats, *, is_transposed: bool = False) -> Floats:
    """The product of a lower triangular matrix, or of its transpose, with a vector: shape (n,).

    Zeros are not read, which saves two thirds of the time where the matrix does not fit into the cache.
    """
    # BLAS takes columns first: the rows of a lower matrix are the columns of an upper one
    product: Floats = scipy.linalg.blas.dtrmv(factor.T, vector, trans=not is_transposed)
    return product


def _inverse_factor(matrix: Floats) -> Floats:
    """The inverse of the lower Cholesky factor of a correlation matrix. Jitter is added until the factor exists.

    Raises:
        numpy.linalg.LinAlgError: `matrix` has an entry that is not finite, or is far from positive definite.
    """
    if np.isfinite(matrix).all():
        for jitter in (0.0, *10.0 ** np.arange(-10.0, 1.0)):
            factor, failure = scipy.linalg.lapack.dpotrf(matrix + jitter * np.eye(len(matrix)), lower=1, clean=1)
            if not failure:
                return np.ascontiguousarray(np.tril(scipy.linalg.lapack.dtrtri(factor, lower=1)[0]))
    raise np.linalg.LinAlgError("the correlation matrix of the observed points has no Cholesky factor")
