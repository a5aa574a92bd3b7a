"""A Gaussian process of the costs of all configurations after any number of epochs.

The correlation of two costs is a Gaussian of the hyperparameters, times a constant plus a Gaussian of the logarithms of
the epochs, times a factor below 1 if the configurations differ: a part of each curve is its own. The constant lets the
model extrapolate. The mean of the process falls with the epochs as the curves do on average.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
MIN_LENGTH, MIN_LENGTH_OF_EPOCHS, MAX_NOISE = 0.15, 0.2, 0.1
"""Bounds of length scales and of the variance of the noise. With smaller length scales, the plateaus of a table, in
which a configuration stands for many points, made the length scales collapse."""


class Likelihood:
    """The posterior density of theta: the logarithms of 1 / length scale² of the hyperparameters and of the epochs, of
    minus the log factor of different configurations, the logit of the constant, and the logarithm of the noise.

    Args:
        x: Shape (n, n_dimensions + 2): hyperparameters, log epochs in [0, 1], number of the configuration.
        is_category: Shape (n_dimensions + 2,), bool; the last column is a category.
    """

    def __init__(self, x: np.ndarray, is_category: np.ndarray) -> None:
        self._rows, self._columns = np.tril_indices(len(x), -1)
        difference = x.T[:, self._rows] - x.T[:, self._columns]
        self._squares = difference * difference
        self._squares[is_category] = difference[is_category] != 0
        self._n, n_dimensions = len(x), x.shape[1] - 2
        self._mean = np.array([_log_weight(0.4 * math.sqrt(n_dimensions))] * n_dimensions + [_log_weight(0.6), -2, 0.5])
        self._mean = np.append(self._mean, math.log(1e-4))
        self._std = np.array([1.6] * n_dimensions + [1, 2, 1, 3])
        self._bounds = [(_log_weight(20), _log_weight(MIN_LENGTH))] * n_dimensions
        self._bounds += [(_log_weight(5), _log_weight(MIN_LENGTH_OF_EPOCHS)), (-7, 2), (-3, 3)]
        self._bounds += [(math.log(1e-6), math.log(MAX_NOISE))]

    def fit(self, y: np.ndarray, start: np.ndarray | None, max_iterations: int) -> np.ndarray:
        """The theta with the largest density that L-BFGS-B finds."""
        start = np.clip(self._mean if start is None else start, *np.array(self._bounds).T)
        options = {"maxiter": max_iterations}
        found = minimize(
            self.minus_log_density, start, (y,), "L-BFGS-B", jac=True, bounds=self._bounds, options=options
        )
        return found.x

    def minus_log_density(self, theta: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log density, up to a constant, and its gradient; mean and variance are eliminated."""
        weights, constant, noise = np.exp(theta[:-2]), _logistic(theta[-2]), math.exp(theta[-1])
        of_points = np.exp(-0.5 * (weights[:-2] @ self._squares[:-2] + weights[-1] * self._squares[-1]))
        of_epochs = np.exp(-0.5 * weights[-2] * self._squares[-2])
        values = of_points * (constant + (1 - constant) * of_epochs)
        matrix = np.zeros((self._n, self._n), order="F")
        matrix[self._rows, self._columns] = values
        np.fill_diagonal(matrix, 1 + noise)
        factor, failure = lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
        if failure:
            return 1e10, np.zeros_like(theta)
        inverse = np.tril(lapack.dpotri(factor, lower=1)[0])
        alpha, ones = lapack.dpotrs(factor, np.column_stack([y, np.ones(self._n)]), lower=1)[0].T
        mean = alpha.sum() / ones.sum()
        alpha = alpha - mean * ones
        scatter = (y - mean) @ alpha + 1
        gain = (self._n + 1) / scatter
        inner = inverse[self._rows, self._columns] - gain * alpha[self._rows] * alpha[self._columns]
        by_weight = self._squares @ (-0.5 * inner * values)
        by_weight[-2] = self._squares[-2] @ (-0.5 * inner * (1 - constant) * of_points * of_epochs)
        by_constant = inner @ (of_points * (1 - of_epochs)) * constant * (1 - constant)
        by_noise = 0.5 * noise * (np.trace(inverse) - gain * (alpha @ alpha))
        z = (theta - self._mean) / self._std
        density = 0.5 * (self._n + 1) * math.log(scatter) + np.log(np.diagonal(factor)).sum() + 0.5 * z @ z
        return density, np.concatenate([by_weight * weights, [by_constant, by_noise]]) + z / self._std


