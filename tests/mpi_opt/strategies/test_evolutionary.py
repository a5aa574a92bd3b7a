"""The evolutionary search: what its operators can and cannot change."""

import math
import random
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from mpi_opt.core.search_space.space import Categorical, Real, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies import make_strategy
from mpi_opt.strategies.evolution.breeder import NICHE_EVERY, Breeder, interpolated
from mpi_opt.strategies.surrogates.fitting import Observations
from mpi_opt.strategies.surrogates.interpolation import DistanceFactors
from mpi_opt.testing.strategy_tests import run

SPACE = Space({"x": Real(0, 1), "y": Real(0, 1), "kind": Categorical(("a", "b", "c"))})


def without_niches(found, first=10):
    """The children, numbered from `first`, that may have any category."""
    return [point for number, point in enumerate(found, first) if number % NICHE_EVERY != NICHE_EVERY - 1]


def children(options, n_children=20, seed=3, best=0.4, worse=()):
    """Children of parents that differ in y alone, of which the best is that with y = `best`.

    Args:
        worse: Further observed points, with larger costs than those of the parents.
    """
    strategy = make_strategy("evolutionary", SPACE, seed=seed, options=options)
    points = [{"x": 0.25, "y": number / 10, "kind": "a"} for number in range(10)]
    observed = [(Proposal(number, point), abs(point["y"] - best)) for number, point in enumerate(points)]
    strategy.resume(observed + [(Proposal(10 + number, point), 9.0) for number, point in enumerate(worse)])
    return without_niches([proposal.parameters for proposal in strategy.ask(n_children)], 10 + len(worse))


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
    strategy = make_strategy("evolutionary", SPACE, seed=3, options={"mutation": 0.0, "crossover": 1.0})
    strategy.resume((Proposal(n, {"x": 0.25, "y": n / 10, "kind": "a"}), abs(n / 10 - 0.4)) for n in range(10))
    found = {proposal.number: proposal.parameters for proposal in strategy.ask(20)}
    assert all(abs(found[number]["y"] - 0.4) < 0.1 for number in (11, 15, 23, 27))


def test_another_seed_gives_other_children():
    assert children({}, seed=3) != children({}, seed=4)


def test_a_failed_trial_is_predicted_like_the_worst():
    rows, values = np.linspace(0, 1, 5)[:, None], np.array([0.0, 1.0, 2.0, 5.0, math.nan])
    factors = DistanceFactors(np.array([False]), np.array([0]))
    predicted = interpolated(Observations(rows, values, np.zeros(5)), factors)(factors.left(rows))
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
    assert len({point["x"] for point in found} - {point["x"] for point in points}) > 5
    assert [point["y"] for point in found] == pytest.approx([point["x"] for point in found])
    assert {point["kind"] for point in found} == {"a", "c"}, "a difference of categories has no meaning"


def test_children_of_one_figure_are_not_made_from_differences(monkeypatch):
    """A probability of 1 would make all of them so: here no gene could change."""
    before = children({"mutation": 0.0, "crossover": 0.0})
    monkeypatch.setattr("mpi_opt.strategies.evolution.breeder.DIFFERENTIAL", 1.0)
    assert children({"mutation": 0.0, "crossover": 0.0}) == before


def test_generational_evolution_waits_for_the_whole_generation():
    strategy = make_strategy("evolutionary", SPACE, options={"generational": True, "population": 6})
    asked = strategy.ask(10)
    assert len(asked) == 6
    for proposal in asked[1:]:
        strategy.tell(proposal, 1.0)
    assert strategy.ask(1) == []
    strategy.tell(asked[0], 1.0)
    assert len(strategy.ask(10)) == 6


def test_every_fifth_child_has_another_category_in_each_hyperparameter_in_turn():
    space = Space({"x": Real(0, 1), "kind": Categorical(("a", "b", "c")), "form": Categorical(("p", "q"))})
    strategy = make_strategy("evolutionary", space, seed=0, options={"mutation": 0.0})
    points = [{"x": n / 10, "kind": "abc"[n % 3], "form": "pq"[n % 2]} for n in range(10)]
    strategy.resume((Proposal(n, point), point["x"] + (point["kind"] != "a")) for n, point in enumerate(points))
    found = {proposal.number: proposal.parameters for proposal in strategy.ask(30)}
    assert all(found[number]["kind"] != "a" for number in (14, 24, 34))
    assert all(found[number]["form"] != "p" for number in (19, 29, 39))


