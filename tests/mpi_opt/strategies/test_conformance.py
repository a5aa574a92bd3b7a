"""The rules that every strategy follows, over every kind of space, and those of the options that all of them have."""

import sys
import time

import pytest

from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import STRATEGIES, make_strategy
from mpi_opt.testing import SPACES, StrategyTests, run


class TestBayesian(StrategyTests):
    strategy = "bayesian"
    options = {"initial_points": 10}
    n_trials_to_improve = 24


class TestScikitOptimize(StrategyTests):
    strategy = "scikit-optimize"
    options = {"base_estimator": "ET", "acq_func": "EI", "n_initial_points": 12, "n_points": 100}
    n_trials_to_improve = 24


@pytest.mark.thorough  # its proposals are those of `bayesian`; see test_auto.py
class TestAuto(StrategyTests):
    strategy = "auto"


class TestEvolutionary(StrategyTests):
    strategy = "evolutionary"
    options = {"initial_points": 6, "population": 6}


class TestRandom(StrategyTests):
    strategy = "random"


class TestSobol(StrategyTests):
    strategy = "sobol"


class TestGrid(StrategyTests):
    strategy = "grid"
    depends_on_seed = False
    n_trials_to_improve = None


class TestHalving(StrategyTests):
    strategy = "halving"
    options = {"max_budget": 4}


class TestPopulation(StrategyTests):
    strategy = "population"


class TestConstructive(StrategyTests):
    strategy = "constructive"


SUITES = [suite for suite in vars(sys.modules[__name__]).values() if getattr(suite, "strategy", None)]
QUICK = {suite.strategy: suite.options for suite in SUITES}
every_strategy = pytest.mark.parametrize("name", list(STRATEGIES))


def test_every_strategy_has_its_suite():
    assert sorted(QUICK) == sorted(STRATEGIES)


def made(name, space, seed=3, **options):
    return make_strategy(name, space, seed=seed, options=dict(QUICK[name]) | options)


@every_strategy
def test_known_points_come_first(name):
    space = SPACES["mixed"]
    known = {"rate": 0.1, "x": 0.25, "units": 16, "depth": 2, "activation": "elu", "optimizer": "adam"}
    asked = made(name, space, initial=[known]).ask(2)
    assert asked[0].parameters == known
    assert all(proposal.parameters != known for proposal in asked[1:])
    resumed = made(name, space, initial=[known])
    resumed.resume([(asked[0], 1.0)])
    assert resumed.ask(1)[0].parameters != known


@every_strategy
def test_known_point_is_not_proposed_again_in_any_notation(name):
    """A 0 for a real hyperparameter is its 0.0, and three steps of 0.1 are 0.3."""
    space = Space({"x": Real(0, 1, step=0.1), "y": Real(0, 1, step=0.5)})
    initial = [{"x": 0, "y": 1}, {"x": 0.1 + 0.2, "y": 0.5}]
    n_trials = 14 if name == "scikit-optimize" else 33
    asked, _ = run(made(name, space, seed=1, initial=initial), space, n_trials)
    started = [proposal.parameters for proposal in asked if proposal.resume_from is None]
    assert started[:2] == [{"x": 0.0, "y": 1.0}, {"x": 0.3, "y": 0.5}]
    assert len({(repr(sorted(one.parameters.items())), one.budget, one.resume_from) for one in asked}) == len(asked)


@every_strategy
def test_constraints_that_leave_a_hundredth_hold_without_delay(name):
    space = Space({"a": Real(0, 1), "b": Real(0, 1), "n": Integer(1, 200), "kind": Categorical(("u", "v"))})
    strategy = made(name, space, constraints=["abs(a - b) < 0.02", "n % 4 == 0"])
    began = time.process_time()
    asked, _ = run(strategy, space, 16)
    assert time.process_time() - began < 6.0
    assert len(asked) == 16
    for parameters in (proposal.parameters for proposal in asked):
        assert abs(parameters["a"] - parameters["b"]) < 0.02
        assert parameters["n"] % 4 == 0


@every_strategy
def test_every_proposal_satisfies_the_constraints(name):
    space = SPACES["mixed"]
    asked, _ = run(made(name, space, constraints=["units * depth <= 100", "momentum > 0.1"]), space, 16)
    assert len(asked) == 16
    for parameters in (proposal.parameters for proposal in asked):
        assert parameters["units"] * parameters["depth"] <= 100
        assert parameters.get("momentum", 1.0) > 0.1


@every_strategy
def test_unknown_option_names_the_nearest_and_the_known_ones(name):
    with pytest.raises(ConfigurationError) as raised:
        make_strategy(name, SPACES["real"], options={"constraint": ["x < y"]})
    assert raised.value.where == "search.options.constraint"
    assert raised.value.problem == "unknown key"
    assert raised.value.cure.startswith("did you mean constraints? known keys: initial, constraints")
