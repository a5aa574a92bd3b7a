"""Notes on searches with more trials than their space has points."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from mpi_opt.core.counted import counted
from mpi_opt.core.space import Space
from mpi_opt.strategies.points.constraint import constraints_of
from mpi_opt.strategies.points.sampling import MAX_LISTED_POINTS, all_points

CONTINUING = ("halving", "population")
"""Strategies whose trials continue others, so that a point may have several trials."""
WITHOUT_REPETITION = ("grid",)


def note_on_points(space: Space, strategy: str, options: Mapping[str, Any], n_trials: int) -> str | None:
    """What happens after the last point of the space; None if there are enough points, or too many to list.

    Conditions and constraints are taken into account. `options` are valid.
    """
    if space.size > MAX_LISTED_POINTS or strategy in CONTINUING:
        return None
    constraints = constraints_of(strategy, options, space)
    points = all_points(space, allows=lambda point: all(constraint.is_met(point) for constraint in constraints))
    n_points = sum(1 for _ in islice(points, n_trials))
    if not 0 < n_points < n_trials:
        return None
    has = f"the space has {counted(n_points, 'point')}, and the search {n_trials} trials"
    if strategy in WITHOUT_REPETITION:
        return f"{has}: it ends when every point has been tried"
    return f"{has}: when every point has been tried, trials repeat points with other seeds"
