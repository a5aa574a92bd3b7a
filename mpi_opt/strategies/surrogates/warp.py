"""Transformations of what is minimised, so that a Gaussian process fits it: heavy tails are pulled in."""

from __future__ import annotations

import math

import numpy as np

OFFSETS = (math.inf, 1000.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
"""The logarithm of (distance from the best, in units of the median's, plus offset); infinity: no logarithm."""


def warped(values: np.ndarray, offset: float) -> tuple[np.ndarray, np.ndarray]:
    """The values, transformed and standardised.

    Args:
        values: Shape (n,), to be minimised.
        offset: One of `OFFSETS`.

    Returns:
        The transformed values and, at each, the logarithm of the transformation's slope; both shape (n,). The slope is
        relative to values measured from the best in units of the median's distance, the same for every offset.
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


def scale_of(values: np.ndarray) -> float:
    """How far the median lies above the best; where half of the values are best, how far they spread."""
    for scale in (np.median(values) - values.min(), values.std(), abs(values.min())):
        if np.isfinite(scale) and scale > 0:
            return float(scale)
    return 1.0
