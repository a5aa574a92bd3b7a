"""Several figures of merit: the rules of all strategies, and that those that learn find the Pareto front."""

import math
import random

import numpy as np
import pytest

from mpi_opt.core.figures import Measured
from mpi_opt.core.figures_of_merit import ranks
from mpi_opt.core.search_space.space import Categorical, Real, Space
from mpi_opt.core.trial import Failed
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import STRATEGIES, Strategy, make_strategy
from mpi_opt.strategies.surrogates.proposing.scalarization import drawn_weights, scalarized
from mpi_opt.testing.strategy_tests import SPACES, run

ONE_FIGURE = ("scikit-optimize",)
"""Strategies that refuse several figures of merit."""

SEVERAL = [name for name in STRATEGIES if name not in ONE_FIGURE]
every_strategy = pytest.mark.parametrize("name", SEVERAL)
PLANE = Space({name: Real(0, 1) for name in "abcd"} | {"kind": Categorical(["good", "bad"])})


def two_hills(space, parameters):
    """Distance from two corners: the front is the line between them."""
    units = space.encode(parameters)
    return float(((units - 0.2) ** 2).sum()), float(((units - 0.8) ** 2).sum())


def zdt(parameters):
    """Of ZDT2's kind: the front is not convex."""
    a, rest = parameters["a"], [parameters[name] for name in "bcd"]
    g = 1 + 3 * sum(rest) + (parameters["kind"] == "bad")
    return a, g * (1 - (a / g) ** 2)


def hypervolume(points, reference=(1.1, 1.1)):
    """The area that the points dominate, up to `reference`."""
    area, height = 0.0, reference[1]
    for x, y in sorted(point for point in points if point[0] < reference[0]):
        if y < height:
            area += (reference[0] - x) * (height - y)
            height = y
    return area


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "mixed") for name in SEVERAL),
        *(("bayesian", kind) for kind in ("tiny", "conditional")),
        *(
            pytest.param("bayesian", kind, marks=pytest.mark.thorough)
            for kind in sorted(set(SPACES) - {"mixed", "tiny", "conditional"})
        ),
    ],
)
def test_tuples_are_survived_failures_and_nan_included(name, kind):
    space = SPACES[kind]

    def outcome(proposal):
        if proposal.number % 5 == 4:
            return Failed("no") if proposal.number % 2 else (math.nan, 1.0)
        return tuple(Measured(value, 0.01) for value in two_hills(space, proposal.parameters))

    asked, told = run(make_strategy(name, space, seed=3, n_figures=2), space, 16, outcome=outcome)
    assert len(asked) == len(told)
    for proposal in asked:
        space.check(proposal.parameters)


@every_strategy
def test_resumed_strategy_proposes_the_same_points(name):
    space = SPACES["mixed"]
    living, resumed = (make_strategy(name, space, seed=2, n_figures=2) for _ in range(2))
    _, told = run(living, space, 18, outcome=lambda proposal: two_hills(space, proposal.parameters))
    pending = living.ask(2)
    resumed.resume(told, pending)
    assert resumed.ask(2) == living.ask(2)
    for strategy in (living, resumed):
        strategy.tell(pending[0], (0.1, 0.2))
    assert resumed.ask(1) == living.ask(1)


@pytest.mark.parametrize("n_figures", [1, 2])
def test_bayesian_takes_pending_trials_of_the_same_or_an_earlier_call_into_account_alike(n_figures):
    together, one_by_one = (make_strategy("bayesian", PLANE, seed=1, n_figures=n_figures) for _ in range(2))
    for strategy in (together, one_by_one):
        for proposal in strategy.ask(14):
            figures = zdt(proposal.parameters)
            strategy.tell(proposal, figures if n_figures == 2 else figures[1])
    several, single = together.ask(3), [proposal for _ in range(3) for proposal in one_by_one.ask(1)]
    rows = [[PLANE.encode(proposal.parameters) for proposal in asked] for asked in (several, single)]
    np.testing.assert_allclose(*rows, atol=1e-6)


def found(name, options, seed):
    rng, pending, points = random.Random(seed), [], []
    strategy = make_strategy(name, PLANE, seed=seed, n_figures=2, options=options)
    while len(points) < 60:
        pending += strategy.ask(4 - len(pending))
        proposal = pending.pop(rng.randrange(len(pending)))
        points.append(zdt(proposal.parameters))
        strategy.tell(proposal, points[-1])
    return points


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "n_seeds", "least"), [("evolutionary", 20, 0.42), ("bayesian", 3, 0.42)])
def test_front_that_is_not_convex_is_found_all_along(name, n_seeds, least):
    """In the median over seeds: some searches of `evolutionary` find one end of the front only."""
    searches = [found(name, {}, seed) for seed in range(n_seeds)]
    by_chance = [hypervolume(found("random", {}, seed)) for seed in range(5)]
    assert np.median([hypervolume(points) for points in searches]) > max(least, 2 * np.median(by_chance))
    assert np.median([n_parts(points) for points in searches]) == 4, "a part of the front was not found"


