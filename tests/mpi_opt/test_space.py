from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.errors import SpaceError
from mpi_opt.testing.strategy_tests import SPACES

DIMENSIONS = [
    Real(-5, 10),
    Real(1e-5, 1e-1, prior="log-uniform"),
    Real(0, 1, step=0.1),
    Real(0.0, 0.99, step=0.33),
    Integer(1, 8),
    Integer(16, 256, step=16),
    Integer(1, 4096, prior="log-uniform"),
    Integer(1, 99, prior="log-uniform", step=7),
    Real(0, 1, step=0.3),
    Integer(1, 10, step=4),
    Integer(1, 100, prior="log-uniform", step=7),
    Categorical(["relu", "elu", "selu"]),
    Categorical([1, 2.5, True, None, "x"]),
]
OF_TINY_STEPS = [Real(0, 1, step=1e-12), Real(1e6, 1e6 + 1, step=1e-9)]


@pytest.mark.parametrize("dimension", [*DIMENSIONS, *OF_TINY_STEPS], ids=str)
@given(unit=st.floats(0, 1))
def test_decoded_values_belong_to_the_dimension_and_come_back(dimension, unit):
    value = dimension.decode(unit)
    assert value in dimension
    again = dimension.decode(dimension.encode(value))
    assert again == pytest.approx(value, rel=1e-9) if isinstance(value, float) else again is value or again == value


@pytest.mark.parametrize("dimension", [*DIMENSIONS, Real(0, 1, when={"kind": ["a", "b"]})], ids=repr)
def test_a_dimension_is_shown_as_the_call_that_creates_it(dimension):
    shown = repr(dimension)
    assert eval(shown) == dimension
    assert "None" not in shown or isinstance(dimension, Categorical)


@pytest.mark.parametrize(
    ("dimension", "text"),
    [
        (Real(1e-4, 0.1, prior="log-uniform"), "real, 0.0001 to 0.1, log-uniform"),
        (Integer(16, 256, step=16), "integer, 16 to 256 in steps of 16"),
        (Integer(1, 2**62), "integer, 1 to 4611686018427387904"),
        (Real(0, 10, step=1), "real, 0 to 10 in steps of 1"),
        (Real(0, 0.99999999), "real, 0 to 0.99999999"),
        (Categorical(["relu", None, True, 2]), "categorical, one of relu, null, true, 2"),
        (Categorical(["1", 1, None, "null"]), 'categorical, one of "1", 1, null, "null"'),
        (Real(0, 1, when={"kind": ["a", "b"], "on": True}), "real, 0 to 1, when kind is a, b, on is true"),
    ],
    ids=repr,
)
def test_messages_describe_a_dimension_in_words(dimension, text):
    assert str(dimension) == text


@pytest.mark.parametrize("dimension", [d for d in DIMENSIONS if math.isfinite(d.size)], ids=str)
def test_every_value_can_be_drawn(dimension):
    values = {
        dimension.decode(unit) if not isinstance(dimension, Categorical) else repr(dimension.decode(unit))
        for unit in np.linspace(0, 1, 80_001)
    }
    assert len(values) == dimension.size


@pytest.mark.parametrize(
    ("dimension", "values"),
    [
        (Real(0, 1, step=0.3), [0.0, 0.3, 0.6, 0.9]),
        (Real(0, 1, step=0.35), [0.0, 0.35, 0.7]),
        (Integer(1, 10, step=4), [1, 5, 9]),
        (Integer(1, 12, step=4), [1, 5, 9]),
    ],
)
def test_a_step_never_goes_beyond_an_upper_bound_that_is_not_on_the_grid(dimension, values):
    found = sorted({dimension.decode(unit) for unit in np.linspace(0, 1, 1001)})
    assert found == values
    assert dimension.size == len(values)
    assert dimension.decode(dimension.encode(dimension.high)) == values[-1]


@pytest.mark.parametrize("dimension", [Real(0, 2 / 3, step=1 / 3), Real(1 / 3, 2.0, step=0.5)], ids=str)
def test_values_of_a_grid_are_not_rounded_beyond_its_bounds(dimension):
    values = list(dimension.all_values())
    assert values == [dimension.decode(dimension.encode(value)) for value in values]
    assert all(dimension.low <= value <= dimension.high and value in dimension for value in values)