def test_a_child_with_another_category_has_the_best_parents_of_that_category():
    """With the best category, x is best at 0; with the other one, which is worse, at 1."""
    space = Space({"x": Real(0, 1), "kind": Categorical(("a", "b"))})
    strategy = make_strategy("evolutionary", space, seed=0, options={"mutation": 0.0, "population": 4})
    points = [{"x": (n // 2) / 10, "kind": "ab"[n % 2]} for n in range(20)]
    cost = lambda point: point["x"] if point["kind"] == "a" else 2.0 - point["x"]  # noqa: E731
    strategy.resume((Proposal(n, point), cost(point)) for n, point in enumerate(points))
    found = {proposal.number: proposal.parameters for proposal in strategy.ask(20)}
    assert all(found[number]["kind"] == "b" and found[number]["x"] > 0.5 for number in (24, 29, 34, 39))
    others = [point for point in without_niches(found.values(), 20) if point["kind"] == "a"]
    assert max(point["x"] for point in others) < 0.5


@pytest.mark.parametrize("seed", range(4))
def test_a_category_that_is_worse_at_most_points_is_not_given_up(seed):
    """It is better only near its optimum, which trials with the other category say nothing about."""
    space = Space({"x": Real(0, 1), "y": Real(0, 1), "kind": Categorical(("easy", "hard", "bad"))})

    def cost(proposal):
        x, y, kind = (proposal.parameters[name] for name in ("x", "y", "kind"))
        if kind == "hard":
            return 3.0 * (x - 0.15) ** 2 + 3.0 * (y - 0.85) ** 2
        return 0.3 + 0.2 * (x - 0.8) ** 2 + 0.2 * (y - 0.2) ** 2 + (kind == "bad")

    _, told = run(make_strategy("evolutionary", space, seed=seed), space, 120, in_flight=8, outcome=cost)
    assert min(value for _, value in told) < 0.05


def test_a_bad_category_gets_few_trials_but_is_tried():
    space = Space({"x": Real(0, 1), "kind": Categorical(("best", "good", "bad"))})
    outcome = lambda p: p.parameters["x"] + {"best": 0, "good": 0.5, "bad": 9}[p.parameters["kind"]]  # noqa: E731
    asked, _ = run(make_strategy("evolutionary", space, seed=0, options={"mutation": 0.1}), space, 200, outcome=outcome)
    counts = Counter(proposal.parameters["kind"] for proposal in asked)
    assert counts["best"] > 2 * counts["good"]
    assert counts["good"] > 1.3 * counts["bad"]
    assert counts["bad"] >= 10


def test_a_proposal_takes_no_longer_after_many_trials_and_with_many_in_flight():
    """The goal is 1 ms; on a machine with other load it is a few."""
    space = Space({f"x{i}": Real(0, 1) for i in range(8)} | {"kind": Categorical(("a", "b", "c"))})
    taken = []
    for n_trials in (300, 6000):
        rng, strategy = np.random.default_rng(0), make_strategy("evolutionary", space, seed=0)
        points = [space.sample(rng) for _ in range(n_trials)]
        proposals = [Proposal(number, point) for number, point in enumerate(points)]
        pending = [Proposal(n_trials + number, space.sample(rng)) for number in range(1000)]
        strategy.resume([(proposal, proposal.parameters["x0"]) for proposal in proposals], pending)
        began = time.process_time()
        for proposal in pending[:400]:
            strategy.tell(proposal, proposal.parameters["x0"])
            strategy.ask(1)
        taken.append((time.process_time() - began) / 400)
    assert taken[1] < 0.004
    assert taken[1] < 2.5 * taken[0]


def test_children_do_not_depend_on_the_order_in_which_trials_are_entered():
    """There are more trials than are remembered; a resumed search enters them in the order in which they ended."""
    points = [{"x": n / 600, "y": (n * 7 % 600) / 600, "kind": "abc"[n % 3]} for n in range(600)]
    proposals = [Proposal(number, point) for number, point in enumerate(points)]
    forwards, backwards = Breeder(SPACE, seed=1), Breeder(SPACE, seed=1)
    for breeder, entered in ((forwards, proposals), (backwards, proposals[::-1])):
        for proposal in entered:
            breeder.start(proposal)
        for proposal in proposals[:200]:
            breeder.tell(proposal, proposal.parameters["x"])
    accepts = lambda point: True  # noqa: E731
    assert [forwards.child(n, accepts) for n in range(600, 640)] == [
        backwards.child(n, accepts) for n in range(600, 640)
    ]


@pytest.mark.parametrize("n_figures", [1, 2])
@pytest.mark.parametrize("name", ["auto", "evolutionary"])
def test_children_of_one_call_are_those_of_many_calls(name, n_figures):
    """Their candidates are made together, and each keeps a distance from the others."""
    together, alone = (made_with_results(name, n_figures, 300) for _ in range(2))
    for n_asked in (3, 70, 1, 40):
        asked = together.ask(n_asked)
        assert asked == [alone.ask(1)[0] for _ in range(n_asked)]
        for strategy in (together, alone):
            strategy.tell(asked[0], (0.01, 0.02) if n_figures > 1 else 0.01)


def test_candidates_of_the_next_generation_are_not_made_before_it_begins():
    options = {"generational": True, "population": 6}
    together, alone = (make_strategy("evolutionary", SPACE, seed=1, options=options) for _ in range(2))
    for _ in range(4):
        asked = together.ask(10)
        assert asked == [alone.ask(1)[0] for _ in range(6)]
        for proposal in asked:
            for strategy in (together, alone):
                strategy.tell(proposal, proposal.parameters["x"])


def made_with_results(name, n_figures, n_results):
    strategy = make_strategy(name, SPACE, seed=1, n_figures=n_figures)
    strategy.afford(0)
    ended = [Proposal(number, point) for number, point in enumerate(points_for_results(n_results))]
    costs = [(one.parameters["x"], 1.0 - one.parameters["x"] * one.parameters["y"])[:n_figures] for one in ended]
    strategy.resume(zip(ended, (cost if n_figures > 1 else cost[0] for cost in costs), strict=True))
    return strategy


def points_for_results(n):
    rng = np.random.default_rng(0)
    return [SPACE.sample(rng) for _ in range(n)]


def test_children_that_are_wanted_at_once_are_made_together(monkeypatch):
    """One call for up to 32 children; those of a niche are made alone."""
    calls, children = [], Breeder._children
    monkeypatch.setattr(Breeder, "_children", lambda *arguments: calls.append(1) or children(*arguments))
    strategy = made_with_results("evolutionary", 1, 300)
    strategy.ask(20)
    calls.clear()
    strategy.ask(64)
    assert len(calls) < 0.3 * 64


def test_the_outcomes_that_are_sorted_for_interpolations_grow_as_their_number():
    """Each interpolation sorts all outcomes, and must therefore become rarer."""
    breeder, sorted_ = Breeder(SPACE, seed=1), []
    few = Observations(np.random.default_rng(0).random((10, 3)), np.arange(10.0) / 10, np.zeros(10))
    breeder.history = SimpleNamespace(n=0, observations=lambda n: sorted_.append(n) or few)
    for breeder.history.n in range(100, 80_000, 20):
        breeder._fitted(0)
    assert sum(sorted_) < 2.5 * sum(n for n in sorted_ if n <= 40_000)


@pytest.mark.parametrize("failure", [Failed("out of memory"), 1e6])
def test_a_category_that_always_fails_gets_fewer_trials_than_one_that_works(failure):
    space = Space({"x": Real(0, 1), "kind": Categorical(("best", "fair", "bad", "broken"))})

    def cost(proposal):
        x, kind = proposal.parameters["x"], proposal.parameters["kind"]
        return failure if kind == "broken" else x + ("best", "fair", "bad").index(kind)

    _, told = run(make_strategy("evolutionary", space, seed=0), space, 200, in_flight=4, outcome=cost)
    kinds = Counter(proposal.parameters["kind"] for proposal, _ in told)
    assert kinds["broken"] < kinds["fair"] < kinds["best"]


@pytest.mark.parametrize("n_figures", [1, 2])
@pytest.mark.filterwarnings("error")
def test_first_results_after_many_failures_are_learned(n_figures):
    strategy = make_strategy("evolutionary", SPACE, seed=1, n_figures=n_figures)
    rng = np.random.default_rng(0)
    points = [SPACE.sample(rng) for _ in range(205)]
    good = [1.0, 2.0, 0.5] if n_figures == 1 else [(1.0, 2.0), (2.0, 1.0), (0.5, 3.0)]
    strategy.resume((Proposal(n, point), Failed("no") if n < 202 else good[n - 202]) for n, point in enumerate(points))
    assert len(strategy.ask(5)) == 5
    assert strategy.problems() == []
