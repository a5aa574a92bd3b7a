import pytest

from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import make_strategy
from tests.mpi_opt.strategies.spaces import SPACES
from tests.mpi_opt.strategies.test_conformance import run

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
def test_resumed_search_goes_on_with_the_same_trials(name):
    space = SPACES["mixed"]
    living = make_strategy(name, space, seed=3, options=OPTIONS)
    _, told = run(living, space, 20, in_flight=5, order=4)
    resumed = make_strategy(name, space, seed=3, options=OPTIONS)
    resumed.resume(told, [])
    assert run(resumed, space, 8, in_flight=5, order=1)[0] == run(living, space, 8, in_flight=5, order=2)[0]


def test_lag_below_one_is_an_error():
    with pytest.raises(ConfigurationError, match="lag"):
        make_strategy("random", SPACES["real"], options={"reproducible": True, "lag": 0})
