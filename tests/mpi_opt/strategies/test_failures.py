"""Searches in spaces of which a part fails."""

import heapq

import numpy as np
import pytest

from mpi_opt.core.search_space.space import Integer, Real, Space
from mpi_opt.core.trial import Failed
from mpi_opt.strategies import make_strategy

BOX = Space({"x": Real(0, 1), "y": Real(0, 1), "z": Real(0, 1)})
NETWORK = Space({"units": Integer(16, 1024, prior="log-uniform"), "rate": Real(1e-5, 1, prior="log-uniform")})


def fails_beyond_the_border(point):
    return point["x"] > 0.6


def needs_too_much_memory(point):
    return point["units"] > 256 or point["rate"] > 0.2


def cost_of_box(point):
    return (point["x"] - 0.9) ** 2 + (point["y"] - 0.5) ** 2 + (point["z"] - 0.3) ** 2


def cost_of_network(point):
    return -np.log2(point["units"]) + (np.log10(point["rate"]) + 2.0) ** 2


def searched(name, space, fails, cost, n_trials=80):
    """Whether each trial has failed, by number, with 8 in flight; failures take a fiftieth of the time."""
    strategy, rng = make_strategy(name, space, seed=1), np.random.default_rng(1)
    running, now, has_failed = [], 0.0, {}
    while len(has_failed) < n_trials:
        for proposal in strategy.ask(min(8 - len(running), n_trials - len(has_failed) - len(running))):
            duration = rng.lognormal() * (0.02 if fails(proposal.parameters) else 1.0)
            heapq.heappush(running, (now + duration, proposal.number, proposal))
        now, number, proposal = heapq.heappop(running)
        has_failed[number] = fails(proposal.parameters)
        strategy.tell(proposal, Failed("no memory") if has_failed[number] else cost(proposal.parameters))
    return [has_failed[number] for number in range(n_trials)]


@pytest.mark.parametrize("name", ["bayesian", "evolutionary", pytest.param("auto", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("space", "fails", "cost"),
    [(BOX, fails_beyond_the_border, cost_of_box), (NETWORK, needs_too_much_memory, cost_of_network)],
    ids=["border", "memory"],
)
def test_a_search_learns_where_trials_fail(name, space, fails, cost):
    """About 40 % of the space fails, and the best points are beyond the border."""
    rng = np.random.default_rng(0)
    assert 0.35 < np.mean([fails(space.sample(rng)) for _ in range(1000)]) < 0.5
    has_failed = searched(name, space, fails, cost)
    assert np.mean(has_failed[50:]) < 0.1
