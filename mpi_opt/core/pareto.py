"""Which of several points are best when there are several values to minimise: the Pareto front, and an order.

A point *dominates* another if it is as good in every value and better in one. Those that none dominates are the front;
without them the next ones are, and so on: a point's rank counts the fronts before its own.
"""

from __future__ import annotations

import numpy as np


def dominates(one: tuple[float, ...] | float, other: tuple[float, ...] | float) -> bool:
    """Whether `one` is as good as `other` in every value to minimise, and better in one."""
    if isinstance(one, float | int):
        return one < other
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def ranks(values: np.ndarray) -> np.ndarray:
    """The rank of each point, 0 on the front.

    Args:
        values: Shape (n, n_values), to minimise.

    Returns:
        Shape (n,), int64.
    """
    values = np.asarray(values, dtype=float)
    found = np.zeros(len(values), dtype=np.int64)
    fronts: list[list[np.ndarray]] = []
    for index in np.lexsort(values.T[::-1]):  # whoever dominates a point comes before it
        row = values[index]
        low, high = 0, len(fronts)
        while low < high:  # a point dominated within a front is dominated within all before it
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


def crowding(values: np.ndarray) -> np.ndarray:
    """How far the neighbours of each point are apart (Deb et al., NSGA-II, 2002): infinite at the ends.

    Args:
        values: Shape (n, n_values), of one front.

    Returns:
        Shape (n,).
    """
    values = np.asarray(values, dtype=float)
    distance = np.zeros(len(values))
    for column in values.T:
        order = np.argsort(column, kind="stable")
        extent = column[order[-1]] - column[order[0]]
        distance[order[[0, -1]]] = np.inf
        if extent > 0:
            distance[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / extent
    return distance


def order(values: list[tuple[float, ...]] | list[float]) -> list[int]:
    """The indices of points, best first: single numbers by size, others by rank and, within it, the lonely first."""
    if not values or not isinstance(values[0], tuple):
        return sorted(range(len(values)), key=lambda index: values[index])
    points = np.array(values)
    rank = ranks(points)
    room = np.empty(len(points))
    for one in np.unique(rank):
        room[rank == one] = crowding(points[rank == one])
    return sorted(range(len(points)), key=lambda index: (rank[index], -room[index], index))


def _is_dominated(row: np.ndarray, front: np.ndarray) -> bool:
    return bool(((front <= row).all(axis=1) & (front < row).any(axis=1)).any())
