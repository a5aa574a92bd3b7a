import pytest

from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import make_strategy
from mpi_opt.testing.strategy_tests import SPACES, cost, run

OPTIONS = {"reproducible": True, "lag": 5}


@pytest.mark.parametrize("name", ["bayesian", "evolutionary", "halving", "population"])
def test_same_seed_gives_the_same_trials_whatever_ends_first(name):
    space = SPACES["mixed"]
    runs = [run(make_strategy(name, space, seed=3, options=OPTIONS), space, 26, in_flight=5, order=k) for k in (1, 2)]
    assert [proposal for proposal, _ in runs[0][1]] != [proposal for proposal, _ in runs[1][1]]
    assert runs[0][0] == runs[1][0]


def test_number_of_blocks_changes_nothing():
    space = SPACES["mixed"]
    few, many = (
        run(make_strategy("evolutionary", space, seed=3, options=OPTIONS), space, 30, in_flight=n)[0] for n in (2, 5)
    )
    assert few == many


def test_proposal_waits_for_the_outcome_that_it_depends_on():
    strategy = make_strategy("evolutionary", SPACES["real"], seed=3, options=OPTIONS)
    asked = strategy.ask(9)
    assert len(asked) == 5
    for proposal in asked[1:]:
        strategy.tell(proposal, 1.0)
    assert strategy.ask(1) == []
    strategy.tell(asked[0], 1.0)
    assert len(strategy.ask(9)) == 5


@pytest.mark.parametrize("name", ["bayesian", "evolutionary", "halving", "population"])
def test_resumed_search_continues_with_the_same_trials(name):
    space = SPACES["mixed"]
    living = make_strategy(name, space, seed=3, options=OPTIONS)
    _, told = run(living, space, 20, in_flight=5, order=4)
    resumed = make_strategy(name, space, seed=3, options=OPTIONS)
    resumed.resume(told, [])
    assert run(resumed, space, 8, in_flight=5, order=1)[0] == run(living, space, 8, in_flight=5, order=2)[0]


def test_search_continues_with_fewer_blocks_while_an_early_trial_still_runs():
    """With a lag of 40, 40 trials may run; the job continues on fewer ranks, where the lag is 16."""
    strategy = make_strategy("evolutionary", SPACES["real"], seed=3, options={"reproducible": True, "lag": 40})
    asked = strategy.ask(40)
    resumed = make_strategy("evolutionary", SPACES["real"], seed=3, options={"reproducible": True, "lag": 16})
    resumed.resume([(proposal, 1.0) for proposal in asked[1:30]], [asked[0], *asked[30:]])
    assert resumed.ask(1) == [], "the next proposal depends on trial 0"
    for proposal in (asked[0], *asked[30:]):
        resumed.tell(proposal, 2.0)
    assert len(resumed.ask(1)) == 1


@pytest.mark.parametrize("name", ["bayesian", "halving"])
def test_option_that_would_make_a_search_depend_on_timing_is_refused(name):
    with pytest.raises(ConfigurationError, match="waits for every refit"):
        make_strategy(name, SPACES["real"], options=OPTIONS | {"await_refit_up_to": 4})
    make_strategy(name, SPACES["real"], options=OPTIONS | {"await_refit_up_to": 5})


def test_lag_below_one_is_an_error():
    with pytest.raises(ConfigurationError, match="lag"):
        make_strategy("random", SPACES["real"], options={"reproducible": True, "lag": 0})


WAITING = {
    "evolutionary": {"generational": True, "population": 6},
    "population": {"max_budget": 4, "population": 6},
}
"""Strategies that propose nothing until further outcomes are reported."""


@pytest.mark.parametrize("lag", [3, 16])
@pytest.mark.parametrize("name", WAITING)
def test_a_strategy_that_waits_receives_all_outcomes_that_it_waits_for(name, lag):
    space, options = SPACES["mixed"], WAITING[name] | {"reproducible": True, "lag": lag}
    runs = [run(make_strategy(name, space, seed=3, options=options), space, 30, in_flight=5, order=k) for k in (1, 2)]
    assert len(runs[0][0]) == (24 if name == "population" else 30)
    assert [proposal for proposal, _ in runs[0][1]] != [proposal for proposal, _ in runs[1][1]]
    assert runs[0][0] == runs[1][0]


@pytest.mark.parametrize("n_told", [1, 5, 8, 14, 19])
@pytest.mark.parametrize("name", WAITING)
def test_resumed_search_of_a_strategy_that_waits_continues_with_the_same_trials(name, n_told):
    space, options = SPACES["mixed"], WAITING[name] | OPTIONS
    whole, told = run(make_strategy(name, space, seed=3, options=options), space, 24, in_flight=5, order=4)
    ended = {proposal.number for proposal, _ in told[:n_told]}
    begun = whole[: max(ended) + 1]
    pending = [proposal for proposal in begun if proposal.number not in ended]
    resumed = make_strategy(name, space, seed=3, options=options)
    resumed.resume(told[:n_told], pending)
    for proposal in pending:
        resumed.tell(proposal, cost(space, proposal.parameters))
    assert run(resumed, space, 24 - len(begun), in_flight=5, order=1)[0] == whole[len(begun) :]


def test_halving_waits_for_refits_with_many_trials_in_flight():
    space, options = SPACES["mixed"], {"reproducible": True, "lag": 40}
    runs = [
        run(make_strategy("halving", space, seed=3, options=options), space, 70, in_flight=40, order=k)[0]
        for k in (1, 2)
    ]
    assert runs[0] == runs[1]
