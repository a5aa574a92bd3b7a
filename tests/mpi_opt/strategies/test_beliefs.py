"""The beliefs of a user about the best point (`expect`)."""

import math

import numpy as np
import pytest

from mpi_opt import Categorical, Integer, Real
from mpi_opt.core.search_space.space import Space
from mpi_opt.core.search_space.space_changes import means_the_same
from mpi_opt.errors import ConfigurationError, SpaceError
from mpi_opt.store.schema import space_from_json, space_to_json
from mpi_opt.strategies import make_strategy
from mpi_opt.strategies.points.beliefs import Beliefs

RATE = Real(1e-5, 1, prior="log-uniform", expect={"value": 3e-3, "factor": 3})
SHARE = Real(0, 1, expect={"value": 0.25, "spread": 0.1})
KIND = Categorical(["a", "b", "c"], expect={"value": "b", "factor": 4})


def density(dimension, units):
    beliefs = Beliefs(Space({"x": dimension}))
    return np.exp(beliefs.log_density(np.array(units, dtype=float).reshape(-1, 1)))


@pytest.mark.parametrize("dimension", [RATE, SHARE, Real(0, 1, expect={"value": 0, "spread": 0.3})])
def test_the_density_of_a_number_has_the_integral_one_and_its_mode_at_the_value(dimension):
    units = (np.arange(100_000) + 0.5) / 100_000
    found = density(dimension, units)
    assert found.mean() == pytest.approx(1.0, rel=1e-4)
    assert units[found.argmax()] == pytest.approx(dimension.encode(dimension.expect["value"]), abs=1e-4)


def test_about_two_thirds_of_the_belief_are_within_the_factor():
    low, high = RATE.encode(1e-3), RATE.encode(9e-3)
    units = (np.arange(100_000) + 0.5) / 100_000
    inside = density(RATE, units)[(units > low) & (units < high)].sum() / 100_000
    assert inside == pytest.approx(0.9 * 0.683 + 0.1 * (high - low), abs=0.005)


def test_an_expected_category_is_as_many_times_as_likely_as_the_factor_says():
    assert density(KIND, [0, 1, 2]) == pytest.approx([0.5, 2.0, 0.5])


def test_the_slope_of_the_density_is_its_derivative():
    beliefs, row, step = Beliefs(Space({"rate": RATE, "kind": KIND, "share": SHARE})), np.array([0.61, 1.0, 0.4]), 1e-6
    shifts = step * np.eye(3)[[0, 2]]
    expected = (beliefs.log_density(row + shifts) - beliefs.log_density(row - shifts)) / (2 * step)
    assert beliefs.slope(row) == pytest.approx([expected[0], 0.0, expected[1]], rel=1e-5)


