"""Where a gain is largest: from the best of many candidates along its slope."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.surrogates.acquisition import Gain

N_ROUNDS = 4


def maximised(
    gain: Gain,
    encoding: Encoding,
    candidates: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    is_allowed: Callable[[np.ndarray], bool],
    n_climbs: int,
) -> np.ndarray | None:
    """The row with the largest gain that is allowed.

    The best candidates are climbed from: numbers along the gradient, then categories and numbers with few values one at
    a time, in turns.

    Args:
        gain: What to maximise.
        encoding: Of the space.
        candidates: Shape (m, n_dimensions), where to start.
        low: Shape (n_dimensions,), the least that a climb may reach (numbers only).
        high: Shape (n_dimensions,), the most.
        is_allowed: Whether a row may be proposed.
        n_climbs: From how many of the candidates to climb.

    Returns:
        Shape (n_dimensions,), snapped to the space; None if nothing was allowed.
    """
    values = gain(candidates)
    order = np.argsort(-values, kind="stable")
    tops = [_climbed(gain, encoding, candidates[index], low, high) for index in _apart(candidates, order, n_climbs)]
    tops.sort(key=lambda top: -top[1])
    best_start = values[order[0]]
    for row, value in tops:
        if value >= best_start - 1.0 and is_allowed(row):
            return row
    for index in order:
        row = encoding.snapped(candidates[index])
        if is_allowed(row):
            return row
    return None


def _apart(candidates: np.ndarray, order: np.ndarray, n: int) -> list[int]:
    """The first `n` of `order` that are no near neighbours of an earlier one."""
    chosen: list[int] = []
    for index in order[: 20 * n]:
        near = [np.abs(candidates[index] - candidates[other]).max() < 0.05 for other in chosen]
        if not any(near):
            chosen.append(int(index))
        if len(chosen) == n:
            break
    return chosen


def _climbed(
    gain: Gain, encoding: Encoding, row: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, float]:
    is_smooth = np.array([levels is None for levels in encoding.levels])
    is_stepped = not is_smooth.all()
    value = -math.inf
    for _ in range(N_ROUNDS):
        if is_smooth.any():
            row = _along_gradient(gain, row, is_smooth, low, high)
        before, (row, value) = value, _stepped(gain, encoding, encoding.snapped(row))
        if not is_stepped or value <= before + 1e-6:
            break
    return row, value


def _along_gradient(
    gain: Gain, row: np.ndarray, is_smooth: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    def cost(part: np.ndarray) -> tuple[float, np.ndarray]:
        moved = row.copy()
        moved[is_smooth] = part
        value, slope = gain.with_slope(moved)
        return -value, -slope[is_smooth]

    bounds = list(zip(low[is_smooth], high[is_smooth], strict=True))
    start = np.clip(row[is_smooth], low[is_smooth], high[is_smooth])
    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40, "ftol": 1e-10})
    moved = row.copy()
    moved[is_smooth] = found.x
    return moved


def _stepped(gain: Gain, encoding: Encoding, row: np.ndarray) -> tuple[np.ndarray, float]:
    """Changes one category or number with few values at a time as long as that gains."""
    value = float(gain(row[None, :])[0])
    for _ in range(2 * encoding.n_dimensions):
        others = _changed_once(encoding, row)
        if not len(others):
            break
        values = gain(others)
        best = int(np.argmax(values))
        if values[best] <= value + gain.resolution:
            break
        row, value = encoding.snapped(others[best]), float(values[best])
    return row, value


def _changed_once(encoding: Encoding, row: np.ndarray) -> np.ndarray:
    changed = []
    for index, levels in enumerate(encoding.levels):
        for level in () if levels is None else levels:
            if level != row[index]:
                other = row.copy()
                other[index] = level
                changed.append(other)
    return np.array(changed).reshape(-1, encoding.n_dimensions)
