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
        system[:n, :n] = distances(rows, rows, is_category) ** 3 + SMOOTHING * np.eye(n)
        system[:n, n:], system[n:, :n] = tail, tail.T
        self._coefficients = _solved(system, np.append(values, np.zeros(n_tail)))

    def __call__(self, rows: Floats) -> Floats:
        """Predicted values at `rows` (…, m, n_dimensions): shape (…, m)."""
        squares = _squares_at_once(rows, self._rows, self._is_category)
        n = len(self._rows)
        # a power takes ten times as long as a square root and a product
        predicted: Floats = (squares * np.sqrt(squares)) @ self._coefficients[:n]
        return predicted + self._tail(rows) @ self._coefficients[n:]

    def _tail(self, rows: Floats) -> Floats:
        return np.concatenate([np.ones((*rows.shape[:-1], 1)), rows[..., ~self._is_category]], axis=-1)


def distances(rows: Floats, others: Floats, is_category: Bools) -> Floats:
    """Euclidean distances between `rows` (m, n_dimensions) and `others` (n, n_dimensions): shape (m, n).

    Two categories that differ are `CATEGORY_DISTANCE` apart.
    """
    # the difference of squares would need no loop, but loses the digits of near points
    squares = np.zeros((len(rows), len(others)))
    for ours, theirs, is_unordered in zip(rows.T, others.T, is_category, strict=True):
        if is_unordered:
            squares += CATEGORY_DISTANCE**2 * (ours[:, None] != theirs)
        else:
            difference = ours[:, None] - theirs
            squares += difference * difference
    found: Floats = np.sqrt(squares)
    return found


def nearest_distances(rows: Floats, others: Floats, is_category: Bools) -> Floats:
    """The distance of each of `rows` (…, m, n_dimensions) from the nearest of `others` (n, n_dimensions): (…, m)."""
    found: Floats = np.sqrt(_squares_at_once(rows, others, is_category).min(axis=-1))
    return found


def _squares_at_once(rows: Floats, others: Floats, is_category: Bools) -> Floats:
    """Squared distances of `rows` (…, m, n_dimensions) from `others` (n, n_dimensions): shape (…, m, n).

    One product of matrices in place of a loop over the dimensions, in a third of the time. A distance has an error of
    about 1e-8. Each matrix of `rows` has a product of its own: the digits do not depend on how many there are.
    """
    ours, theirs = rows[..., ~is_category], others[:, ~is_category]
    left = [ours, (ours * ours).sum(axis=-1, keepdims=True), np.ones((*rows.shape[:-1], 1))]
    n_categories = np.count_nonzero(is_category)
    squares = (theirs * theirs).sum(axis=1, keepdims=True) + CATEGORY_DISTANCE**2 * n_categories
    right = [-2.0 * theirs, np.ones((len(others), 1)), squares]
    for index in np.flatnonzero(is_category):  # a column for each category, 1 where a row has it
        known = np.arange(others[:, index].max(initial=-1.0) + 1.0)
        left.append(rows[..., index, None] == known)
        right.append(-(CATEGORY_DISTANCE**2) * (others[:, index, None] == known))
    found: Floats = np.concatenate(left, axis=-1) @ np.concatenate(right, axis=-1).T
    return np.maximum(found, 0.0, out=found)


def _solved(system: Floats, values: Floats) -> Floats:
    """The solution of a linear system; of least norm if the system is (nearly) singular, as with few points."""
    try:
        solution = np.linalg.solve(system, values).astype(np.float64, copy=False)
        if np.abs(system @ solution - values).max() < MAX_RESIDUAL:
            return solution
    except np.linalg.LinAlgError:
        pass
    return np.linalg.lstsq(system, values, rcond=1e-10)[0].astype(np.float64, copy=False)
