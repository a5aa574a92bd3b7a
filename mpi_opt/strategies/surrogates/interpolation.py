"""Cubic radial basis function with a linear tail (Regis and Shoemaker, INFORMS J. Comput. 19, 2007, eqs. 1 to 3)."""

from __future__ import annotations

from typing import final

import numpy as np

from mpi_opt.core.arrays import Bools, Floats, Ints

SMOOTHING = 1e-6
"""Added to the diagonal, because two points may have the same row."""
CATEGORY_DISTANCE = 0.5
MAX_RESIDUAL = 1e-4
"""With a larger residual, a system counts as singular."""


@final
class DistanceFactors:
    """Brings rows of an `Encoding` into two forms, whose product is the squared distance between two rows.

    One product of matrices takes the place of a loop over the dimensions, in a third of the time, and each row is
    brought into a form once. A distance has an error of about 1e-8. Two categories that differ are `CATEGORY_DISTANCE`
    apart.

    Args:
        is_category: Shape (n_dimensions,), bool.
        n_categories: Shape (n_dimensions,), int: the numbers of categories; not used for numbers.

    Attributes:
        is_category: Shape (n_dimensions,), bool.
        n_linear: The first `n_linear` left factors of a row are 1 and its numbers.
        n_factors: The number of factors of a row.
    """

    def __init__(self, is_category: Bools, n_categories: Ints) -> None:
        self.is_category, self._is_number = is_category, ~is_category
        unordered = np.flatnonzero(is_category)
        self._most = CATEGORY_DISTANCE**2 * len(unordered)  # between two rows that differ in all categories
        # a factor for each category, 1 where a row has it: its dimension and its index there
        self._dimensions = np.repeat(unordered, n_categories[unordered])
        self._categories = np.concatenate([np.zeros(0), *map(np.arange, n_categories[unordered])])
        self.n_linear = 1 + int(self._is_number.sum())
        self.n_factors = self.n_linear + 1 + len(self._dimensions)

    def left(self, rows: Floats) -> Floats:
        """The factors of `rows` (…, n_dimensions) on the left: shape (…, n_factors)."""
        found, n, numbers = np.empty((*rows.shape[:-1], self.n_factors)), self.n_linear, rows[..., self._is_number]
        found[..., 0], found[..., 1:n], found[..., n] = 1.0, numbers, (numbers * numbers).sum(axis=-1)
        found[..., n + 1 :] = rows[..., self._dimensions] == self._categories
        return found

    def right(self, rows: Floats) -> Floats:
        """The factors of `rows` (…, n_dimensions) on the right: shape (…, n_factors)."""
        found, n = self.left(rows), self.n_linear
        found[..., 0], found[..., n] = found[..., n] + self._most, 1.0
        found[..., 1:n] *= -2.0
        found[..., n + 1 :] *= -(CATEGORY_DISTANCE**2)
        return found


def nearest_distances(left: Floats, right: Floats) -> Floats:
    """The distance of each of m rows from the nearest of n rows: shape (…, m).

    Each matrix of `left` has a product of its own: the digits do not depend on how many there are.

    Args:
        left: The left factors of the m rows, shape (…, m, n_factors).
        right: The right factors of the n rows, shape (n, n_factors).
    """
    found: Floats = np.sqrt(np.maximum((left @ right.T).min(axis=-1), 0.0))
    return found


@final
class CubicInterpolation:
    """Interpolates values at rows of an `Encoding`.

    Args:
        rows: Shape (n, n_dimensions), n ≥ 2.
        values: Shape (n,), finite.
        factors: The factors of distances between rows.
    """

    def __init__(self, rows: Floats, values: Floats, factors: DistanceFactors) -> None:
        n, n_tail = len(rows), factors.n_linear
        tail = factors.left(rows)[:, :n_tail]
        system = np.zeros((n + n_tail, n + n_tail))
        system[:n, :n] = distances(rows, rows, factors.is_category) ** 3 + SMOOTHING * np.eye(n)
        system[:n, n:], system[n:, :n] = tail, tail.T
        coefficients = _solved(system, np.append(values, np.zeros(n_tail)))
        self._right, self._cubic, self._linear = factors.right(rows), coefficients[:n], coefficients[n:]

    def __call__(self, left: Floats) -> Floats:
        """Predicted values at m rows with the factors `left`, shape (…, m, n_factors): shape (…, m)."""
        squares = left @ self._right.T
        np.maximum(squares, 0.0, out=squares)
        cubes = np.sqrt(squares)
        cubes *= squares  # a power takes ten times as long
        predicted: Floats = cubes @ self._cubic
        return predicted + left[..., : len(self._linear)] @ self._linear


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


def _solved(system: Floats, values: Floats) -> Floats:
    """The solution of a linear system; of least norm if the system is (nearly) singular, as with few points."""
    try:
        solution = np.linalg.solve(system, values).astype(np.float64, copy=False)
        if np.abs(system @ solution - values).max() < MAX_RESIDUAL:
            return solution
    except np.linalg.LinAlgError:
        pass
    return np.linalg.lstsq(system, values, rcond=1e-10)[0].astype(np.float64, copy=False)
