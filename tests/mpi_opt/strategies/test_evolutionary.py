"""The evolutionary search: what its operators can and cannot change."""

import random

from mpi_opt.core.space import Categorical, Real, Space
from mpi_opt.core.trial import Proposal
from mpi_opt.strategies import make_strategy

SPACE = Space({"x": Real(0, 1), "y": Real(0, 1), "kind": Categorical(("a", "b", "c"))})


def children(options, n_children=20):
    """Children of parents that differ in y alone."""
    strategy = make_strategy("evolutionary", SPACE, seed=3, options=options)
    parents = [Proposal(number, {"x": 0.25, "y": number / 10, "kind": "a"}) for number in range(10)]
    strategy.resume([(parent, abs(parent.parameters["y"] - 0.4)) for parent in parents])
    return [proposal.parameters for proposal in strategy.ask(n_children)]


def test_without_mutation_children_have_what_all_parents_have():
    found = children({"mutation": 0.0, "crossover": 1.0})
    assert {(point["x"], point["kind"]) for point in found} == {(0.25, "a")}


def test_mutation_changes_numbers_and_categories():
    found = children({"mutation": 1.0, "crossover": 0.0})
    assert all(point["x"] != 0.25 for point in found)
    assert {point["kind"] for point in found} > {"a"}


def test_search_neither_uses_nor_changes_the_random_numbers_of_the_program():
    first, state = children({}), random.getstate()
    random.seed(7)
    before = random.getstate()
    assert children({}) == first
    assert random.getstate() == before
    random.setstate(state)


def test_generational_evolution_waits_for_the_whole_generation():
    strategy = make_strategy("evolutionary", SPACE, options={"generational": True, "population": 6})
    asked = strategy.ask(10)
    assert len(asked) == 6
    for proposal in asked[1:]:
        strategy.tell(proposal, 1.0)
    assert strategy.ask(1) == []
    strategy.tell(asked[0], 1.0)
    assert len(strategy.ask(10)) == 6