class Posterior:
    """The process given costs, and pending points, which have their predicted means as costs.

    Args:
        x: As of `Likelihood`.
        y: Shape (n,).
        is_category: As of `Likelihood`.
        theta: The result of `Likelihood.fit`.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, is_category: np.ndarray, theta: np.ndarray) -> None:
        self._is_category, self._weights = is_category, np.exp(theta[:-2])
        self._constant, self.noise = _logistic(theta[-2]), math.exp(theta[-1])
        matrix = self._correlations(x, x)
        matrix[np.diag_indices_from(matrix)] = 1 + self.noise
        self._inverse_factor = _inverse_factor(matrix)
        ones, white = self._inverse_factor @ np.ones(len(x)), self._inverse_factor @ y
        self._mean = float(ones @ white / (ones @ ones))
        residuals = white - self._mean * ones
        self._alpha = self._inverse_factor.T @ residuals
        self._variance, self._x = float((residuals @ residuals + 1) / (len(y) + 1)), x

    def predict(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean and the standard deviation at `z` (m, n_dimensions + 2); both of shape (m,)."""
        values = self._correlations(z, self._x)
        white = values @ self._inverse_factor.T
        variances = np.maximum(1 - (white * white).sum(axis=1), 1e-12)
        return self._mean + values[:, : len(self._alpha)] @ self._alpha, np.sqrt(self._variance * variances)

    def resolved(self, z: np.ndarray, last: np.ndarray) -> np.ndarray:
        """The standard deviation of the change of the mean at `last` by an observation at `z`: shape (m,).

        Row i of both is the same configuration, after some and after all epochs.
        """
        one, other = (self._correlations(each, self._x) @ self._inverse_factor.T for each in (z, last))
        covariances = self._of_epochs(z[:, -2] - last[:, -2]) - (one * other).sum(axis=1)
        variances = np.maximum(1 - (one * one).sum(axis=1), 1e-12) + self.noise
        return np.sqrt(self._variance * np.maximum(covariances * covariances / variances, 1e-12))

    def add_pending(self, z: np.ndarray) -> None:
        """Adds pending points `z` (m, n_dimensions + 2)."""
        white = self._inverse_factor @ self._correlations(z, self._x).T
        left = self._correlations(z, z) - white.T @ white
        left[np.diag_indices_from(left)] += self.noise
        corner, n = _inverse_factor(left), len(self._x)
        grown = np.zeros((n + len(z), n + len(z)))
        grown[:n, :n], grown[n:, n:] = self._inverse_factor, corner
        grown[n:, :n] = -corner @ (white.T @ self._inverse_factor)
        self._inverse_factor, self._x = grown, np.vstack([self._x, z])

    def _correlations(self, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        numbers = ~self._is_category
        numbers[-2] = False
        scale = np.sqrt(self._weights[numbers])
        left, right = z[:, numbers] * scale, x[:, numbers] * scale
        r2 = np.maximum((left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1) - 2 * left @ right.T, 0)
        for index in np.flatnonzero(self._is_category):
            r2 += self._weights[index] * (z[:, index][:, None] != x[:, index])
        return np.exp(-0.5 * r2) * self._of_epochs(z[:, -2][:, None] - x[:, -2])

    def _of_epochs(self, difference: np.ndarray) -> np.ndarray:
        return self._constant + (1 - self._constant) * np.exp(-0.5 * self._weights[-2] * difference * difference)


def _log_weight(length: float) -> float:
    return -2 * math.log(length)


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def _inverse_factor(matrix: np.ndarray) -> np.ndarray:
    """The inverse of the lower Cholesky factor."""
    for jitter in JITTERS:
        factor, failure = lapack.dpotrf(matrix + jitter * np.eye(len(matrix)), lower=1, clean=1)
        if not failure:
            return np.tril(lapack.dtrtri(factor, lower=1)[0])
    raise np.linalg.LinAlgError("the correlation matrix has no Cholesky factor")
