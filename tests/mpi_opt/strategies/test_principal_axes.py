"""Principal axes, against those of quadratic functions that the tests construct."""

import numpy as np
import pytest
from scipy.stats import ortho_group

from mpi_opt.strategies.surrogates.fitting import Observations, Surrogate
from mpi_opt.strategies.surrogates.gaussian_process import GaussianProcess, Hyperparameters
from mpi_opt.strategies.surrogates.principal_axes import principal_axes

TURN = ortho_group.rvs(4, random_state=2)
NUMBERS = np.zeros(4, bool)


def points(n, seed=0):
    return 0.2 + 0.6 * np.random.default_rng(seed).random((n, 4))


def valley(x):
    """Its directions differ by a factor of 10,000."""
    return ((x - 0.45) @ TURN) ** 2 @ np.array([1.0, 30.0, 500.0, 10000.0])


def as_observed(x, y):
    return Observations(x, y, np.zeros(len(y)))


def test_axes_of_a_quadratic_function_are_its_eigenvectors():
    axes, n_angles = principal_axes(x := points(40), valley(x), NUMBERS)
    assert n_angles == 6
    np.testing.assert_allclose(np.abs(axes.T @ TURN), np.eye(4), atol=0.05)


def test_categories_and_constant_numbers_keep_their_axes():
    x = points(40)
    y = valley(x)
    x = np.column_stack([x[:, :2], np.arange(40) % 3, x[:, 2:], np.full(40, 0.5)])
    axes, _ = principal_axes(x, y, np.array([False, False, True, False, False, False]))
    for kept in (2, 5):
        np.testing.assert_array_equal(axes[kept], np.eye(6)[kept])
        np.testing.assert_array_equal(axes[:, kept], np.eye(6)[kept])


@pytest.mark.parametrize("n", [2, 17])
def test_too_few_values_have_no_axes(n):
    assert principal_axes(x := points(n), valley(x), NUMBERS)[0] is None


def test_a_process_along_axes_is_the_process_of_the_turned_points():
    x, z, lengths = points(20), points(5, seed=1), np.array([1.0, 0.0, 2.0, -1.0])
    y, variances = valley(x) / 1e3, np.zeros(20)
    ours = GaussianProcess(x, y, NUMBERS, Hyperparameters("matern", lengths, -8.0, TURN), variances)
    turned = GaussianProcess(x @ TURN, y, NUMBERS, Hyperparameters("matern", lengths, -8.0), variances)
    ours.add_pending(z[:1])
    turned.add_pending(z[:1] @ TURN)
    np.testing.assert_allclose(ours.predict(z), turned.predict(z @ TURN), rtol=1e-6)


def test_slopes_along_axes_are_those_of_finite_differences():
    x = points(20)
    hyperparameters = Hyperparameters("matern", np.ones(4), -8.0, TURN)
    model = GaussianProcess(x, valley(x) / 1e3, NUMBERS, hyperparameters, np.zeros(20))
    z = points(1, seed=1)[0]
    slopes = model.predict_with_slopes(z)[2:]
    for index, step in enumerate(1e-5 * np.eye(4)):
        for values, slope in zip(model.predict(np.array([z + step, z - step])), slopes, strict=True):
            assert slope[index] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-3, abs=1e-5)


def test_the_model_of_a_neighbourhood_has_the_axes_of_an_oblique_valley_only():
    def axes_of(function):
        model, _ = Surrogate(NUMBERS).fit_part(near := as_observed(x := points(40), function(x)), near)
        return model.hyperparameters.axes

    assert axes_of(valley) is not None
    assert axes_of(lambda x: np.sin(9 * x).sum(axis=1)) is None
