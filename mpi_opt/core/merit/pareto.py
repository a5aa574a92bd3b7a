"""The Pareto front of points with several values to be minimised, and an order of points.

A point *dominates* another if it is at least as good in every value and better in one. The points that no other point
dominates are the first front. Without them, the points that are not dominated are the second front, and so on. The rank
of a point is the number of fronts before its own (non-dominated sorting; Deb et al., NSGA-II, 2002).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mpi_opt.core.arrays import Bools, Floats, Ints

HUGE = 1e307
"""Differences of values beyond ± `HUGE` may be infinite."""


def dominates(one: tuple[float, ...] | float, other: tuple[float, ...] | float) -> bool:
    """Whether `one` is at least as good as `other` in every value, and better in one. Values are to be minimised."""
    ours, theirs = as_tuple(one), as_tuple(other)
    return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))


def as_tuple(cost: tuple[float, ...] | float) -> tuple[float, ...]:
    """The values of a point: shape (n_values,), also for a single value."""
    return cost if isinstance(cost, tuple) else (cost,)


def ranks(values: ArrayLike) -> Ints:
    """The rank of each point, 0 on the first front.

    Args:
        values: Shape (n, n_values), to be minimised.

    Returns:
        Shape (n,), int64.
    """
    points = np.asarray(values, dtype=float)
    found = np.zeros(len(points), dtype=np.int64)
    fronts: list[list[Floats]] = []
    for index in np.lexsort(points.T[::-1]):  # in this order points come after all points that dominate them
        row = points[index]
        low, high = 0, len(fronts)
        while low < high:  # a point that a front dominates is dominated by all fronts before it as well
            middle = (low + high) // 2
            if _is_dominated(row, np.array(fronts[middle])):
                low = middle + 1
            else:
                high = middle
        if low == len(fronts):
            fronts.append([])
        fronts[low].append(row)
        found[index] = low
    return found


def is_on_front(values: ArrayLike) -> Bools:
    """Whether each point is on the first front, as ``ranks(values) == 0`` but faster.

    Args:
        values: Shape (n, n_values), to be minimised.

    Returns:
        Shape (n,), bool.
    """
    points = np.asarray(values, dtype=float)
    found = np.zeros(len(points), dtype=bool)
    front = np.empty_like(points)
    n_front = 0
    for index in np.lexsort(points.T[::-1]):  # in this order points come after all points that dominate them
        if not _is_dominated(points[index], front[:n_front]):
            front[n_front] = points[index]
            found[index] = True
            n_front += 1
    return found


def crowding(values: ArrayLike) -> Floats:
    """The crowding distance of each point (Deb et al., NSGA-II, 2002); infinite for the extreme points.

    Args:
        values: Shape (n, n_values), the points of one front.

    Returns:
        Shape (n,).
    """
    points = np.asarray(values, dtype=float)
    distance = np.zeros(len(points))
    for column in points.T:
        if np.abs(column).max(initial=0.0) > HUGE:
            column = 0.25 * column  # distances of finite values must be finite
        order = np.argsort(column, kind="stable")
        extent = column[order[-1]] - column[order[0]]
        distance[order[[0, -1]]] = np.inf
        if extent > 0:
            distance[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / extent
    return distance


def order(values: Sequence[tuple[float, ...] | float]) -> list[int]:
    """The indices of points, best first: by value; with several values, by rank, then largest crowding distance."""
    if not values or not isinstance(values[0], tuple):
        return sorted(range(len(values)), key=lambda index: as_tuple(values[index]))
    points = np.array(values)
    rank = ranks(points)
    distance = np.empty(len(points))
    for front in np.unique(rank):
        distance[rank == front] = crowding(points[rank == front])
    return sorted(range(len(points)), key=lambda index: (rank[index], -distance[index], index))


def _is_dominated(row: Floats, front: Floats) -> bool:
    return bool(((front <= row).all(axis=1) & (front < row).any(axis=1)).any())
