import math

import numpy as np
import pytest
from skopt import acquisition

from mpi_opt.core.search_space.space import Categorical, Real, Space
from mpi_opt.core.trial import Failed
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import make_strategy
from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.surrogates.gaussian_process import GaussianProcess, Hyperparameters
from mpi_opt.strategies.surrogates.proposing.acquisition import (
    Acquisition,
    ExpectedImprovement,
    LogExpectedImprovement,
    LowerConfidenceBound,
    ProbabilityOfImprovement,
)
from mpi_opt.strategies.surrogates.proposing.maximize import maximize
from mpi_opt.testing.strategy_tests import run

NAMES = ("log-ei", "ei", "pi", "lcb")
CRITERIA = [
    LogExpectedImprovement(0.2),
    ExpectedImprovement(0.2),
    ProbabilityOfImprovement(0.2),
    LowerConfidenceBound(2.5),
]
MEANS, STDS, BEST = np.linspace(-2.0, 4.0, 13), np.linspace(0.1, 1.3, 13), 0.7


class Predicted:
    """A model with scikit-optimize's interface that predicts its input: rows of mean and standard deviation."""

    def predict(self, rows, return_std=True):
        return rows[:, 0], rows[:, 1]


def test_criteria_are_those_of_scikit_optimize():
    rows = np.column_stack([MEANS, STDS])
    log_ei, ei, pi, lcb = (criterion.values(MEANS, STDS, BEST) for criterion in CRITERIA)
    theirs = acquisition.gaussian_ei(rows, Predicted(), y_opt=BEST, xi=0.2)
    np.testing.assert_allclose(ei, theirs, rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(np.exp(log_ei), theirs, rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(np.exp(pi), acquisition.gaussian_pi(rows, Predicted(), y_opt=BEST, xi=0.2), rtol=1e-6)
    np.testing.assert_allclose(-lcb, acquisition.gaussian_lcb(rows, Predicted(), kappa=2.5), rtol=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA, ids=NAMES)
def test_slopes_are_those_of_finite_differences(criterion):
    def value(mean, std):
        return criterion.values(np.array([mean]), np.array([std]), BEST)[0]

    step = 1e-6
    for mean, std in zip(MEANS, STDS, strict=True):
        by_mean = (value(mean + step, std) - value(mean - step, std)) / (2 * step)
        by_std = (value(mean, std + step) - value(mean, std - step)) / (2 * step)
        assert criterion.slopes(mean, std, BEST) == pytest.approx((by_mean, by_std), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("criterion", CRITERIA, ids=NAMES)
@pytest.mark.parametrize("has_failures", [False, True])
def test_slope_of_a_gain_is_the_one_of_finite_differences(criterion, has_failures):
    x = np.random.default_rng(0).random((12, 2))
    model = GaussianProcess(
        x, np.sin(5 * x[:, 0]) - x[:, 1], np.zeros(2, bool), Hyperparameters.default(2), np.zeros(12)
    )
    gain = Acquisition(model, -0.5, criterion, (lambda rows: np.full(len(rows), -0.4)) if has_failures else None)
    row = np.array([0.35, 0.6])
    value, slope = gain.with_slope(row)
    assert value == pytest.approx(gain(row[None, :])[0])
    for index, step in enumerate(1e-5 * np.eye(2)):
        up, down = gain(np.array([row + step, row - step]))
        assert slope[index] == pytest.approx((up - down) / 2e-5, rel=1e-3, abs=1e-6)


def test_points_without_improvement_are_ranked_but_not_by_plain_expected_improvement():
    means, stds = np.array([60.0, 50.0]), np.array([1.0, 1.0])
    for name, criterion in zip(NAMES, CRITERIA, strict=True):
        worse, better = criterion.values(means, stds, BEST)
        assert worse == better == 0.0 if name == "ei" else worse < better


def bowl(proposal):
    """0 at x = 0.3, y = 0.6 of kind b."""
    point = proposal.parameters
    return (point["x"] - 0.3) ** 2 + 2 * (point["y"] - 0.6) ** 2 + 0.2 * (point["kind"] != "b")


@pytest.mark.parametrize("name", NAMES)
def test_each_finds_the_minimum(name):
    space = Space({"x": Real(0, 1), "y": Real(0, 1), "kind": Categorical(("a", "b", "c"))})
    strategy = make_strategy("bayesian", space, seed=0, options={"acquisition": name})
    outcome = lambda one: Failed("memory") if one.parameters["x"] > 0.8 else bowl(one)  # noqa: E731
    _, told = run(strategy, space, 30, outcome=outcome)
    assert min(value for _, value in told if isinstance(value, float)) < 1e-3


@pytest.mark.parametrize(
    ("greedy", "curious"),
    [
        ({"acquisition": "lcb", "kappa": 0.1}, {"kappa": 30.0}),
        ({"acquisition": "pi", "xi": 0.0}, {"xi": 3.0}),
        ({"acquisition": "log-ei", "xi": 0.0}, {"xi": 3.0}),
    ],
)
def test_a_large_kappa_or_xi_explores(greedy, curious):
    """Exploration evaluates points with worse expected values."""
    space = Space({"x": Real(0, 1), "y": Real(0, 1)})
    costs = []
    for options in (greedy, greedy | curious):
        strategy = make_strategy("bayesian", space, seed=0, options=options)
        _, told = run(strategy, space, 22, outcome=lambda one: sum((x - 0.3) ** 2 for x in one.parameters.values()))
        costs.append(np.mean([value for _, value in told[10:]]))
    assert costs[1] > 2 * costs[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acquisition": "EI"}, "did you mean ei?"),
        ({"acquisition": "lcb", "xi": 0.1}, "lcb has no xi"),
        ({"kappa": 2.0}, "log-ei has no kappa"),
        ({"acquisition": "lcb", "kappa": -1.0}, "kappa"),
        ({"acquisition": "pi", "xi": math.nan}, "xi"),
    ],
)
def test_invalid_values_are_refused_with_a_message(options, message):
    with pytest.raises(ConfigurationError, match=message):
        make_strategy("bayesian", Space({"x": Real(0, 1)}), options=options)


def test_changes_of_an_inactive_hyperparameter_are_no_improvement():
    """`form` exists for the kind `a` alone, and a model may expect more of values that it has never seen."""
    space = Space({"kind": Categorical(["a", "b", "c"]), "form": Categorical(["x", "y", "z"], when={"kind": "a"})})
    encoding = Encoding(space)
    (start,), (best,) = encoding.rows([{"kind": "c"}]), encoding.rows([{"kind": "b"}])

    class Deceived:
        resolution = 0.0

        def __call__(self, rows):
            is_other_form = rows[:, 1] != start[1]
            return (
                np.where(rows[:, 0] == start[0], 0.0, np.where(rows[:, 0] == best[0], 1.0, -1.0)) + 5.0 * is_other_form
            )

    low, high = np.zeros(2), np.ones(2)
    found = maximize(Deceived(), encoding, start[None, :], low, high, lambda row: True, 1)
    assert encoding.point(found) == {"kind": "b"}


def test_a_local_search_ends_if_no_change_of_a_category_is_an_improvement():
    class Peak:
        """The maximum is at 0.3, whatever the category."""

        resolution, n_slopes = 0.0, 0

        def __call__(self, rows):
            return -((rows[:, 0] - 0.3) ** 2)

        def with_slope(self, row):
            self.n_slopes += 1
            return -((row[0] - 0.3) ** 2), np.array([0.6 - 2.0 * row[0], 0.0])

    def searched(space):
        peak, encoding = Peak(), Encoding(Space(space))
        starts = np.full((1, len(space)), 0.0)
        found = maximize(peak, encoding, starts, np.zeros(len(space)), np.ones(len(space)), lambda row: True, 1)
        assert found[0] == pytest.approx(0.3)
        return peak.n_slopes

    without_category = searched({"x": Real(0, 1), "y": Real(0, 1)})
    assert searched({"x": Real(0, 1), "c": Categorical(("a", "b", "d"))}) == without_category
