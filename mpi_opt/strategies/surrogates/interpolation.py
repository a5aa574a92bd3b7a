"""Cubic radial basis function with a linear tail (Regis and Shoemaker, INFORMS J. Comput. 19, 2007, eqs. 1 to 3)."""

from __future__ import annotations

from typing import final

import numpy as np

from mpi_opt.core.arrays import Bools, Floats

SMOOTHING = 1e-6
"""Added to the diagonal, because two points may have the same row."""
CATEGORY_DISTANCE = 0.5
MAX_RESIDUAL = 1e-4
"""With a larger residual, a system counts as singular."""


@final
class CubicInterpolation:
    """Interpolates values at rows of an `Encoding`.

    Args:
        rows: Shape (n, n_dimensions), n ≥ 2.
        values: Shape (n,), finite.
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, rows: Floats, values: Floats, is_category: Bools) -> None:
        self._rows, self._is_category = rows, is_category
        n, tail = len(rows), self._tail(rows)
        n_tail = tail.shape[1]
        system = np.zeros((n + n_tail, n + n_tail))
        system[:n, :n] = self._cubes(rows) + SMOOTHING * np.eye(n)
        system[:n, n:], system[n:, :n] = tail, tail.T
        self._coefficients = _solved(system, np.append(values, np.zeros(n_tail)))

    def __call__(self, rows: Floats) -> Floats:
        """Predicted values at `rows` (m, n_dimensions): shape (m,)."""
        predicted: Floats = np.hstack([self._cubes(rows), self._tail(rows)]) @ self._coefficients
        return predicted

    def _cubes(self, rows: Floats) -> Floats:
        cubes: Floats = distances(rows, self._rows, self._is_category) ** 3
        return cubes

    def _tail(self, rows: Floats) -> Floats:
        return np.hstack([np.ones((len(rows), 1)), rows[:, ~self._is_category]])


def distances(rows: Floats, others: Floats, is_category: Bools) -> Floats:
    """Euclidean distances between `rows` (m, n_dimensions) and `others` (n, n_dimensions): shape (m, n).

    Two categories that differ are `CATEGORY_DISTANCE` apart.
    """
    found: Floats = np.sqrt(_squared_distances(rows, others, is_category))
    return found


def nearest_distances(rows: Floats, others: Floats, is_category: Bools) -> Floats:
    """The distance of each of `rows` (m, n_dimensions) from the nearest of `others` (n, n_dimensions): shape (m,)."""
    found: Floats = np.sqrt(_squared_distances(rows, others, is_category).min(axis=1))
    return found


def _squared_distances(rows: Floats, others: Floats, is_category: Bools) -> Floats:
    # the difference of squares would need no array of shape (m, n, n_dimensions), but loses the digits of near points
    found = np.zeros((len(rows), len(others)))
    for ours, theirs, is_unordered in zip(rows.T, others.T, is_category, strict=True):
        if is_unordered:
            found += CATEGORY_DISTANCE**2 * (ours[:, None] != theirs)
        else:
            difference = ours[:, None] - theirs
            difference *= difference
            found += difference
    return found


def _solved(system: Floats, values: Floats) -> Floats:
    """The solution of a linear system; of least norm if the system is (nearly) singular, as with few points."""
    try:
        solution = np.linalg.solve(system, values).astype(np.float64, copy=False)
        if np.abs(system @ solution - values).max() < MAX_RESIDUAL:
            return solution
    except np.linalg.LinAlgError:
        pass
    return np.linalg.lstsq(system, values, rcond=1e-10)[0].astype(np.float64, copy=False)
