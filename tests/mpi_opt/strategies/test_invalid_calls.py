"""Invalid calls by a program that drives a strategy: each is refused at once, and changes nothing.

All strategies share the checks. The full list of values is tried with one strategy, and one value with each other.
"""

import math

import numpy as np
import pytest

from mpi_opt.core.figures import Measured
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError, SpaceError
from mpi_opt.strategies import STRATEGIES, make_strategy
from mpi_opt.strategies.points.checks import observed_cost
from mpi_opt.testing.strategy_tests import SPACES

SPACE = SPACES["mixed"]
REPRODUCIBLE = "random, reproducible"
EVERY = [*STRATEGIES, REPRODUCIBLE]
every_strategy = pytest.mark.parametrize("name", EVERY)
POINT = {"rate": 0.1, "x": 0.25, "units": 16, "depth": 2, "activation": "elu", "optimizer": "adam"}


def all_values_or_names(argnames, values, names=EVERY):
    """Cases of a test: the first name with each value, and every other name with the first value."""
    values = [value if isinstance(value, tuple) and "," in argnames else (value,) for value in values]
    cases = [(names[0], *value) for value in values] + [(name, *values[0]) for name in names[1:]]
    return pytest.mark.parametrize(f"name, {argnames}", cases, ids=repr)


def made(name, **others):
    if name == REPRODUCIBLE:
        return make_strategy("random", SPACE, seed=1, options={"reproducible": True, "lag": 9}, **others)
    return make_strategy(name, SPACE, seed=1, **others)


@all_values_or_names("value", [np.array([0.25]), np.array(0.25), np.float32(0.25), [0.25], (Measured(0.25, 0.1),)])
def test_one_number_is_a_value_also_in_an_array(name, value):
    strategy, twin = made(name), made(name)
    for one, outcome in ((strategy, value), (twin, 0.25)):
        first, second = one.ask(2)
        one.tell(first, outcome)
        one.tell(second, 7.0)
    assert strategy.ask(9) == twin.ask(9)
    assert observed_cost(first, value, n_figures=1) == 0.25


NO_VALUES = [
    "1.0",
    None,
    True,
    np.True_,
    b"1",
    [1.0, 2.0],
    np.array([1.0, 2.0]),
    [],
    1j,
    {"loss": 1.0},
    np.array(["1"]),
]


@all_values_or_names("value", NO_VALUES)
def test_value_that_is_no_number_is_refused_and_the_trial_is_still_pending(name, value):
    strategy, twin = made(name), made(name)
    (proposal,), (same,) = strategy.ask(1), twin.ask(1)
    with pytest.raises(ConfigurationError, match="trial 0: expected a number") as raised:
        strategy.tell(proposal, value)
    assert "Failed" in raised.value.cure
    strategy.tell(proposal, 1.0)
    twin.tell(same, 1.0)
    assert strategy.ask(2) == twin.ask(2)


@every_strategy
def test_whole_number_beyond_the_largest_float_counts_as_failed(name):
    strategy, twin = made(name), made(name)
    strategy.tell(*strategy.ask(1), 10**400)
    twin.tell(*twin.ask(1), Failed("not finite"))
    assert strategy.ask(2) == twin.ask(2)


@all_values_or_names(
    "value",
    [1.0, np.array([1.0]), (1.0, 2.0, 3.0), (1.0, None), "12"],
    names=["random", "bayesian", "evolutionary", "halving", "population", REPRODUCIBLE],
)
def test_as_many_values_are_expected_as_there_are_figures_of_merit(name, value):
    strategy, twin = made(name, n_figures=2), made(name, n_figures=2)
    (proposal,), (same,) = strategy.ask(1), twin.ask(1)
    with pytest.raises(ConfigurationError, match="trial 0: expected 2 numbers"):
        strategy.tell(proposal, value)
    strategy.tell(proposal, np.array([1.0, 2.0]))
    strategy.tell(*strategy.ask(1), [3.0, math.nan])
    twin.tell(same, (1.0, 2.0))
    twin.tell(*twin.ask(1), Failed("not finite"))
    assert strategy.ask(9) == twin.ask(9)


@every_strategy
def test_a_trial_is_observed_once(name):
    strategy = made(name)
    first, second = strategy.ask(2)
    strategy.tell(first, 1.0)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="trial 0 was reported before"):
            strategy.tell(first, 0.5)
        strategy.ask(1)  # a reproducible strategy has learnt it now
    strategy.tell(second, Failed("out of memory"))
    with pytest.raises(ConfigurationError, match="trial 1 was reported before"):
        strategy.tell(second, 0.5)
    with pytest.raises(ConfigurationError, match="trial 0 was reported before"):
        made(name).resume([(first, 1.0), (first, 1.0)])


@all_values_or_names(
    "change, problem",
    [
        ({"x": None}, "'x' is missing"),
        ({"optimizer": "sgd"}, "'momentum' is missing"),
        ({"momentum": 0.5}, "'momentum' does not exist"),
        ({"width": 3}, "'width' is not a hyperparameter"),
        ({"x": 9.0}, "9.0"),
        ({"x": math.nan}, "nan"),
    ],
    names=list(STRATEGIES),
)
def test_a_point_that_is_not_of_the_space_is_refused(name, change, problem):
    point = {key: value for key, value in (POINT | change).items() if value is not None}
    strategy, twin = made(name), made(name)
    with pytest.raises(SpaceError, match=problem) as raised:
        strategy.tell(Proposal(5, point), 1.0)
    assert "trial 5" in str(raised.value)
    assert strategy.ask(2) == twin.ask(2)


def test_a_reproducible_strategy_refuses_trials_of_others():
    strategy = made(REPRODUCIBLE)
    with pytest.raises(ConfigurationError, match="trial 5 was not proposed"):
        strategy.tell(Proposal(5, POINT), 1.0)


@pytest.mark.parametrize("number", [-1, 1.5])
def test_a_trial_has_a_number_of_zero_or_more(number):
    with pytest.raises(ConfigurationError, match="number"):
        made("random").tell(Proposal(number, POINT), 1.0)


@all_values_or_names("count", [-1, 1.5, "2", None, True])
def test_invalid_count_is_refused(name, count):
    strategy, twin = made(name), made(name)
    with pytest.raises(ConfigurationError, match="expected a whole number of 0 or more"):
        strategy.ask(count)
    assert strategy.ask(0) == []
    assert strategy.ask(np.int64(2)) == twin.ask(2)


@all_values_or_names("seed", [-3, 1.5, "7", None, True])
def test_invalid_seed_is_refused(name, seed):
    with pytest.raises(ConfigurationError, match=r"search\.seed.*expected a whole number of 0 or more"):
        make_strategy(name.split(",")[0], SPACE, seed=seed)
