"""A cubic radial basis function through points: the cheapest guess of what lies between (Regis and Shoemaker 2007)."""

from __future__ import annotations

from typing import final

import numpy as np

SMOOTHING = 1e-6
CATEGORY_DISTANCE = 0.5


@final
class CubicInterpolation:
    """Interpolates values at rows of an `Encoding`.

    Args:
        rows: Shape (n, n_dimensions), n ≥ 2.
        values: Shape (n,), finite.
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, rows: np.ndarray, values: np.ndarray, is_category: np.ndarray) -> None:
        self._rows, self._is_category = rows, is_category
        n, tail = len(rows), self._tail(rows)
        n_tail = tail.shape[1]
        system = np.zeros((n + n_tail, n + n_tail))
        system[:n, :n] = self._cubes(rows) + SMOOTHING * np.eye(n)
        system[:n, n:], system[n:, :n] = tail, tail.T
        right = np.concatenate([values, np.zeros(n_tail)])
        self._solution = np.linalg.lstsq(system, right, rcond=1e-10)[0]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Guessed values at `rows` (m, n_dimensions): shape (m,)."""
        return np.hstack([self._cubes(rows), self._tail(rows)]) @ self._solution

    def _cubes(self, rows: np.ndarray) -> np.ndarray:
        difference = rows[:, None, :] - self._rows[None, :, :]
        difference[:, :, self._is_category] = CATEGORY_DISTANCE * (difference[:, :, self._is_category] != 0)
        return np.sqrt((difference * difference).sum(axis=2)) ** 3

    def _tail(self, rows: np.ndarray) -> np.ndarray:
        return np.hstack([np.ones((len(rows), 1)), rows[:, ~self._is_category]])