def n_parts(points):
    """The number of quarters of the range of the first figure of merit in which the front has points."""
    front = np.array(points)[ranks(np.array(points)) == 0]
    return (np.histogram(front[:, 0], bins=4, range=(0, 1))[0] > 0).sum()


def test_a_strategy_that_knows_one_figure_is_refused_at_the_start():
    class Mine(Strategy):
        def __init__(self, space, seed=0, options=None):
            pass

        ask = tell = resume = None

    Mine.__abstractmethods__ = frozenset()
    with pytest.raises(ConfigurationError, match="Mine compares trials by one figure of merit, but there are 2"):
        Mine(PLANE).expect(2)


def test_halving_by_reports_of_trials_is_refused_at_the_start():
    make_strategy("halving", PLANE, n_figures=2)
    with pytest.raises(ConfigurationError, match="a trial reports one number"):
        make_strategy("halving", PLANE, options={"resume": False}, n_figures=2)


def test_halving_promotes_the_front():
    options = {"max_budget": 3, "min_budget": 1, "factor": 3, "exploration": 0}
    strategy = make_strategy("halving", PLANE, options=options, n_figures=2)
    asked = strategy.ask(9)
    values = [(0.0, 9.0), (9.0, 0.0), (4.0, 4.0)] + [(10.0 + n, 10.0) for n in range(6)]
    for proposal, value in zip(asked, values, strict=True):
        strategy.tell(proposal, value)
    assert {proposal.resume_from for proposal in strategy.ask(3)} == {0, 1, 2}


def test_population_replaces_the_last_front_by_the_first():
    strategy = make_strategy("population", PLANE, seed=1, options={"population": 4}, n_figures=2)
    asked = strategy.ask(4)
    for proposal, value in zip(asked, [(0.0, 1.0), (5.0, 5.0), (1.0, 0.0), (0.5, 0.5)], strict=True):
        strategy.tell(proposal, value)
    continued = [proposal.resume_from for proposal in strategy.ask(4)]
    assert sorted(set(continued)) == [0, 2, 3]  # the member that trial 1 ended continues one of these


def test_every_point_of_a_front_is_best_for_some_weights_unless_it_costs_twenty_times_its_gain():
    x = np.linspace(0, 1, 21)
    front = np.column_stack([x, 1 - x**2])
    worse = front + 0.2
    values = np.vstack([front, worse, [[math.nan, math.nan]]])
    best = set()
    for number in range(600):
        one, _ = scalarized(values, np.zeros_like(values), drawn_weights(2, 0, number))
        assert np.isnan(one[-1])
        best.add(int(np.nanargmin(one)))
    slope = 2 * x  # what is gained of the second value by giving up some of the first
    assert set(np.flatnonzero(slope > 1 / 3)) <= best <= set(range(21))


def test_the_uncertainty_of_a_scalarized_value_is_that_of_its_largest_term():
    """Its unit is the extent of the front: the dominated third point does not change it."""
    values, variances = np.array([[0.0, 4.0], [2.0, 0.0], [90.0, 4.0]]), np.array([[0.1, 0.4]] * 3)
    one, variance = scalarized(values, variances, np.array([0.5, 0.5]))
    assert one[:2] == pytest.approx([0.5 + 0.05 * 0.5, 0.5 + 0.05 * 0.5])
    assert variance[:2] == pytest.approx([0.4 * (1.05 * 0.5 / 4) ** 2, 0.1 * (1.05 * 0.5 / 2) ** 2])


def test_the_unit_of_a_front_of_one_point_is_its_distance_to_the_median():
    """One figure is a thousand times as large as the other, and counts as much."""
    values = np.array([[0.0, 0.0], [1.0, 3000.0], [2.0, 1000.0], [3.0, 2000.0]])
    one, _ = scalarized(values, np.zeros((4, 2)), np.array([0.5, 0.5]))
    terms = np.array([[0.0, 0.0], [1.0, 3.0], [2.0, 1.0], [3.0, 2.0]]) / 1.5
    assert one == pytest.approx(0.5 * terms.max(axis=1) + 0.05 * 0.5 * terms.sum(axis=1))
