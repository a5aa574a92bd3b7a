"""Rows of numbers for points, in which models measure distances."""

import numpy as np
import pytest

from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.strategies.points.encoding import MIN_DISTANCE, Encoding, is_near


@pytest.mark.parametrize(
    ("categories", "is_category"),
    [
        ((32, 64, 128), False),
        ((4.0, 2.5, 1), False),
        ((32, 128, 64), True),
        ((1, 2), True),
        ((1, 2, True), True),
        ((1, 2, "3"), True),
        (("a", "b", "c"), True),
    ],
)
def test_only_numbers_in_order_are_nearer_to_some_than_to_others(categories, is_category):
    encoding = Encoding(Space({"n": Integer(0, 3), "kind": Categorical(categories)}))
    assert encoding.is_category.tolist() == [False, is_category]


def test_every_category_survives_the_way_to_a_row_and_back():
    """Also where rounding makes (k / n) n less than k, as with 1 of 49."""
    for n in range(2, 60):
        encoding = Encoding(Space({"kind": Categorical([f"c{k}" for k in range(n)])}))
        points = [{"kind": f"c{k}"} for k in range(n)]
        assert [encoding.point(encoding.row(point)) for point in points] == points


@pytest.mark.parametrize(
    ("dimension", "values"),
    [
        (Integer(1, 16), list(range(1, 17))),
        (Integer(1, 17), None),
        (Integer(8, 128, prior="log-uniform", step=8), list(range(8, 129, 8))),
        (Real(0, 1), None),
        (Categorical((4.0, 2.5, 1)), [4.0, 2.5, 1]),
        (Categorical([f"c{k}" for k in range(20)]), [f"c{k}" for k in range(20)]),
    ],
)
def test_numbers_of_at_most_sixteen_values_and_all_categories_have_levels(dimension, values):
    encoding = Encoding(Space({"first": Real(0, 1), "own": dimension}))
    assert encoding.levels[0] is None
    levels = encoding.levels[1]
    assert (levels is None) == (values is None)
    if values is not None:
        assert [encoding.point(np.array([0.5, level]))["own"] for level in levels] == values
        assert [encoding.row({"first": 0.5, "own": value})[1] for value in values] == pytest.approx(levels)


def test_points_are_near_if_every_number_differs_by_less_than_the_limit():
    rng = np.random.default_rng(1)
    others = rng.integers(3, size=(40, 3)) / 2 + rng.choice([0.0, 0.5, 0.99, 1.01], size=(40, 3)) * MIN_DISTANCE
    rows = rng.integers(3, size=(60, 3)) / 2.0
    found = [is_near(row, others) for row in rows]
    assert found == [any(max(abs(row - other)) < MIN_DISTANCE for other in others) for row in rows]
    assert 5 < sum(found) < 55
    assert not is_near(rows[0], others[:0])
