"""A cubic radial basis function through points: the cheapest guess of what lies between (Regis and Shoemaker 2007)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

SMOOTHING = 1e-6
CATEGORY_DISTANCE = 0.5
LARGEST_RESIDUAL = 1e-4


@final
class CubicInterpolation:
    """Interpolates values at rows of an `Encoding`.

    Of several transformations of the values the one is taken under which points that are left out are guessed best, by
    their order among the better half; to leave one out costs nothing once the system is inverted (Rippa 1999, eq. 13).

    Args:
        rows: Shape (n, n_dimensions), n ≥ 2.
        transformed: The values, each of shape (n,), finite, transformed in one or several ways that keep their order.
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, rows: np.ndarray, transformed: Sequence[np.ndarray], is_category: np.ndarray) -> None:
        self._rows, self._is_category = rows, is_category
        n, tail = len(rows), self._tail(rows)
        n_tail = tail.shape[1]
        system = np.zeros((n + n_tail, n + n_tail))
        system[:n, :n] = self._cubes(rows) + SMOOTHING * np.eye(n)
        system[:n, n:], system[n:, :n] = tail, tail.T
        inverse = _inverted(system)
        solutions = [inverse[:, :n] @ values for values in transformed]
        scale = np.diagonal(inverse)[:n]
        scale = np.where(scale == 0, 1.0, scale)
        left_out = [values - found[:n] / scale for values, found in zip(transformed, solutions, strict=True)]
        agreements = [_agreement(guesses, values) for guesses, values in zip(left_out, transformed, strict=True)]
        self._solution = solutions[int(np.argmax(agreements))]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Guessed values at `rows` (m, n_dimensions), in the units of the transformation taken: shape (m,)."""
        return np.hstack([self._cubes(rows), self._tail(rows)]) @ self._solution

    def _cubes(self, rows: np.ndarray) -> np.ndarray:
        return distances(rows, self._rows, self._is_category) ** 3

    def _tail(self, rows: np.ndarray) -> np.ndarray:
        return np.hstack([np.ones((len(rows), 1)), rows[:, ~self._is_category]])


def distances(rows: np.ndarray, others: np.ndarray, is_category: np.ndarray) -> np.ndarray:
    """From each of `rows` (m, n_dimensions) to each of `others` (n, n_dimensions): shape (m, n)."""
    numbers = ~is_category
    difference = rows[:, None, numbers] - others[None, :, numbers]
    n_differing = (rows[:, None, is_category] != others[None, :, is_category]).sum(axis=2)
    return np.sqrt((difference * difference).sum(axis=2) + CATEGORY_DISTANCE**2 * n_differing)


def _inverted(system: np.ndarray) -> np.ndarray:
    """The inverse; of a matrix that is close to singular the pseudoinverse, which costs ten times as much."""
    try:
        inverse = np.linalg.inv(system)
        if np.abs(system @ inverse - np.eye(len(system))).max() < LARGEST_RESIDUAL:
            return inverse
    except np.linalg.LinAlgError:  # exactly singular: few points, or all in one plane
        pass
    return np.linalg.pinv(system, rcond=1e-10, hermitian=True)


def _agreement(guesses: np.ndarray, values: np.ndarray) -> float:
    """The rank correlation of both among the better half of `values`; both shape (n,)."""
    best = np.argsort(values, kind="stable")[: max(len(values) // 2, 2)]
    ranks = np.argsort(np.argsort(guesses[best], kind="stable"), kind="stable")
    return float(np.corrcoef(ranks, np.arange(len(best)))[0, 1])