def test_number_of_points_of_a_large_space_is_exact_or_infinite():
    integers = {f"n{index}": Integer(1, 10**9) for index in range(40)}
    assert Space(integers).size == 10**360
    assert Space(integers | {"x": Real(0, 1)}).size == math.inf


def test_numbers_may_come_from_numpy():
    assert Real(np.float32(0.5), np.float64(1.5)) == Real(0.5, 1.5)
    assert Integer(np.int64(1), np.int32(9), step=np.uint8(2)) == Integer(1, 9, step=2)
    assert Categorical(list(np.array([16, 32]))).categories == (16, 32)
    assert type(Categorical(list(np.array([16, 32]))).decode(0.0)) is int


@pytest.mark.parametrize(
    ("wanted", "plain"),
    [(np.int64(2), 2), (np.array([2, 3]), [2, 3]), (range(2, 4), [2, 3]), ((np.int8(2), 3), [2, 3])],
)
def test_values_of_a_condition_may_come_from_numpy(wanted, plain):
    dimension = Real(0, 1, when={"k": wanted})
    assert dimension == Real(0, 1, when={"k": plain})
    json.dumps(dimension.entry())
    space = Space({"k": Integer(1, 6), "x": dimension})
    assert space.is_active("x", {"k": 2}) and not space.is_active("x", {"k": 5})


def test_integers_are_equally_likely():
    rng = np.random.default_rng(1)
    counts = np.bincount([Integer(0, 4).sample(rng) for _ in range(20_000)])
    assert counts == pytest.approx(4000, rel=0.06)


def test_log_uniform_gives_each_decade_the_same_share():
    rng = np.random.default_rng(1)
    values = [Real(1e-4, 1e-1, prior="log-uniform").sample(rng) for _ in range(9000)]
    assert np.histogram(np.log10(values), bins=3, range=(-4, -1))[0] == pytest.approx(3000, rel=0.1)


def test_a_hyperparameter_exists_only_under_its_condition():
    space = Space(
        {
            "momentum": Real(0, 1, when={"optimizer": "sgd"}),
            "optimizer": Categorical(["adam", "sgd"]),
            "nesterov": Categorical([True, False], when={"momentum": [0.0, 1.0]}),
        }
    )
    assert space.active({"optimizer": "adam", "momentum": 0.5}) == {"optimizer": "adam"}
    assert list(space.active({"optimizer": "sgd", "momentum": 1.0, "nesterov": True})) == list(space)
    space.check({"optimizer": "adam"})
    with pytest.raises(SpaceError, match="does not exist for these values"):
        space.check({"optimizer": "adam", "momentum": 0.5})
    with pytest.raises(SpaceError, match="is missing"):
        space.check({"optimizer": "sgd"})


def test_a_hyperparameter_with_two_conditions_needs_both():
    kinds = {"kind": Categorical(["a", "b"]), "form": Categorical(["a", "b"])}
    space = Space(kinds | {"x": Real(0, 1, when={"kind": "a", "form": "a"})})
    pairs = [{"kind": kind, "form": form} for kind in "ab" for form in "ab"]
    assert [space.is_active("x", pair) for pair in pairs] == [True, False, False, False]


def test_one_and_true_are_different_categories():
    choices = Categorical([1, True])
    assert choices.decode(choices.encode(True)) is True
    assert type(choices.decode(choices.encode(1))) is int


@pytest.mark.parametrize("categories", [[True, 1.0, 1], [1, True, 1.0], [1.0, 1, True]])
def test_a_condition_on_a_category_does_not_hold_for_an_equal_one_of_another_type(categories):
    for wanted in categories:
        space = Space({"kind": Categorical(categories), "x": Real(0, 1, when={"kind": wanted})})
        active = [kind for kind in categories if space.is_active("x", {"kind": kind})]
        assert [(type(kind), kind) for kind in active] == [(type(wanted), wanted)]


