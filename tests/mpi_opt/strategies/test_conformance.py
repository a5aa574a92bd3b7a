"""What every strategy keeps to, over every kind of space."""

import json
import math
import random
import time

import numpy as np
import pytest

from mpi_opt.core.space import Categorical, Integer, Real, Space
from mpi_opt.core.trial import Failed, Measured, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import STRATEGIES, make_strategy
from tests.mpi_opt.strategies.spaces import N_POINTS, SPACES

every_strategy = pytest.mark.parametrize("name", list(STRATEGIES))
every_space = pytest.mark.parametrize("kind", list(SPACES))


def cost(space, parameters):
    """Smallest, 0, at the middle of every dimension."""
    return float(np.sum((space.encode(parameters) - 0.5) ** 2))


def key(proposal):
    return repr(sorted(proposal.parameters.items())), proposal.budget, proposal.resume_from


def run(strategy, space, n_trials, in_flight=4, outcome=None, order=0):
    """Asks and tells `n_trials`, some in flight, told in a shuffled order; returns the proposals and what was told."""
    outcome = outcome or (lambda proposal: cost(space, proposal.parameters))
    rng, pending, asked, told = random.Random(order), [], [], []
    while len(told) < n_trials:
        if len(pending) < in_flight and len(asked) < n_trials:
            new = strategy.ask(min(in_flight - len(pending), n_trials - len(asked)))
            asked, pending = asked + new, pending + new
            if not new and not pending:
                break
        if pending:
            proposal = pending.pop(rng.randrange(len(pending)))
            told.append((proposal, outcome(proposal)))
            strategy.tell(*told[-1])
    return asked, told


@every_space
@every_strategy
def test_every_proposal_is_a_point_of_the_space_and_numbers_are_dense(name, kind):
    space = SPACES[kind]
    asked, _ = run(make_strategy(name, space, seed=3), space, 30)
    assert [proposal.number for proposal in asked] == list(range(len(asked)))
    for proposal in asked:
        space.check(proposal.parameters)
        assert json.loads(json.dumps(proposal.parameters)) == proposal.parameters


@every_space
@every_strategy
def test_no_point_comes_twice_before_the_space_is_used_up(name, kind):
    space = SPACES[kind]
    asked, _ = run(make_strategy(name, space, seed=5), space, 30)
    started = [proposal for proposal in asked if proposal.resume_from is None]
    n_points = min(N_POINTS.get(kind, math.inf), len(started))
    assert len({key(proposal) for proposal in started[:n_points]}) == n_points


@pytest.mark.parametrize("kind", ["tiny", "single"])
@every_strategy
def test_asking_for_more_than_the_space_holds_does_not_hang(name, kind):
    space = SPACES[kind]
    strategy = make_strategy(name, space, seed=1)
    asked, told = run(strategy, space, 25, in_flight=12)
    assert len(asked) == len(told)
    if all(proposal.resume_from is None for proposal in asked):
        assert len({key(proposal) for proposal in asked}) == N_POINTS[kind]
    if len(asked) < 25:
        assert strategy.ask(3) == []
        assert strategy.finished


@every_space
@every_strategy
def test_same_seed_and_same_calls_give_the_same_proposals(name, kind):
    space = SPACES[kind]
    first, second = (run(make_strategy(name, space, seed=11), space, 24, order=7)[0] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"grid"}))
def test_another_seed_gives_other_proposals(name):
    space = SPACES["mixed"]
    first, second = (make_strategy(name, space, seed=seed).ask(3) for seed in (0, 1))
    assert first != second


@every_space
@every_strategy
def test_resumed_strategy_proposes_what_the_living_one_does(name, kind):
    space = SPACES[kind]
    living = make_strategy(name, space, seed=2)
    _, told = run(living, space, 18)
    pending = living.ask(2)
    resumed = make_strategy(name, space, seed=2)
    resumed.resume(told, pending)
    assert resumed.ask(2) == living.ask(2)
    for proposal in pending:
        living.tell(proposal, 0.5)
        resumed.tell(proposal, 0.5)
    assert resumed.ask(1) == living.ask(1)


@every_space
@every_strategy
def test_failures_and_nan_are_survived(name, kind):
    space = SPACES[kind]
    outcomes = [Failed("out of memory"), math.nan, math.inf, 1.0, 0.5]
    asked, told = run(
        make_strategy(name, space, seed=4), space, 24, outcome=lambda proposal: outcomes[proposal.number % 5]
    )
    assert len(told) == len(asked)
    for proposal in asked:
        space.check(proposal.parameters)


@every_space
@every_strategy
def test_all_failed_is_survived(name, kind):
    space = SPACES[kind]
    asked, _ = run(make_strategy(name, space, seed=4), space, 16, outcome=lambda proposal: Failed("always"))
    assert len(asked) >= min(16, N_POINTS.get(kind, 16))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "values", [(0.0, 1.0), (1e300, 5e299), (-1e300, 1e300), (1.7e308, -1.7e308), (1e-300, 1.0), (0, 5e-324)]
)
@every_strategy
def test_constant_and_extreme_values_are_survived_without_a_warning(name, values):
    space = SPACES["mixed"]
    outcome = lambda proposal: values[proposal.number % 4 == 0]  # noqa: E731
    asked, _ = run(make_strategy(name, space, seed=4), space, 24, outcome=outcome)
    assert len(asked) == 24


