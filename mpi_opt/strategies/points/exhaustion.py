"""Notes on searches with more trials than their space has points, or with too few trials for a model."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from mpi_opt.core.counted import counted
from mpi_opt.core.search_space.space import Space
from mpi_opt.strategies.points.bookkeeping import n_initial_points
from mpi_opt.strategies.points.constraint import constraints_of
from mpi_opt.strategies.points.sampling import MAX_LISTED_POINTS, all_points

CONTINUING = ("halving", "population")
"""Strategies whose trials continue others, so that a point may have several trials."""
WITHOUT_REPETITION = ("grid",)
FROM_A_MODEL = ("auto", "bayesian")


def notes_on_points(space: Space, strategy: str, options: Mapping[str, Any], n_trials: int, n_ended: int) -> list[str]:
    """Sentences about the number of trials, of which `n_ended` have ended, if it does not suit the space."""
    of_points = note_on_points(space, strategy, options, n_trials)
    of_initial = note_on_initial(space, strategy, options, n_trials, n_ended)
    return [note for note in (of_points, of_initial) if note is not None]


def note_on_initial(
    space: Space, strategy: str, options: Mapping[str, Any], n_trials: int, n_ended: int = 0
) -> str | None:
    """That no model will propose a trial, if the trials before the first model are all; None once half have ended."""
    if strategy not in FROM_A_MODEL or n_trials < 2 or 2 * n_ended >= n_trials:
        return None
    n_initial = n_initial_points(len(space), options.get("initial_points"))
    if n_trials > n_initial:
        return None
    return (
        f"no trial of this search is proposed by a model of the results: in {strategy}, the first {n_initial} trials "
        f"come before it, and the search has {n_trials}"
    )


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
