"""Values that a model can be fitted to: without penalties and outliers, and with heavy tails transformed.

Users return a huge number where a trial cannot be evaluated: 1e6, 1e300 or the largest float. Any finite value is
legal. Usual values are not changed by the functions of this module, except by powers of two.

A cost y becomes log((y - best) / (median - best) + offset). The offset is chosen by likelihood (see `fitting`).
"""

from __future__ import annotations

import math

import numpy as np

from mpi_opt.core.arrays import Bools, Floats

MIN_PENALTIES, MIN_OTHER_VALUES, PENALTY_GAP = 3, 5, 100.0
"""A value is a penalty if it occurs at least `MIN_PENALTIES` times, if there are at least `MIN_OTHER_VALUES` other
values, and if its distance from the best value is more than `PENALTY_GAP` times their range."""
OUTLIER_GAP = 1e12
"""A value is an outlier if at least half of the values, and at least `MIN_OTHER_VALUES`, are better than it, and its
distance from the best value is more than `OUTLIER_GAP` times that of each of these."""
MIN_RELATIVE_DISTANCE = 1e-6
"""A smaller distance, relative to the best value, counts as this one: equal values differ by errors of rounding."""
LARGEST_DISTANCE = 1e50
"""Values whose distance from the best one is more than this many times that of the best quarter are moved to there, so
that the differences of the others do not vanish. The distances of usual values differ by less."""
LEAST_SCALE = 1e-100
"""The least unit of transformed values, as a part of their range. The squares of values in this unit are finite."""
MAX_UNCERTAINTY = 1e100
"""The largest uncertainty in units of the largest value. Its square is finite."""


def without_extremes(values: Floats) -> Floats:
    """Replaces penalties and outliers by NaN, so that they count as failed trials, and limits the other values.

    A model of all values would mostly describe the step between these and the others. With several figures of merit, at
    least one of them must be a penalty or an outlier, and trials with a penalty must agree in every figure.

    Args:
        values: Shape (n, n_figures), to be minimised; NaN for failed trials.

    Returns:
        The same shape; `values` itself if nothing changes.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        limited = np.column_stack([_limited(column) for column in values.T])
        is_penalty = np.any([_is_penalty(column) for column in limited.T], axis=0)
        if is_penalty.any() and (limited[is_penalty] != limited[is_penalty][0]).any():
            is_penalty[:] = False
        is_extreme = is_penalty | np.any([is_outlier(column) for column in limited.T], axis=0)
        limited[is_extreme] = math.nan
    return values if np.array_equal(limited, values, equal_nan=True) else limited


def scaled(values: Floats, uncertainties: Floats) -> tuple[Floats, Floats]:
    """Divides each column by a power of two, so that its largest magnitude lies in [0.5, 1).

    Differences and squares of the results are finite for all finite values. Division by a power of two changes no
    digit, so that models do not depend on it.

    Args:
        values: Shape (n, n_figures); NaN for failed trials.
        uncertainties: Shape (n, n_figures), standard deviations.

    Returns:
        The divided values and uncertainties; uncertainties are at most `MAX_UNCERTAINTY`.
    """
    magnitudes = np.abs(values).max(axis=0, initial=0.0, where=np.isfinite(values))
    exponents = np.frexp(magnitudes)[1]
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(values, -exponents), np.minimum(np.ldexp(uncertainties, -exponents), MAX_UNCERTAINTY)


def is_outlier(column: Floats) -> Bools:
    """Whether each of the values of one figure of merit, shape (n,) with NaN for failed trials, is an outlier."""
    values = np.sort(column[np.isfinite(column)])
    n_better = max(MIN_OTHER_VALUES, (len(values) + 1) // 2)
    if len(values) <= n_better:
        return np.zeros(len(column), dtype=bool)
    distances = values - values[0]
    limits = OUTLIER_GAP * np.maximum(distances, MIN_RELATIVE_DISTANCE * abs(values[0]))[n_better - 1 : -1]
    found = np.flatnonzero((distances[n_better:] > limits) & (limits > 0))
    least = values[n_better + found[0]] if len(found) else math.inf
    is_beyond: Bools = column >= least
    return is_beyond


def _is_penalty(column: Floats) -> Bools:
    """Whether each of the values of one figure of merit, shape (n,) with NaN for failed trials, is a penalty."""
    values = column[np.isfinite(column)]
    largest = values.max(initial=-math.inf)
    others = values[values < largest]
    is_largest: Bools = column == largest
    is_enough = is_largest.sum() >= MIN_PENALTIES and len(others) >= MIN_OTHER_VALUES
    if is_enough and largest - others.min() > PENALTY_GAP * np.ptp(others) > 0:
        return is_largest
    return np.zeros_like(is_largest)


def _limited(column: Floats) -> Floats:
    """The values of one figure of merit, none above the limit that `LARGEST_DISTANCE` sets."""
    values = np.sort(column[np.isfinite(column)])
    for part in (0.25, 0.5, 0.75, 0.9):
        if len(values) and (distance := values[int(part * (len(values) - 1))] - values[0]) > 0:
            limited: Floats = np.minimum(column, values[0] + LARGEST_DISTANCE * distance)
            return limited
    return column


OFFSETS = (math.inf, 1000.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
"""The offsets to choose from. Infinity means no logarithm."""


def warped(values: Floats, offset: float) -> tuple[Floats, Floats]:
    """Transforms and standardises values.

    Args:
        values: Shape (n,), to be minimised.
        offset: One of `OFFSETS`.

    Returns:
        The transformed values, with mean 0 and standard deviation 1, and the logarithm of the transformation's slope at
        each of them; both of shape (n,). The slope is relative to (y - best) / (median - best) for every offset, so
        that likelihoods can be compared.
    """
    above = (values - values.min()) / scale_of(values)
    if math.isinf(offset):
        result, slope = above, np.zeros_like(above)
    else:
        result, slope = np.log(above + offset), -np.log(above + offset)
    std = result.std()
    if not std > 0:
        return np.zeros_like(values), slope
    return (result - result.mean()) / std, slope - math.log(std)


def unwarped(results: Floats, values: Floats, offset: float) -> Floats:
    """The inverse of `warped`: transformed values `results`, of any shape, in units of `values` (n,)."""
    scale = scale_of(values)
    above = (values - values.min()) / scale
    known = above if math.isinf(offset) else np.log(above + offset)
    found = results * (known.std() or 1.0) + known.mean()
    if not math.isinf(offset):
        found = np.exp(found) - offset
    result: Floats = values.min() + scale * found
    return result


def scale_of(values: Floats) -> float:
    """The distance of the median from the best value; if that is 0, the standard deviation; always positive.

    At least `LEAST_SCALE` of the range: `without_extremes` limits the distances of all values, not those of a part.
    """
    for scale in (np.median(values) - values.min(), values.std(), abs(values.min())):
        if np.isfinite(scale) and scale > 0:
            return float(max(scale, LEAST_SCALE * np.ptp(values)))
    return 1.0
