"""The recommended trial of a study with noisy figures of merit."""

import math

import numpy as np
import pytest

from mpi_opt import Categorical, Real, Study
from mpi_opt.core.figures import Measured
from mpi_opt.core.search_space.space import Space
from mpi_opt.strategies.surrogates.fitting import ExpectedValues

SPACE = Space({"x": Real(0, 1), "y": Real(0, 1)})
PLANE = {"x": Real(0, 1), "kind": Categorical(["a", "b"])}


def true_cost(point):
    return (point["x"] - 0.3) ** 2 + 2 * (point["y"] - 0.6) ** 2


def drawn(seed, noise, n=60, cost=true_cost):
    rng = np.random.default_rng(seed)
    points = [SPACE.sample(rng) for _ in range(n)]
    return points, [cost(point) + noise * rng.standard_normal() for point in points]


def test_the_best_expected_value_has_less_than_half_of_the_regret_of_the_smallest_value():
    lucky, expected = [], []
    for seed in range(20):
        points, costs = drawn(seed, noise=0.05)
        found = ExpectedValues(SPACE, points, costs)
        assert found.are_noisy
        expected.append(true_cost(points[int(np.argmin(found.means))]))
        lucky.append(true_cost(points[int(np.argmin(costs))]))
    assert np.mean(expected) < 0.5 * np.mean(lucky)


@pytest.mark.parametrize(
    "cost",
    [
        true_cost,
        lambda point: math.sin(9 * point["x"]) + math.cos(11 * point["y"]),
        lambda point: true_cost(point) + (point["x"] > 0.5),
    ],
    ids=["smooth", "waves", "step"],
)
def test_values_without_noise_are_not_taken_for_noisy(cost):
    assert not any(ExpectedValues(SPACE, *drawn(seed, 0.0, cost=cost)).are_noisy for seed in range(4))


def test_expected_values_are_within_their_standard_deviations():
    points, costs = drawn(0, noise=0.05)
    found = ExpectedValues(SPACE, points, [1e6 * cost for cost in costs])  # in other units
    errors = (found.means / 1e6 - [true_cost(point) for point in points]) / (found.stds / 1e6)
    assert 0.3 < np.std(errors) < 2.0


def test_penalties_have_no_expected_value():
    points, costs = drawn(0, noise=0.05)
    found = ExpectedValues(SPACE, points, [*costs[:-3], 1e9, 1e9, 1e9])
    assert np.isinf(found.means).tolist() == [False] * 57 + [True] * 3


def test_known_uncertainties_are_noise():
    points, costs = drawn(0, noise=0.0)
    assert ExpectedValues(SPACE, points, [Measured(cost, 0.2) for cost in costs]).are_noisy


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_best_is_the_trial_with_the_best_expected_value(tmp_path, direction):
    sign = 1 if direction == "minimize" else -1
    study = Study.create(f"sqlite:///{tmp_path}/noisy.db", "noisy", PLANE, trials=100, direction=direction)
    for x in np.linspace(0, 1, 24):
        study.add_trial({"x": float(x), "kind": "a"}, sign * ((x - 0.5) ** 2 + 0.05 * (-1) ** round(23 * x)))
    study.add_trial({"x": 0.95, "kind": "a"}, sign * -0.12)  # a lucky value at a bad point
    advice = study.recommendation
    assert advice.luckiest.number == 24
    assert study.best.number == advice.trial.number != 24
    assert abs(study.best.parameters["x"] - 0.5) < 0.2
    assert abs(advice.expected) < 0.1
    assert "trial 24 with the best figure of merit" in repr(study)


def test_best_is_the_smallest_value_without_noise(tmp_path):
    study = Study.create(f"sqlite:///{tmp_path}/exact.db", "exact", PLANE, trials=100)
    for x in np.linspace(0, 1, 15):
        study.add_trial({"x": float(x), "kind": "b"}, (x - 0.4) ** 2)
    assert study.recommendation is None
    assert study.best.figure_of_merit == min(one.figure_of_merit for one in study.trials)
