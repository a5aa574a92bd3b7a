"""Default options of a strategy that depend on the whole search."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpi_opt.configuration.configuration import read_study
from mpi_opt.configuration.plan import Plan
from mpi_opt.strategies import make_strategy


def plan(n_ranks: int, strategy: str, **options) -> Plan:
    content = {
        "objective": "any.py:thing",
        "space": {"x": {"type": "real", "low": 0.0, "high": 2.0}},
        "search": {"strategy": strategy, "options": options},
    }
    configuration = read_study(content)
    return Plan(configuration, Path(), n_ranks=n_ranks)


@pytest.mark.parametrize(("n_ranks", "lag"), [(1, 16), (17, 16), (33, 32)])
def test_results_are_awaited_by_at_least_as_many_trials_as_there_are_blocks(n_ranks, lag):
    assert plan(n_ranks, "random", reproducible=True).options == {"reproducible": True, "lag": lag}
    assert plan(n_ranks, "random", reproducible=True, lag=3).options["lag"] == 3
    assert plan(n_ranks, "random").options == {}


@pytest.mark.parametrize(("n_ranks", "n_first"), [(2, 10), (33, 32)])
def test_a_generation_is_large_enough_for_every_block(n_ranks, n_first):
    wanted = plan(n_ranks, "evolutionary", generational=True)
    assert len(make_strategy("evolutionary", wanted.space, options=wanted.options).ask(100)) == n_first
    assert plan(n_ranks, "evolutionary", generational=True, population=5).options["population"] == 5


def test_reproducible_trials_do_not_depend_on_the_number_of_blocks():
    assert "population" not in plan(33, "evolutionary", generational=True, reproducible=True).options
    assert plan(33, "evolutionary").options == {}
