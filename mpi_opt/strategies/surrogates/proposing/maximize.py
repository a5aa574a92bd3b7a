"""Maximises an acquisition function: local searches from the best of many candidates."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy  # loads its subpackages on first use

from mpi_opt.core.arrays import Bools, Floats, Ints
from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.surrogates.proposing.acquisition import Acquisition

N_ROUNDS = 4
"""The largest number of alternations of a local search."""

MAX_LOSS = 1.0
"""A local maximum may be worse than the best candidate by this much: candidates are not rounded to points of the space.
"""


def maximize(
    acquisition: Acquisition,
    encoding: Encoding,
    candidates: Floats,
    low: Floats,
    high: Floats,
    is_allowed: Callable[[Floats], bool],
    n_starts: int,
) -> Floats | None:
    """Finds the allowed row with the largest value of an acquisition function.

    Local searches start from the best candidates. Each alternates between L-BFGS-B over the continuous numbers and
    single changes of categories and of numbers with few values.

    Args:
        acquisition: The function to maximise.
        encoding: The encoding of the search space.
        candidates: Shape (m, n_dimensions).
        low: Shape (n_dimensions,): lower bounds of numbers in the local searches.
        high: Shape (n_dimensions,): upper bounds.
        is_allowed: Whether a row may be proposed.
        n_starts: Number of local searches.

    Returns:
        Shape (n_dimensions,), the row of a point of the space; None if no row is allowed.
    """
    values = acquisition(candidates)
    order = np.argsort(-values, kind="stable")
    starts = [candidates[index] for index in _distant_candidates(candidates, order, n_starts)]
    maxima = [_local_maximum(acquisition, encoding, start, low, high) for start in starts]
    maxima.sort(key=lambda maximum: -maximum[1])
    best_candidate = values[order[0]]
    for row, value in maxima:
        if value >= best_candidate - MAX_LOSS and is_allowed(row):
            return row
    for index in order:
        row = encoding.snapped(candidates[index])
        if is_allowed(row):
            return row
    return None


def _distant_candidates(candidates: Floats, order: Ints, n: int) -> list[int]:
    """The first `n` candidates in `order` that differ by at least 0.05 in some dimension; fewer if they are rare."""
    chosen: list[int] = []
    for index in order[: 20 * n]:
        near = [np.abs(candidates[index] - candidates[other]).max() < 0.05 for other in chosen]
        if not any(near):
            chosen.append(int(index))
        if len(chosen) == n:
            break
    return chosen


def _local_maximum(
    acquisition: Acquisition, encoding: Encoding, row: Floats, low: Floats, high: Floats
) -> tuple[Floats, float]:
    """A local search from `row`: the maximum and its value."""
    is_smooth = np.array([levels is None for levels in encoding.levels])
    is_stepped = not is_smooth.all()
    value = -math.inf
    for _ in range(N_ROUNDS):
        if is_smooth.any():
            row = _along_gradient(acquisition, row, is_smooth, low, high)
        moved, before = encoding.snapped(row), value
        row, value = _stepped(acquisition, encoding, moved)
        # without a step, the next search along the gradient would start and end here
        if not is_stepped or np.array_equal(row, moved) or value <= before + 1e-6:
            break
    return row, value


def _along_gradient(acquisition: Acquisition, row: Floats, is_smooth: Bools, low: Floats, high: Floats) -> Floats:
    def cost(part: Floats) -> tuple[float, Floats]:
        moved = row.copy()
        moved[is_smooth] = part
        value, slope = acquisition.with_slope(moved)
        return -value, -slope[is_smooth]

    bounds = list(zip(low[is_smooth], high[is_smooth], strict=True))
    start = np.clip(row[is_smooth], low[is_smooth], high[is_smooth])
    found = scipy.optimize.minimize(
        cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40, "ftol": 1e-10}
    )
    moved = row.copy()
    moved[is_smooth] = found.x
    return moved


def _stepped(acquisition: Acquisition, encoding: Encoding, row: Floats) -> tuple[Floats, float]:
    """Changes one category, or one number with few values, at a time until no change is an improvement."""
    value = float(acquisition(row[None, :])[0])
    for _ in range(2 * encoding.n_dimensions):
        others = _changed_once(encoding, row)
        if not len(others):
            break
        values = acquisition(others)
        best = int(np.argmax(values))
        if values[best] <= value + acquisition.resolution:
            break
        row, value = encoding.snapped(others[best]), float(values[best])
    return row, value


def _changed_once(encoding: Encoding, row: Floats) -> Floats:
    """All rows with one of these changes: shape (m, n_dimensions). A change of an inactive dimension is none."""
    changed, is_active = [], encoding.is_active(row)
    for index, levels in enumerate(encoding.levels):
        for level in () if levels is None or not is_active[index] else levels:
            if level != row[index]:
                other = row.copy()
                other[index] = level
                changed.append(other)
    return np.array(changed).reshape(-1, encoding.n_dimensions)
