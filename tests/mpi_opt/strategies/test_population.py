import numpy as np
import pytest

from mpi_opt.errors import ConfigurationError
from mpi_opt.space import Categorical, Integer, Real, Space
from mpi_opt.strategies import make_strategy
from mpi_opt.trial import Failed

SPACE = Space({"rate": Real(1e-4, 1, prior="log-uniform"), "units": Integer(8, 64)})


def test_worst_takes_over_from_the_best_and_keeps_the_shape_of_its_network():
    strategy = make_strategy("population", SPACE, seed=1, options={"population": 4})
    trials = strategy.ask(4)
    for proposal in trials:
        strategy.tell(proposal, float(proposal.number))
    following = strategy.ask(4)
    assert [proposal.resume_from for proposal in following] == [0, 1, 2, 0]
    assert all(proposal.budget == 2 for proposal in following)
    assert [following[n].parameters for n in range(3)] == [trials[n].parameters for n in range(3)]
    assert following[3].parameters["units"] == trials[0].parameters["units"]
    assert following[3].parameters["rate"] != trials[0].parameters["rate"]


def test_failed_network_is_replaced():
    strategy = make_strategy("population", SPACE, seed=1, options={"population": 2})
    first, second = strategy.ask(2)
    strategy.tell(first, 1.0)
    strategy.tell(second, Failed("diverged"))
    assert [proposal.resume_from for proposal in strategy.ask(2)] == [0, 0]


def test_finishes_when_every_network_had_its_epochs():
    strategy = make_strategy("population", SPACE, seed=1, options={"population": 3, "interval": 2, "max_budget": 6})
    n_trials = 0
    while proposals := strategy.ask(2):
        for proposal in proposals:
            strategy.tell(proposal, proposal.parameters["rate"])
            n_trials += 1
    assert n_trials == 9
    assert strategy.finished


def test_hyperparameter_that_others_depend_on_cannot_change():
    space = {"kind": Categorical(("a", "b")), "x": Real(0, 1, when={"kind": "a"})}
    with pytest.raises(ConfigurationError, match="others depend on it"):
        make_strategy("population", space, options={"perturb": ["kind"]})


def trained(weights, rate, n_steps, rng):
    """Stochastic gradient descent on a quadratic with noisy gradients: needs a large rate first, then a small one."""
    for _ in range(n_steps):
        gradient = np.array([1.0, 0.05]) * weights + 0.3 * rng.standard_normal(2)
        weights = weights - rate * gradient
    return weights


def loss(weights):
    return float(np.sum(np.array([1.0, 0.05]) * weights**2))


def test_learns_a_schedule_that_beats_every_constant_rate():
    start, n_steps, n_rounds = np.array([8.0, 8.0]), 20, 12
    grid = np.geomspace(1e-3, 1.5, 16)
    constant = min(
        np.mean([loss(trained(start, rate, n_steps * n_rounds, np.random.default_rng(s))) for s in range(10)])
        for rate in grid
    )
    reached = []
    for seed in range(10):
        space = {"rate": Real(1e-3, 1.5, prior="log-uniform")}
        options = {"population": 16, "max_budget": n_rounds, "change": 0.6}
        strategy = make_strategy("population", space, seed=seed, options=options)
        rng, saved = np.random.default_rng(seed), {}
        while proposals := strategy.ask(1):
            (proposal,) = proposals
            weights = saved.get(proposal.resume_from, start)
            saved[proposal.number] = trained(weights, proposal.parameters["rate"], n_steps, rng)
            strategy.tell(proposal, loss(saved[proposal.number]))
        final = strategy.schedule()[-1]["trial"]
        more = [loss(saved[final])]
        reached.append(np.mean(more))
    assert np.mean(reached) < constant
