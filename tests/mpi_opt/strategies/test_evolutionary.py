"""The evolutionary search: what its operators can and cannot change."""

import math
import random

import numpy as np
import pytest

from mpi_opt.core.space import Categorical, Real, Space
from mpi_opt.core.trial import Proposal
from mpi_opt.strategies import make_strategy
from mpi_opt.strategies.evolutionary import Evolutionary, interpolated
from mpi_opt.strategies.surrogates.observations import Observations

SPACE = Space({"x": Real(0, 1), "y": Real(0, 1), "kind": Categorical(("a", "b", "c"))})


def children(options, n_children=20, seed=3, best=0.4, worse=()):
    """Children of parents that differ in y alone, of which the best is that with y = `best`.

    Args:
        worse: Further observed points, with larger costs than those of the parents.
    """
    strategy = make_strategy("evolutionary", SPACE, seed=seed, options=options)
    points = [{"x": 0.25, "y": number / 10, "kind": "a"} for number in range(10)]
    observed = [(Proposal(number, point), abs(point["y"] - best)) for number, point in enumerate(points)]
    strategy.resume(observed + [(Proposal(10 + number, point), 9.0) for number, point in enumerate(worse)])
    return [proposal.parameters for proposal in strategy.ask(n_children)]


def test_without_mutation_children_have_what_all_parents_have():
    found = children({"mutation": 0.0, "crossover": 1.0})
    assert {(point["x"], point["kind"]) for point in found} == {(0.25, "a")}


def test_parents_are_the_best_of_all_trials():
    worse = [{"x": 0.75, "y": number / 10, "kind": "b"} for number in range(10)]
    found = children({"mutation": 0.0, "crossover": 1.0}, worse=worse)
    assert {(point["x"], point["kind"]) for point in found} == {(0.25, "a")}


def test_the_better_of_two_parents_drawn_at_random_has_the_child():
    """The mean of the smaller of two numbers below ten is 2.85. A child equal to a parent gives way to a new point."""
    found = children({"mutation": 0.0, "crossover": 1.0, "children": 1}, n_children=60, best=0.0)
    assert np.mean([point["y"] for point in found if point["x"] == 0.25]) == pytest.approx(0.285, abs=0.1)


def test_every_fourth_child_is_the_one_with_the_best_prediction():
    """From the tenth trial on; the others explore, too."""
    found = children({"mutation": 0.0, "crossover": 1.0})
    assert all(abs(point["y"] - 0.4) < 0.1 for number, point in enumerate(found, 10) if number % 4 == 3)


def test_another_seed_gives_other_children():
    assert children({}, seed=3) != children({}, seed=4)


def test_a_failed_trial_is_predicted_like_the_worst():
    rows, values = np.linspace(0, 1, 5)[:, None], np.array([0.0, 1.0, 2.0, 5.0, math.nan])
    predicted = interpolated(Observations(rows, values, np.zeros(5)), np.array([False]))(rows)
    assert predicted[4] - predicted[0] == pytest.approx(predicted[3] - predicted[0], rel=0.02)
    assert predicted[0] < predicted[2] < predicted[3]


def test_mutation_changes_numbers_and_categories():
    found = children({"mutation": 1.0, "crossover": 0.0})
    assert all(0 < abs(point["x"] - 0.25) < 0.01 for point in found), "parents with one value of x make short steps"
    assert {point["kind"] for point in found} > {"a"}


def test_search_neither_uses_nor_changes_the_random_numbers_of_the_program():
    first, state = children({}), random.getstate()
    random.seed(7)
    before = random.getstate()
    assert children({}) == first
    assert random.getstate() == before
    random.setstate(state)


def test_children_of_several_figures_are_also_made_from_the_difference_of_two_parents():
    """Without crossover and mutation. The parents are on a line, and so are points that a difference has moved."""
    strategy = make_strategy("evolutionary", SPACE, seed=3, n_figures=2, options={"mutation": 0.0, "crossover": 0.0})
    points = [{"x": number / 10, "y": number / 10, "kind": "ac"[number % 2]} for number in range(10)]
    strategy.resume((Proposal(number, point), (point["x"], 1 - point["x"])) for number, point in enumerate(points))
    found = [proposal.parameters for proposal in strategy.ask(20)]
    assert [point["y"] for point in found] == pytest.approx([point["x"] for point in found])
    assert {point["kind"] for point in found} == {"a", "c"}, "a difference of categories has no meaning"


def test_children_of_one_figure_are_not_made_from_differences(monkeypatch):
    def moved(strategy, genes):
        raise AssertionError("a child is made from a difference")

    monkeypatch.setattr(Evolutionary, "_moved", moved)
    assert len(children({})) == 20


def test_generational_evolution_waits_for_the_whole_generation():
    strategy = make_strategy("evolutionary", SPACE, options={"generational": True, "population": 6})
    asked = strategy.ask(10)
    assert len(asked) == 6
    for proposal in asked[1:]:
        strategy.tell(proposal, 1.0)
    assert strategy.ask(1) == []
    strategy.tell(asked[0], 1.0)
    assert len(strategy.ask(10)) == 6