@pytest.mark.parametrize("uncertainty", [0.0, 1e200, math.inf, math.nan])
@every_strategy
def test_any_uncertainty_is_survived(name, uncertainty):
    space = SPACES["mixed"]
    outcome = lambda p: Measured(cost(space, p.parameters), uncertainty if p.number % 3 else 1e-3)  # noqa: E731
    asked, told = run(make_strategy(name, space, seed=4), space, 24, outcome=outcome)
    assert len(asked) == len(told) == 24


@every_strategy
def test_numbers_of_numpy_are_numbers(name):
    strategy = make_strategy(name, SPACES["real"], seed=1)
    for kind, value in ((np.float32, 0.5), (np.int64, -2), (np.float16, math.nan)):
        strategy.tell(strategy.ask(1)[0], kind(value))
    assert strategy.state()["best"]["value"] == -2.0


@every_strategy
def test_trials_of_others_may_be_told(name):
    space = SPACES["mixed"]
    strategy, rng = make_strategy(name, space, seed=1), np.random.default_rng(0)
    for number in range(12):
        proposal = Proposal(number, space.sample(rng))
        strategy.tell(proposal, cost(space, proposal.parameters))
    (proposal,) = strategy.ask(1)
    assert proposal.number == 12
    space.check(proposal.parameters)


@every_strategy
def test_known_points_come_first(name):
    space = SPACES["mixed"]
    known = {"rate": 0.1, "x": 0.25, "units": 16, "depth": 2, "activation": "elu", "optimizer": "adam"}
    asked = make_strategy(name, space, seed=1, options={"initial": [known]}).ask(2)
    assert asked[0].parameters == known
    assert all(proposal.parameters != known for proposal in asked[1:])


@every_strategy
def test_known_point_is_not_proposed_again_however_it_is_written(name):
    """A 0 for a real hyperparameter is its 0.0, and three steps of 0.1 are 0.3."""
    space = Space({"x": Real(0, 1, step=0.1), "y": Real(0, 1, step=0.5)})
    strategy = make_strategy(name, space, seed=1, options={"initial": [{"x": 0, "y": 1}, {"x": 0.1 + 0.2, "y": 0.5}]})
    asked, _ = run(strategy, space, 33)
    started = [proposal.parameters for proposal in asked if proposal.resume_from is None]
    assert started[:2] == [{"x": 0.0, "y": 1.0}, {"x": 0.3, "y": 0.5}]
    assert len({key(proposal) for proposal in asked}) == len(asked)


@every_strategy
def test_constraints_that_leave_a_hundredth_hold_without_delay(name):
    space = Space({"a": Real(0, 1), "b": Real(0, 1), "n": Integer(1, 200), "kind": Categorical(("u", "v"))})
    strategy = make_strategy(name, space, seed=1, options={"constraints": ["abs(a - b) < 0.02", "n % 4 == 0"]})
    began = time.process_time()
    asked, _ = run(strategy, space, 24)
    assert time.process_time() - began < 6.0
    for parameters in (proposal.parameters for proposal in asked):
        assert abs(parameters["a"] - parameters["b"]) < 0.02
        assert parameters["n"] % 4 == 0


@every_strategy
def test_constraints_hold_for_every_proposal(name):
    space = SPACES["mixed"]
    strategy = make_strategy(name, space, seed=1, options={"constraints": ["units * depth <= 100", "momentum > 0.1"]})
    asked, _ = run(strategy, space, 24)
    assert len(asked) == 24
    for parameters in (proposal.parameters for proposal in asked):
        assert parameters["units"] * parameters["depth"] <= 100
        assert parameters.get("momentum", 1.0) > 0.1


@every_strategy
def test_unknown_option_names_the_nearest_and_the_known_ones(name):
    with pytest.raises(ConfigurationError) as raised:
        make_strategy(name, SPACES["real"], options={"constraint": ["x < y"]})
    assert "constraints" in str(raised.value)
    assert "search.options.constraint" in str(raised.value)


@every_strategy
def test_state_is_json(name):
    space = SPACES["mixed"]
    strategy = make_strategy(name, space, seed=1)
    run(strategy, space, 12)
    assert json.loads(json.dumps(strategy.state()))


def test_generational_evolution_waits_for_the_whole_generation():
    strategy = make_strategy("evolutionary", SPACES["real"], options={"generational": True, "population": 6})
    asked = strategy.ask(10)
    assert len(asked) == 6
    for proposal in asked[1:]:
        strategy.tell(proposal, 1.0)
    assert strategy.ask(1) == []
    strategy.tell(asked[0], 1.0)
    assert len(strategy.ask(10)) == 6


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"grid"}))
def test_finds_better_points_than_the_first(name):
    space = SPACES["real"]
    _, told = run(make_strategy(name, space, seed=0), space, 40)
    assert min(value for _, value in told) < 0.02
