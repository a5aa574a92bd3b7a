import itertools
import time

import pytest

from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.errors import ConfigurationError, SearchFailed
from mpi_opt.strategies import make_strategy
from mpi_opt.strategies.points.constraint import Constraint

HUGE = Space(
    {"a": Integer(0, 10**12), "b": Real(0, 1, step=1e-9)}
    | {f"c{index}": Categorical(tuple("xyz")) for index in range(30)}
)


def test_last_hyperparameter_runs_fastest_and_conditions_leave_some_out():
    space = {"a": Integer(1, 2), "b": Real(0, 1), "c": Categorical(("u", "v"), when={"a": 2})}
    strategy = make_strategy("grid", space, options={"points": {"b": 3}})
    found = [tuple(proposal.parameters.values()) for proposal in strategy.ask(99)]
    assert found == [(1, b) for b in (0.0, 0.5, 1.0)] + list(itertools.product([2], [0.0, 0.5, 1.0], "uv"))
    assert strategy.ask(1) == []
    assert strategy.finished


def test_values_have_no_errors_of_rounding():
    strategy = make_strategy("grid", {"x": Real(0, 1), "y": Real(1e-4, 1, prior="log-uniform")}, options={"points": 11})
    found = [proposal.parameters for proposal in strategy.ask(121)]
    assert sorted({point["x"] for point in found}) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    strategy = make_strategy("grid", {"x": Real(1 / 3, 2 / 3)}, options={"points": 2})
    assert [proposal.parameters["x"] for proposal in strategy.ask(2)] == [1 / 3, 2 / 3]
    narrow = make_strategy("grid", {"x": Real(1e9, 1e9 + 0.001)}, options={"points": 5}).ask(9)
    assert len({proposal.parameters["x"] for proposal in narrow}) == 5


def test_number_of_points_of_a_category_is_refused():
    with pytest.raises(ConfigurationError, match="gets all of its values"):
        make_strategy("grid", {"c": Categorical(("u", "v", "w"))}, options={"points": {"c": 2}})


def test_grid_without_an_allowed_point_is_an_error():
    strategy = make_strategy("grid", {"x": Real(0, 1)}, options={"constraints": ["0.01 < x < 0.02"]})
    with pytest.raises(SearchFailed, match="no point of the grid"):
        strategy.ask(1)


def test_product_of_any_size_is_computed_on_demand():
    strategy, began = make_strategy("grid", HUGE), time.process_time()
    proposals = strategy.ask(100)
    assert time.process_time() - began < 1.0
    assert [proposal.parameters["c29"] for proposal in proposals[:4]] == ["x", "y", "z", "x"]
    assert {proposal.parameters["a"] for proposal in proposals} == {0}


def test_an_interrupted_scan_continues():
    whole, told = make_strategy("grid", HUGE), []
    proposals = whole.ask(300)
    told = [(proposal, 1.0) for proposal in reversed(proposals[:280])]
    resumed = make_strategy("grid", HUGE)
    resumed.resume(told, proposals[280:])
    assert resumed.ask(5) == whole.ask(5)


@pytest.mark.parametrize("constraint", ["a > 9 * 10 ** 11", "a >= 7 and b < 0.5 or a == 1", "not a < 3 * 10 ** 11"])
def test_points_that_violate_a_constraint_are_skipped_at_once(constraint):
    others = {f"c{index}": Integer(0, 99) for index in range(9)}
    space = Space({"a": Integer(0, 10**12, step=10**11)} | others | {"b": Real(0, 1)})
    strategy, began = make_strategy("grid", space, options={"constraints": [constraint]}), time.process_time()
    (proposal,) = strategy.ask(1)
    assert time.process_time() - began < 1.0
    assert eval(constraint, {}, proposal.parameters)


def test_passing_over_leaves_out_nothing_that_is_allowed():
    """Compared with all combinations, each evaluated as a whole."""
    space = Space(
        {
            "late": Integer(0, 3, when={"kind": ["p", "q"]}),
            "kind": Categorical(("p", "q", "r")),
            "x": Integer(-2, 2),
            "y": Integer(1, 4),
        }
    )
    constraints = ["x / y < 0.5 or kind == 'p'", "late != x", "abs(x) + y in [2, 3]", "x > 0 or y % 2 == 0 or kind < 3"]
    everything = [proposal.parameters for proposal in make_strategy("grid", space).ask(1000)]
    assert len(everything) == 9 * 20
    alone = [make_strategy("grid", space, options={"constraints": [one]}).ask(1000) for one in constraints]
    together = make_strategy("grid", space, options={"constraints": constraints}).ask(1000)

    read = [Constraint(text, space) for text in constraints]
    for constraint, found in zip(read, alone, strict=True):
        assert [one.parameters for one in found] == [point for point in everything if constraint.is_met(point)]
        assert 0 < len(found) < len(everything)
    assert [one.parameters for one in together] == [p for p in everything if all(one.is_met(p) for one in read)]
    assert together


def test_a_step_that_gives_more_values_than_an_array_can_have_is_no_error():
    first, second = make_strategy("grid", Space({"x": Real(0, 1, step=1e-300)})).ask(2)
    assert first.parameters["x"] == 0.0
    assert 0.0 < second.parameters["x"] < 1e-9
