"""The interpolation that chooses among children, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import RBFInterpolator

from mpi_opt.strategies.surrogates.interpolation import CubicInterpolation, distances, nearest_distances

N_DIMENSIONS = 3
NUMBERS = np.zeros(N_DIMENSIONS, dtype=bool)
RNG = np.random.default_rng(3)
ROWS = RNG.random((40, N_DIMENSIONS))
VALUES = ((ROWS - 0.4) ** 2).sum(axis=1) + np.sin(5 * ROWS[:, 0])
OTHERS = RNG.random((25, N_DIMENSIONS))


def test_numbers_are_interpolated_as_scipy_does() -> None:
    expected = RBFInterpolator(ROWS, VALUES, kernel="cubic", degree=1)(OTHERS)
    assert CubicInterpolation(ROWS, VALUES, NUMBERS)(OTHERS) == pytest.approx(expected, abs=1e-4)


def test_points_in_one_plane_and_repeated_points_are_survived() -> None:
    rows = np.vstack([ROWS[:5], ROWS[:5]])
    rows[:, 1] = 0.5
    guesses = CubicInterpolation(rows, np.tile(VALUES[:5], 2), NUMBERS)(rows)
    assert guesses == pytest.approx(np.tile(VALUES[:5], 2), abs=0.02)


def test_a_category_is_as_far_from_any_other() -> None:
    rows = np.array([[0.0, 0.0], [0.0, 2.0], [0.3, 0.0]])
    found = distances(rows, np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([False, True]))
    assert found == pytest.approx(np.array([[0.5, 0.0], [0.5, 0.5], [np.sqrt(0.34), 0.3]]))
    nearest = nearest_distances(rows, np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([False, True]))
    assert nearest == pytest.approx(np.array([0.0, 0.5, 0.3]))
