"""``reproducible: true`` under ``mpirun``: the trials do not depend on the number and speed of the ranks."""

from __future__ import annotations

import sqlite3

import pytest

from tests.world import in_world

SEARCH = ("-m", "mpi_opt", "search")
SPACE = {
    "x": {"type": "real", "low": 0.0, "high": 2.0},
    "kind": {"type": "categorical", "categories": ["a", "b"]},
    "n": {"type": "integer", "low": 1, "high": 90, "when": {"kind": "b"}},
}


@pytest.fixture
def search(space_file, tmp_path):
    """Runs a search on `n_ranks` ranks; returns the trials of the store, and the order in which they ended."""

    def begin(n_ranks: int, name: str, strategy: str, trials: int, **options):
        wanted = {"strategy": strategy, "trials": trials, "seed": 5, "options": {"reproducible": True} | options}
        path = space_file("ragged", space=SPACE, search=wanted, store=f"sqlite:///{name}.db")
        done = in_world(n_ranks, *SEARCH, str(path), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        with sqlite3.connect(tmp_path / f"{name}.db") as database:
            query = "SELECT number, parameters, budget, resume_from, state, figure_of_merit FROM trials ORDER BY number"
            ended = database.execute("SELECT number FROM trials ORDER BY finished_at").fetchall()
            return database.execute(query).fetchall(), [number for (number,) in ended]

    return begin


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("bayesian", {"lag": 5}),
        ("evolutionary", {"generational": True}),
        ("population", {"population": 6, "max_budget": 4}),
    ],
)
def test_number_of_ranks_and_timing_change_no_trial_failed_ones_included(strategy, options, search):
    (few, order), (many, other_order) = (search(n, f"on{n}", strategy, 24, **options) for n in (3, 6))
    assert len(few) == 24
    assert order != other_order
    assert few == many
    assert {state for *_, state, _ in few} == {"complete", "failed"}


@pytest.mark.mpi
def test_interrupted_search_continues_with_the_same_trials(search):
    whole, _ = search(3, "whole", "evolutionary", 24, generational=True)
    for trials in (13, 24):
        parts, _ = search(4, "parts", "evolutionary", trials, generational=True)
        assert parts == whole[:trials]
