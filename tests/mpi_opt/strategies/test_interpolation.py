"""The interpolation that chooses among children, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import RBFInterpolator

from mpi_opt.strategies.surrogates.interpolation import (
    CubicInterpolation,
    DistanceFactors,
    distances,
    nearest_distances,
)

N_DIMENSIONS = 3
NUMBERS = DistanceFactors(np.zeros(N_DIMENSIONS, dtype=bool), np.zeros(N_DIMENSIONS, dtype=int))
RNG = np.random.default_rng(3)
ROWS = RNG.random((40, N_DIMENSIONS))
VALUES = ((ROWS - 0.4) ** 2).sum(axis=1) + np.sin(5 * ROWS[:, 0])
OTHERS = RNG.random((25, N_DIMENSIONS))


def test_numbers_are_interpolated_as_scipy_does() -> None:
    expected = RBFInterpolator(ROWS, VALUES, kernel="cubic", degree=1)(OTHERS)
    assert CubicInterpolation(ROWS, VALUES, NUMBERS)(NUMBERS.left(OTHERS)) == pytest.approx(expected, abs=1e-4)


def test_points_in_one_plane_and_repeated_points_are_survived() -> None:
    rows = np.vstack([ROWS[:5], ROWS[:5]])
    rows[:, 1] = 0.5
    guesses = CubicInterpolation(rows, np.tile(VALUES[:5], 2), NUMBERS)(NUMBERS.left(rows))
    assert guesses == pytest.approx(np.tile(VALUES[:5], 2), abs=0.02)


def test_a_category_is_as_far_from_any_other() -> None:
    rows = np.array([[0.0, 0.0], [0.0, 2.0], [0.3, 0.0]])
    others, is_category = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([False, True])
    found = distances(rows, others, is_category)
    assert found == pytest.approx(np.array([[0.5, 0.0], [0.5, 0.5], [np.sqrt(0.34), 0.3]]))
    factors = DistanceFactors(is_category, np.array([0, 3]))
    nearest = nearest_distances(factors.left(rows), factors.right(others))
    assert nearest == pytest.approx(np.array([0.0, 0.5, 0.3]))


def test_distances_as_a_product_are_those_of_the_sum_over_the_dimensions() -> None:
    is_category = np.array([False, True, False, True])
    rows, others = (np.column_stack([RNG.random(n), RNG.integers(3, size=n)] * 2) for n in (20, 7))
    factors = DistanceFactors(is_category, np.array([0, 3, 0, 5]))
    expected = distances(rows, others, is_category).min(axis=1)
    found = nearest_distances(factors.left(rows.reshape(4, 5, 4)), factors.right(others))
    assert found == pytest.approx(expected.reshape(4, 5), abs=1e-7)
