"""Integers of up to 64 bits are exact in spaces, strategies, stores, tables and pages."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mpi_opt
from mpi_opt.configuration.read_study import read_study
from mpi_opt.core.search_space.space import Integer, Space
from mpi_opt.errors import SpaceError
from mpi_opt.store import Store
from mpi_opt.strategies import STRATEGIES, make_strategy
from mpi_opt.study.opening.earlier_study import _nearest
from mpi_opt.study.study import Study
from mpi_opt.testing.strategy_tests import run
from mpi_opt.views.page.report import report
from mpi_opt.views.text import tables
from tests.optional_packages import needs

LARGEST = 2**63 - 1
WIDE = Integer(-LARGEST, LARGEST)
SPACES = {
    "wide": Space({"s": WIDE}),
    "positive": Space({"s": Integer(0, LARGEST)}),
    "log": Space({"s": Integer(1, LARGEST, "log-uniform")}),
    "step": Space({"s": Integer(-LARGEST, LARGEST, step=2**53 + 1)}),
    "narrow": Space({"s": Integer(LARGEST - 9, LARGEST)}),
}
QUICK = {"scikit-optimize": {"base_estimator": "ET", "acq_func": "EI", "n_points": 100}, "halving": {"max_budget": 4}}

integers = st.integers(-LARGEST, LARGEST)


@settings(max_examples=300)
@given(low=integers, high=integers, step=st.integers(1, 2**62), unit=st.floats(0, 1))
@example(low=-LARGEST, high=LARGEST, step=1, unit=1.0)
@example(low=0, high=LARGEST, step=1, unit=1.0)
@example(low=-18704, high=25_989_207_922_443_521, step=1, unit=0.0)
@example(low=2**53, high=2**53 + 3, step=1, unit=0.5)
def test_every_decoded_integer_belongs_to_its_dimension(low, high, step, unit):
    if low >= high or step > high - low:
        return
    dimension = Integer(low, high, step=step)
    value = dimension.decode(unit)
    assert type(value) is int
    assert value in dimension
    assert 0.0 <= dimension.encode(value) <= 1.0
    assert low + (dimension.size - 1) * step <= high < low + dimension.size * step
    assert (dimension.decode(0.0), dimension.decode(1.0)) == (low, low + (dimension.size - 1) * step)


def test_integers_of_a_narrow_range_are_encoded_exactly():
    dimension = SPACES["narrow"]["s"]
    assert [dimension.decode(dimension.encode(value)) for value in dimension.all_values()] == list(
        dimension.all_values()
    )


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("name", STRATEGIES)
def test_proposals_are_in_the_space_and_a_study_continues(name, kind):
    space, options = SPACES[kind], QUICK.get(name, {}) | ({"points": {"s": 7}} if name == "grid" else {})
    asked, told = run(
        make_strategy(name, space, seed=1, options=options), space, 10, outcome=lambda p: -float(p.parameters["s"])
    )
    assert len(told) == len(asked) >= 7
    for proposal in asked:
        space.check(proposal.parameters)
    resumed = make_strategy(name, space, seed=1, options=options)
    resumed.resume(told)
    assert all(type(one.parameters["s"]) is int for one in resumed.ask(1))


def test_the_points_of_a_grid_include_both_ends():
    asked = make_strategy("grid", SPACES["positive"], options={"points": {"s": 3}}).ask(9)
    assert [proposal.parameters["s"] for proposal in asked] == [0, 2**62, LARGEST]


@pytest.mark.parametrize("value", [LARGEST, 2**53 + 1, -LARGEST, 12_345_678_901])
def test_a_transferred_value_is_unchanged_and_one_outside_becomes_the_nearest_end(value):
    assert _nearest(WIDE, value) == value
    assert _nearest(Integer(0, LARGEST - 1), LARGEST) == LARGEST - 1


BEYOND = [
    {"low": 0, "high": 2**64 - 1},
    {"low": -(2**63), "high": 0},
    {"low": 0, "high": 2**63},
    {"low": 0, "high": 1e19},
]


@pytest.mark.parametrize("limits", BEYOND, ids=str)
def test_integers_of_more_than_64_bits_are_refused_in_yaml_and_in_python(limits):
    wrong = "high" if limits["high"] else "low"
    with pytest.raises(SpaceError) as of_python:
        Integer(**limits)
    content = {"objective": "any.py:thing", "space": {"x": {"type": "integer"} | limits}}
    with pytest.raises(SpaceError) as of_yaml:
        read_study(content).search_space()
    expected = f"an integer hyperparameter needs a {wrong} of at most 2⁶³ - 1 = 9223372036854775807, and at least minus"
    assert of_python.value.problem.startswith(expected)
    assert (of_yaml.value.problem, of_yaml.value.where) == (of_python.value.problem, f"space.x.{wrong}")


@pytest.fixture
def searched(tmp_path) -> Study:
    known = [{"s": value, "n": 12_345} for value in (LARGEST, 2**53 + 1, -LARGEST)]
    return mpi_opt.search(
        lambda trial: 1.0 + trial.number,
        space={"s": WIDE, "n": Integer(1, 50_000)},
        trials=4,
        strategy="random",
        options={"initial": known},
        study="s",
        store=f"sqlite:///{tmp_path}/s.db",
    )


def test_the_store_and_tables_have_all_digits(searched):
    with Store.open(searched.store, read_only=True) as store:
        _, rows = store.sql("SELECT s FROM study_s ORDER BY number LIMIT 3")
    assert rows == [(LARGEST,), (2**53 + 1,), (-LARGEST,)]
    assert [trial.parameters["s"] for trial in searched.trials[:3]] == [LARGEST, 2**53 + 1, -LARGEST]
    assert tables.to_csv(["s"], [(searched.trials[0].parameters["s"],)]).endswith(str(LARGEST))


def test_a_page_has_the_digits_of_integers_as_texts(searched):
    data = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', report(searched), re.S)[1])
    s, n = data["space"]
    assert s["texts"][:3] == [str(LARGEST), str(2**53 + 1), str(-LARGEST)]
    assert n["whole"] and "texts" not in n


@needs("pandas")
def test_a_data_frame_has_all_digits_also_beside_missing_values(tmp_path):
    space = {
        "kind": mpi_opt.Categorical(("a", "b")),
        "s": Integer(-LARGEST, LARGEST, when={"kind": "a"}),
    }
    study = mpi_opt.search(
        lambda trial: 1.0,
        space=space,
        trials=2,
        strategy="random",
        options={"initial": [{"kind": "a", "s": LARGEST - 1}, {"kind": "b"}]},
        study="s",
        store=f"sqlite:///{tmp_path}/s.db",
    )
    column = study.dataframe()["s"]
    assert int(column[0]) == LARGEST - 1
    assert column.isna().tolist() == [False, True]
