import time

import pytest

from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.errors import ConfigurationError, SearchFailed, SpaceError
from mpi_opt.strategies import make_strategy
from mpi_opt.strategies.points.constraint import Constraint

SPACE = Space({"units": Integer(1, 512), "layers": Integer(1, 8), "kind": Categorical(("a", "b"))})


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ("units * layers < 4096", True),
        ("units * layers < 100", False),
        ("1 < layers <= 4 and not units % 2", True),
        ("1 < layers <= 3", False),
        ("kind == 'b' or units ** 2 > 1e4", False),
        ("kind in ['a', 'b']", True),
        ("max(units, layers) - abs(-3) == 61", True),
        ("units / (layers - 4) > 0", False),
        ("kind < 3", False),
        ("2 ** (units ** layers) > 0", False),
        ("(units, layers) in [[64, 4], [32, 8]]", True),
        ("not (5 < layers < units / (layers - 4))", False),
        ("(units / 65) ** 1000 < 0.5", True),
        ("2 ** 70 > units ** 8", True),
        ("2 ** -2000 < units", True),
        ("1 ** 10 ** 9 == (-1) ** 10 ** 9", True),
        ("round(units, -1) + units % layers == 60", True),
        ("'%z' % units == 'a'", False),
        ("round(1e400 - 1e400) == 1", False),
        ("min([]) < units", False),
        ("layers == 4 or 1 / (layers - 4) > 0", True),
        ("layers != 4 and 1 / (layers - 4) > 0", False),
        ("not (layers != 4 and 1 / (layers - 4) > 0)", True),
        ("units < 0 or layers == 4 or 1 / (layers - 4) > 0", True),
    ],
)
def test_expression_is_evaluated_like_arithmetic(text, is_met):
    assert Constraint(text, SPACE).is_met({"units": 64, "layers": 4, "kind": "a"}) is is_met


@pytest.mark.parametrize(
    "text",
    [
        "9 ** 10 ** 5 > 0",
        "((((9 ** 9) ** 9) ** 9) ** 9) ** 9 > 0",
        "((2 ** 9000) * (2 ** 9000)) ** 9 > 0",
        "kind * 10 ** 5 != 'b'",
        "10 ** 5 * [kind] != 'b'",
        "'%100000d' % units != 'b'",
        "round(units, -10 ** 5) == 0",
    ],
)
def test_constraint_whose_evaluation_could_use_all_memory_is_not_met(text):
    """Without the limits, each is True; with larger numbers its evaluation would take hours and all memory."""
    assert not Constraint(text, SPACE).is_met({"units": 64, "layers": 4, "kind": "a"})


def test_constraint_on_an_inactive_hyperparameter_is_met():
    assert Constraint("units < 0", SPACE).is_met({"layers": 2})
    assert Constraint("4 < layers < units", SPACE).is_met({"layers": 2})


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "units.__class__",
        "(lambda: 1)()",
        "[u for u in units]",
        "open('x')",
        "units <",
        "layers[0]",
        "f'{units}'",
        "abs(units, layers) > 0",
        "max() > 0",
        "min(units) < 4",
        "round(units, 1, 2) > 0",
    ],
)
def test_anything_but_arithmetic_is_refused(text):
    with pytest.raises(ConfigurationError, match="constraints"):
        Constraint(text, SPACE)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("units < 9, layers < 3", "'(units < 9, layers < 3)' is a list"),
        ("units < 9 and [layers < 3]", "'[layers < 3]' is a list"),
        ("3", "'3' does not depend on a hyperparameter"),
    ],
)
def test_expression_that_every_point_would_meet_is_refused(text, problem):
    with pytest.raises(ConfigurationError) as raised:
        Constraint(text, SPACE)
    assert raised.value.problem == problem


def test_spaces_around_an_expression_are_ignored():
    assert not Constraint("  units < 9 ", SPACE).is_met({"units": 64, "layers": 4, "kind": "a"})


def test_unsuccessful_random_points_do_not_prove_that_no_point_satisfies_the_constraints():
    space = {"x": Real(0, 1), "y": Real(0, 1)}
    strategy = make_strategy("random", space, options={"constraints": ["x + y < 1e-9"]})
    with pytest.raises(SearchFailed, match="none of 200,000 random points satisfies"):
        strategy.ask(1)


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigurationError, match="did you mean units"):
        Constraint("unit < 3", SPACE)


def test_known_point_that_violates_a_constraint_is_refused():
    options = {"initial": [{"units": 4, "layers": 2, "kind": "a"}], "constraints": ["units > 4"]}
    with pytest.raises(SpaceError, match=r"search\.options\.initial\[0\].*violates the constraints"):
        make_strategy("random", SPACE, options=options)


@pytest.mark.parametrize("name", ["random", "bayesian", "evolutionary"])
def test_one_point_in_ten_thousand_is_found(name):
    space = Space({"a": Integer(1, 1000), "b": Integer(1, 1000), "x": Real(0, 1)})
    for proposal in make_strategy(name, space, options={"constraints": ["a + 10 * b == 2000"]}).ask(3):
        assert proposal.parameters["a"] + 10 * proposal.parameters["b"] == 2000


def test_a_finite_space_that_is_mostly_forbidden_is_listed_once():
    space = Space({"a": Integer(1, 400), "b": Integer(1, 400)})
    strategy, began = make_strategy("random", space, options={"constraints": ["a * b == 3600"]}), time.process_time()
    proposals = strategy.ask(60)
    n_points = sum(3600 % a == 0 and 9 <= a <= 400 for a in range(1, 401))
    assert len({tuple(one.parameters.values()) for one in proposals}) == n_points
    assert time.process_time() - began < 5.0


@pytest.mark.parametrize(
    ("name", "text"),
    [("lambda", "lambda < 0.5"), ("None", "None != 3"), ("in", "x > 0.1 and x in [0.2, in]"), ("if", "(if) < x")],
)
def test_a_hyperparameter_with_the_name_of_a_keyword_is_refused_in_a_constraint(name, text):
    """Some of these expressions are valid, and ignore the hyperparameter."""
    with pytest.raises(ConfigurationError) as raised:
        Constraint(text, Space({name: Real(0, 1), "x": Real(0, 1)}))
    assert raised.value.problem == (
        f"the hyperparameter {name} has the name of a keyword of Python, which a constraint cannot contain"
    )
    assert raised.value.cure == f"rename it in the space, for example to {name}_"


def test_keywords_that_are_no_hyperparameters_of_the_constraint_are_allowed():
    space = Space({"lambda": Real(0, 1), "kind": Categorical(("lambda", "b"))})
    assert Constraint("not kind in ['lambda']", space).is_met({"kind": "b"})
    assert not Constraint('kind != "lambda"', space).is_met({"kind": "lambda"})