def test_a_condition_on_a_number_holds_for_a_whole_number_and_an_equal_real_one():
    for wanted in (1, 1.0):
        space = Space({"momentum": Real(0, 1), "x": Real(0, 1, when={"momentum": wanted})})
        assert space.is_active("x", {"momentum": 1}) and space.is_active("x", {"momentum": 1.0})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Real(1, 1), "low must be less than high"),
        (lambda: Real(2, 1), "low must be less than high"),
        (lambda: Real(0, 1, prior="log-uniform"), "needs low > 0"),
        (lambda: Real(0, 1, prior="normal"), "prior must be one of"),
        (lambda: Real(0, 1, step=2), "step must be between"),
        (lambda: Real(0, 1, step="0.1"), "step must be a finite number, not '0.1'"),
        (lambda: Real(0, float("inf")), "must be a finite number"),
        (lambda: Real("a", 1), "must be a finite number"),
        (lambda: Real(-1e308, 1e308), "is too large"),
        (lambda: Real(0, 10**400), "must be a finite number"),
        (lambda: Integer(0, 1.5), "needs a whole number"),
        (lambda: Integer(0, float("inf")), "needs a whole number"),
        (lambda: Integer(-(10**400), 0), "must be a finite number"),
        (lambda: Categorical([]), "categories is empty"),
        (lambda: Categorical("abc"), "categories must be a list"),
        (lambda: Categorical(["a", "a"]), "duplicate category"),
        (lambda: Categorical([[1]]), "a category must be text"),
        (lambda: Categorical([0.1, math.nan]), "nan cannot be a category"),
        (lambda: Categorical([0.1, -math.inf]), "-inf cannot be a category"),
        (lambda: Space({"a": Real(0, 1, when={"b": []}), "b": Integer(0, 3)}), "no value of b is given"),
        (lambda: Space({}), "the search space is empty"),
        (lambda: Space({"a": Real(0, 1, when={"b": 1})}), "'b' is not a hyperparameter"),
        (lambda: Space({"a": Real(0, 1, when={"a": 0.5})}), "depend on each other"),
        (
            lambda: Space({"a": Integer(0, 1, when={"b": 1}), "b": Integer(0, 1, when={"a": 1})}),
            "depend on each other",
        ),
        (lambda: Space({"a": Integer(0, 1, when={"b": 7}), "b": Integer(0, 3)}), "b never takes the value 7"),
        (lambda: Space({"a": 3}), "expected Real, Integer or Categorical"),
        (lambda: Space("x"), "expected a mapping from name to hyperparameter, not 'x'"),
    ],
)
def test_impossible_spaces_are_refused_with_a_cure(make, message):
    with pytest.raises(SpaceError, match=message) as caught:
        make()
    assert caught.value.cure


def test_values_between_the_steps_of_a_dimension_do_not_belong_to_it():
    dimension = Integer(1, 10, step=4)
    assert [value for value in range(12) if value in dimension] == [1, 5, 9]


def test_a_hyperparameter_whose_parent_does_not_exist_does_not_exist_either():
    space = Space(
        {
            "optimizer": Categorical(["sgd", "adam"]),
            "schedule": Categorical(["step", "none"], when={"optimizer": "sgd"}),
            "rate": Real(0, 1, when={"schedule": "step"}),
        }
    )
    assert space.active({"optimizer": "adam", "schedule": "step", "rate": 0.1}) == {"optimizer": "adam"}
    assert space.encode({"optimizer": "adam"}).tolist()[1:] == [0.5, 0.5]


def test_numbers_of_low_precision_are_those_that_are_printed():
    assert Real(np.float16(0.1), np.float32(0.7)) == Real(0.1, 0.7)
    assert 0.1 in Categorical([np.float32(0.1), "auto"])


def test_a_value_of_another_type_is_no_category():
    assert 1 not in Categorical([True, "auto"])
    assert True not in Categorical([1, "auto"])
    assert 1 in Categorical([1, True])


@pytest.mark.parametrize("kind", ["conditional", "branching", "mixed"])
def test_active_hyperparameters_of_many_points_are_those_of_each(kind):
    space, units = SPACES[kind], np.random.default_rng(0).random((60, len(SPACES[kind])))
    expected = [[name in space.decode(point) for name in space] for point in units]
    assert space.active_units(units).tolist() == expected


def test_a_condition_on_a_number_holds_for_many_points_as_for_each():
    space = Space({"x": Real(0, 1, when={"n": [2, 3]}), "n": Integer(1, 4), "y": Real(0, 1, when={"x": 0.5})})
    units = np.random.default_rng(0).random((60, 3))
    expected = [[name in space.decode(point) for name in space] for point in units]
    assert space.active_units(units).tolist() == expected
