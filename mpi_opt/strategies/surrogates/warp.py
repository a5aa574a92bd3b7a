"""Logarithmic transformation of costs with heavy tails, so that a Gaussian process fits them better.

A cost y becomes log((y - best) / (median - best) + offset). The offset is chosen by likelihood (see `fitting`).
"""

from __future__ import annotations

import math

import numpy as np

from mpi_opt.core.arrays import Floats

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
    """The distance of the median from the best value; if that is 0, the standard deviation; always positive."""
    for scale in (np.median(values) - values.min(), values.std(), abs(values.min())):
        if np.isfinite(scale) and scale > 0:
            return float(scale)
    return 1.0
