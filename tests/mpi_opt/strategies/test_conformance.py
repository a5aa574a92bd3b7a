"""The rules that every strategy follows, over every kind of space.

One search per strategy and space serves several tests: eighteen trials, some in flight, reported in a shuffled order,
every fifth one failed and every fifth one NaN.
"""

import functools
import json
import math
import time

import numpy as np
import pytest

from mpi_opt.core.space import Categorical, Integer, Real, Space
from mpi_opt.core.trial import Failed, Measured, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import STRATEGIES, make_strategy
from tests.mpi_opt.strategies.searching import cost, run
from tests.mpi_opt.strategies.spaces import N_POINTS, SPACES

every_strategy = pytest.mark.parametrize("name", list(STRATEGIES))
every_space = pytest.mark.parametrize("kind", list(SPACES))
some_spaces = pytest.mark.parametrize("kind", ["tiny", "conditional", "mixed"])

QUICK = {
    "bayesian": {"initial_points": 6},
    "evolutionary": {"initial_points": 6, "population": 6},
    "halving": {"max_budget": 4},
    "scikit-optimize": {"base_estimator": "ET", "acq_func": "EI", "n_initial_points": 12, "n_points": 100},
}
"""Options with which the part of a strategy that learns begins within a few trials."""
N_TRIALS = 18


def made(name, space, seed=3, **options):
    return make_strategy(name, space, seed=seed, options=QUICK.get(name, {}) | options)


def key(proposal):
    return repr(sorted(proposal.parameters.items())), proposal.budget, proposal.resume_from


def often_failing(space):
    def outcome(proposal):
        if proposal.number % 5 == 3:
            return Failed("out of memory")
        return math.nan if proposal.number % 5 == 4 else cost(space, proposal.parameters)

    return outcome


@functools.cache
def searched(name, kind):
    """The search that several tests share."""
    return run(made(name, SPACES[kind]), SPACES[kind], N_TRIALS, outcome=often_failing(SPACES[kind]))


@every_space
@every_strategy
def test_every_proposal_is_a_point_of_the_space_and_numbers_are_dense(name, kind):
    asked, told = searched(name, kind)
    assert len(told) == len(asked) >= min(N_POINTS.get(kind, 17), 17)  # a grid of `branching` has 17
    assert [proposal.number for proposal in asked] == list(range(len(asked)))
    for proposal in asked:
        SPACES[kind].check(proposal.parameters)
        assert json.loads(json.dumps(proposal.parameters)) == proposal.parameters


@every_space
@every_strategy
def test_no_point_comes_twice_before_the_space_is_used_up(name, kind):
    started = [proposal for proposal in searched(name, kind)[0] if proposal.resume_from is None]
    n_points = min(N_POINTS.get(kind, math.inf), len(started))
    assert len({key(proposal) for proposal in started[:n_points]}) == n_points


@every_space
@every_strategy
def test_resumed_strategy_proposes_the_same_points(name, kind):
    """The search is interrupted with trials in flight; the second half is the same."""
    space, (asked, told) = SPACES[kind], searched(name, kind)
    n_told = 2 * len(told) // 3
    n_asked = n_told + 3
    resumed = made(name, space)
    pending = [proposal for proposal in asked[:n_asked] if proposal not in [one for one, _ in told[:n_told]]]
    resumed.resume(told[:n_told], pending)
    for proposal, outcome in told[n_told:]:
        new = resumed.ask(min(1, N_TRIALS - n_asked))
        assert new == asked[n_asked : n_asked + 1]
        n_asked += len(new)
        resumed.tell(proposal, outcome)


@some_spaces
@every_strategy
def test_same_seed_and_same_calls_give_the_same_proposals(name, kind):
    asked, _ = run(made(name, SPACES[kind]), SPACES[kind], N_TRIALS, outcome=often_failing(SPACES[kind]))
    assert asked == searched(name, kind)[0]


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"grid"}))
def test_another_seed_gives_other_proposals(name):
    first, second = (made(name, SPACES["mixed"], seed=seed).ask(3) for seed in (0, 1))
    assert first != second


@pytest.mark.parametrize("kind", ["tiny", "single"])
@every_strategy
def test_asking_for_more_than_the_space_holds_does_not_hang(name, kind):
    space = SPACES[kind]
    strategy = made(name, space, seed=1)
    asked, told = run(strategy, space, 16, in_flight=12)
    assert len(asked) == len(told)
    if all(proposal.resume_from is None for proposal in asked):
        assert len({key(proposal) for proposal in asked}) == N_POINTS[kind]
    if len(asked) < 16:
        assert strategy.ask(3) == []
        assert strategy.finished


@some_spaces
@every_strategy
def test_all_failed_is_survived(name, kind):
    asked, _ = run(made(name, SPACES[kind]), SPACES[kind], 12, outcome=lambda proposal: Failed("always"))
    assert len(asked) >= min(12, N_POINTS.get(kind, 12))


EXTREMES = [(0.0, 1.0), (1e300, 5e299), (-1e300, 1e300), (1.7e308, -1.7e308), (1e-300, 1.0), (0, 5e-324)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("values", EXTREMES)
@every_strategy
def test_constant_and_extreme_values_are_survived_without_a_warning(name, values):
    outcome = lambda proposal: values[proposal.number % 4 == 0]  # noqa: E731
    asked, _ = run(made(name, SPACES["mixed"]), SPACES["mixed"], 14, outcome=outcome)
    assert len(asked) == 14


@pytest.mark.parametrize("uncertainty", [0.0, 1e200, math.inf, math.nan])
@every_strategy
def test_any_uncertainty_is_survived(name, uncertainty):
    space = SPACES["mixed"]
    outcome = lambda p: Measured(cost(space, p.parameters), uncertainty if p.number % 3 else 1e-3)  # noqa: E731
    asked, told = run(made(name, space), space, 14, outcome=outcome)
    assert len(asked) == len(told) == 14


@every_strategy
def test_numbers_of_numpy_are_numbers(name):
    strategy, twin = made(name, SPACES["real"]), made(name, SPACES["real"])
    for kind, value in ((np.float32, 0.5), (np.int64, -2), (np.float16, math.nan)):
        strategy.tell(strategy.ask(1)[0], kind(value))
        twin.tell(twin.ask(1)[0], value)
    assert strategy.ask(9) == twin.ask(9)


@every_strategy
def test_trials_that_the_strategy_did_not_propose_may_be_reported(name):
    space = SPACES["mixed"]
    strategy, rng = made(name, space), np.random.default_rng(0)
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
    assert len({key(proposal) for proposal in asked}) == len(asked)


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


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"grid"}))
def test_finds_better_points_than_the_first(name):
    space, is_costly = SPACES["real"], name == "scikit-optimize"
    strategy = make_strategy(name, space, seed=0, options={"acq_func": "EI"} if is_costly else {})
    _, told = run(strategy, space, 24 if is_costly else 40)
    assert min(value for _, value in told) < 0.02
