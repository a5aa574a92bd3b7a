"""Finite values of any size: none ends a search, and the differences of all others still count."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mpi_opt.core.figures_of_merit import order
from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.strategies import STRATEGIES, make_strategy
from mpi_opt.strategies.surrogates.extremes import scaled, without_extremes
from mpi_opt.testing.strategy_tests import SPACES, cost, run
from tests.mpi_opt.strategies.test_conformance import QUICK

LARGEST, SMALLEST = sys.float_info.max, 5e-324
SEVERAL = ("bayesian", "evolutionary", "halving", "population")
"""The strategies that compute with several figures of merit."""
SPACE = Space({"x": Real(0, 1), "n": Integer(1, 40), "kind": Categorical(("a", "b", "c"))})

extreme = st.sampled_from(
    [
        LARGEST,
        -LARGEST,
        1e308,
        1e200,
        1e160,
        -1e155,
        1e100,
        1e20,
        1.0,
        0.1,
        0.0,
        -0.0,
        1e-160,
        1e-300,
        SMALLEST,
        -SMALLEST,
    ]
)
values = st.lists(extreme | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=14)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", STRATEGIES)
@settings(max_examples=5)
@given(values=values)
@example([LARGEST] + [0.1, 0.2, 0.3, 0.4, 0.5, 0.6] * 3)
@example([0.1] + [1e-300] * 14)
@example([1e308, 1e200, 0.3, 0.5, 0.1, 0.7, 0.2, 1e250])
@example([0.5] * 7 + [LARGEST])
@example([SMALLEST, 0.0, 1e-310])
@example([1.0, LARGEST, LARGEST, 0.0, 1e-160])  # the first five have another median than all
@example([1e160, LARGEST, LARGEST, 0.0, 1e-160])
def test_any_finite_values_are_survived_without_a_warning(name, values):
    strategy = make_strategy(name, SPACE, seed=3, options=QUICK.get(name, {}))
    asked, _ = run(strategy, SPACE, 11, outcome=lambda proposal: values[proposal.number % len(values)])
    assert len(asked) == 11


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SEVERAL)
@settings(max_examples=5)
@given(values=values, others=values)
@example([LARGEST, 0.1, 0.2], [0.3, -LARGEST, 0.5, 0.7])
@example([0.0, 1.0, 1e-300], [1e-300, 0.0, 1.0, SMALLEST])
def test_any_finite_values_of_several_figures_are_survived_without_a_warning(name, values, others):
    strategy = make_strategy(name, SPACE, seed=3, options=QUICK.get(name, {}), n_figures=2)
    both = lambda number: (values[number % len(values)], others[number % len(others)])  # noqa: E731
    asked, _ = run(strategy, SPACE, 11, outcome=lambda proposal: both(proposal.number))
    assert len(asked) == 11


@pytest.mark.parametrize("sign", [1, -1])
@given(values=values.filter(lambda values: len(values) > 1))
def test_a_front_of_huge_values_has_an_order(sign, values):
    found = order([(value, -sign * value) for value in values])
    assert sorted(found) == list(range(len(values)))


@pytest.mark.parametrize("penalty", [1e20, LARGEST])
@pytest.mark.parametrize("penalised", [{2}, {2, 5, 7}])
def test_huge_penalties_do_not_worsen_a_search(penalty, penalised):
    space = SPACES["real"]
    outcome = lambda p: penalty if p.number in penalised else cost(space, p.parameters)  # noqa: E731
    _, told = run(make_strategy("bayesian", space, seed=0), space, 24, outcome=outcome)
    assert min(value for _, value in told) < 0.003


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([LARGEST, 0.1, 0.2, 0.3, 0.4, 0.5], [math.nan, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ([1e200, 1e300, 0.1, 0.2, 0.3, 0.4, 0.5], [math.nan, math.nan, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ([1e200, 0.1, 0.2, 0.3, 0.4], [0.1 + 1e50 * 0.1, 0.1, 0.2, 0.3, 0.4]),  # too few others
        ([0.5] * 6 + [1e300], [0.5] * 6 + [math.nan]),
        ([0.5, 0.5 + 1e-16, 0.5 - 1e-16, 0.5, 0.5, 0.7, 0.9], None),  # equal up to rounding
        ([1e-14, 1e-13, 1e-12, 1e-11, 1e-4, 1.0, 1e3], None),  # a search that converges
        ([-LARGEST, 0.1, 0.2, 0.3, 0.4, 0.5], None),  # a very good value
        ([1e-300, 2e-300, 3e-300, 4e-300, 5e-300, 1e-280], [1e-300, 2e-300, 3e-300, 4e-300, 5e-300, math.nan]),
        ([math.nan] * 6 + [0.1], None),
    ],
)
def test_an_outlier_counts_as_failed_and_usual_values_are_kept(column, expected):
    values = np.array(column)[:, None]
    found = without_extremes(values)
    if expected is None:
        assert found is values
    np.testing.assert_array_equal(found[:, 0], column if expected is None else expected)


def test_huge_values_in_the_majority_leave_differences_between_the_others():
    huge = [10.0**n for n in range(150, 300, 10)]
    found = without_extremes(np.array([*huge, 0.1, 0.2, 0.3, 0.4, 0.5])[:, None])
    kept = scaled(found, np.zeros_like(found))[0][-5:, 0]
    np.testing.assert_allclose(np.diff(kept) / kept[0], 1.0)
    assert kept[0] > 1e-60


def test_equal_penalties_in_the_majority_leave_the_digits_of_the_others():
    found = without_extremes(np.array([LARGEST] * 20 + [0.1, 0.2, 0.3, 0.4, 0.5])[:, None])
    assert np.isnan(found[:20]).all()
    np.testing.assert_array_equal(scaled(found, np.zeros_like(found))[0][20:, 0], [0.1, 0.2, 0.3, 0.4, 0.5])
