"""Fronts, ranks and crowding, against DEAP and against the definition."""

import numpy as np
import pytest
from deap import base, tools

from mpi_opt.core.figures_of_merit import crowding, dominates, is_on_front, order, ranks


class Fitness(base.Fitness):
    weights = (-1.0,) * 3


class Point:
    def __init__(self, values):
        self.values, self.fitness = tuple(values), Fitness(tuple(values))


@pytest.mark.parametrize(
    "values", [np.random.default_rng(1).random((80, 3)), np.random.default_rng(2).integers(4, size=(60, 3))]
)
def test_ranks_and_crowding_are_those_of_deap(values):
    points = [Point(row) for row in values]
    fronts = tools.sortNondominated(points, len(points))
    mine = ranks(values)
    for index, front in enumerate(fronts):
        assert {id(point) for point in front} == {id(points[i]) for i in np.flatnonzero(mine == index)}
    front = np.unique(values[mine == 0], axis=0)
    unique = [Point(row) for row in front]
    tools.emo.assignCrowdingDist(unique)
    theirs = np.array([point.fitness.crowding_dist for point in unique])
    assert np.isinf(crowding(front)).tolist() == np.isinf(theirs).tolist()
    inside = ~np.isinf(theirs)
    assert crowding(front)[inside] == pytest.approx(3 * theirs[inside])  # DEAP divides by the number of values


def test_rank_0_contains_the_points_that_no_point_dominates():
    values = np.random.default_rng(3).random((200, 2)).round(1)
    points = [tuple(row) for row in values.tolist()]
    undominated = [not any(dominates(other, one) for other in points) for one in points]
    assert (ranks(values) == 0).tolist() == undominated
    assert is_on_front(values).tolist() == undominated


def test_equal_points_do_not_dominate_each_other():
    assert not dominates((1.0, 2.0), (1.0, 2.0))
    assert ranks([[1.0, 2.0], [1.0, 2.0]]).tolist() == [0, 0]
    assert dominates(1.0, 2.0)
    assert not dominates(1.0, 1.0)


def test_single_numbers_are_ordered_by_size_and_points_by_front_and_crowding_distance():
    assert order([3.0, 1.0, 2.0]) == [1, 2, 0]
    assert order([]) == []
    points = [(0.0, 4.0), (1.0, 3.1), (1.1, 3.0), (4.0, 0.0), (4.0, 4.0)]
    assert set(order(points)[:2]) == {0, 3}
    assert order(points)[-1] == 4