def test_a_hyperparameter_that_does_not_exist_at_a_point_counts_as_one_without_a_belief():
    momentum = Real(0, 1, when={"kind": "a"}, expect={"value": 0.5, "spread": 0.1})
    beliefs = Beliefs(Space({"kind": Categorical(["a", "b"]), "momentum": momentum}))
    with_it, without = beliefs.log_density(np.array([[0, 0.5], [1, 0.5]]))
    assert with_it > 1.0
    assert without == 0.0
    assert beliefs.slope(np.array([1, 0.4])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("strategy", ["auto", "bayesian", "evolutionary"])
def test_the_first_trial_is_the_expected_point(strategy):
    units = Integer(8, 512, prior="log-uniform", expect={"value": 64})
    (first,) = make_strategy(strategy, {"rate": RATE, "units": units, "kind": KIND}, seed=3).ask(1)
    assert first.parameters == {"rate": pytest.approx(3e-3), "units": 64, "kind": "b"}


@pytest.mark.parametrize("strategy", ["bayesian", "evolutionary"])
def test_the_expected_point_follows_known_points_and_is_tried_once(strategy):
    known, expected = {"kind": "a", "share": 0.9}, {"kind": "b", "share": pytest.approx(0.25)}
    space = {"kind": KIND, "share": SHARE, "other": Real(0, 1)}
    points = [known | {"other": 0.5}, known | {"other": 0.6}]
    searched = make_strategy(strategy, space, seed=3, options={"initial": points})
    asked = searched.ask(8)
    assert [one.parameters for one in asked[:2]] == points
    assert asked[2].parameters.items() >= expected.items()
    of_point_0 = make_strategy(strategy, space, seed=3).ask(1)[0].parameters
    assert [one.number for one in asked if one.parameters == of_point_0] == [2]
    resumed = make_strategy(strategy, space, seed=3, options={"initial": points})
    resumed.resume([(one, float(one.number)) for one in asked[:4]])
    assert [one.parameters for one in resumed.ask(2)] == [one.parameters for one in asked[4:6]]


@pytest.mark.parametrize(
    ("dimension", "stored"),
    [
        (Integer(8, 512, expect={"value": np.int64(64), "factor": np.float32(2.5)}), {"value": 64, "factor": 2.5}),
        (Integer(8, 512, expect={"value": 64.0, "spread": 3}), {"value": 64, "spread": 3}),
        (Real(0, 1, expect={"value": np.float32(0.3)}), {"value": 0.3}),
        (Categorical(["a", "b"], expect={"value": np.str_("b")}), {"value": "b"}),
    ],
)
def test_a_belief_may_have_numpy_scalars_and_whole_floats(dimension, stored):
    assert dimension.expect == stored
    assert [type(value) for value in dimension.expect.values()] == [type(value) for value in stored.values()]
    space = Space({"x": dimension})
    assert space_from_json(space_to_json(space)) == space


def regrets(space, optimum, n_trials, seed):
    """The regret of the best point of a quadratic function after each trial."""
    strategy, best = make_strategy("bayesian", space, seed=seed), []
    for _ in range(n_trials):
        (proposal,) = strategy.ask(1)
        cost = float(np.sum((np.array(list(proposal.parameters.values())) - optimum) ** 2))
        strategy.tell(proposal, cost)
        best.append(min([cost, *best[-1:]]))
    return best


def cube(expected=None):
    given = {} if expected is None else {"expect": {"value": expected, "spread": 0.1}}
    return {f"x{index}": Real(0, 1, **given) for index in range(4)}


def test_a_good_belief_speeds_up_a_search_and_a_wrong_one_is_forgotten():
    good, none = (regrets(cube(at), 0.75, 13, seed=0) for at in (0.65, None))
    assert good[-1] < 0.5 * none[-1]
    assert regrets(cube(0.15), 0.75, 30, seed=0)[-1] < 1e-4


@pytest.mark.parametrize(
    ("expect", "where", "said"),
    [
        ({"factor": 3}, "expect", "expected a mapping with value and factor or spread, not {'factor': 3}"),
        (0.003, "expect", "expected a mapping with value and factor or spread, not 0.003"),
        ({"value": 0.5, "width": 3}, "expect", "expected a mapping with value and factor or spread, not {'value': 0.5"),
        ({"value": 0.5, "factor": 1}, "expect.factor", "expected a number above 1, not 1"),
        ({"value": 0.5, "factor": "3"}, "expect.factor", "expected a number above 1, not '3'"),
        ({"value": 0.5, "factor": math.inf}, "expect.factor", "expected a number above 1, not inf"),
        ({"value": 0.5, "spread": 0}, "expect.spread", "expected a number above 0, not 0"),
        ({"value": 0.5, "spread": True}, "expect.spread", "expected a number above 0, not True"),
        ({"value": 0.5, "spread": 0.1, "factor": 2}, "expect", "factor and spread exclude each other"),
        ({"value": 0.0, "factor": 2}, "expect.value", "a factor needs a value above 0, not 0.0"),
        ({"value": 2.0}, "expect.value", "2.0"),
        ({"value": "a"}, "expect.value", "expected a number, not 'a'"),
        ({"value": "a", "spread": 0.1}, "expect.value", "expected a number, not 'a'"),
    ],
)
def test_an_invalid_belief_is_refused_with_its_place_and_its_value(expect, where, said):
    with pytest.raises(SpaceError) as error:
        Real(0.0, 1.0, expect=expect)
    assert error.value.where == where
    assert said in str(error.value)
    assert error.value.cure


def test_a_category_has_no_spread_and_must_be_one_of_the_categories():
    with pytest.raises(SpaceError, match="factor"):
        Categorical(["a", "b"], expect={"value": "a", "spread": 1})
    with pytest.raises(SpaceError, match="'c' is not one"):
        Categorical(["a", "b"], expect={"value": "c"})


@pytest.mark.parametrize("strategy", ["random", "grid", "halving", "population"])
def test_a_strategy_that_does_not_use_beliefs_refuses_them(strategy):
    with pytest.raises(ConfigurationError, match=f"{strategy} does not use beliefs"):
        make_strategy(strategy, {"kind": KIND})


def test_the_store_keeps_beliefs_and_another_belief_is_no_other_space():
    space = Space({"rate": RATE, "kind": KIND})
    assert space_from_json(space_to_json(space)) == space
    without = Space({"rate": Real(1e-5, 1, prior="log-uniform"), "kind": Categorical(["a", "b", "c"])})
    assert means_the_same(space, without)
