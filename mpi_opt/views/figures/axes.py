"""The positions of the values of a hyperparameter on an axis."""

from __future__ import annotations

import numpy as np

from mpi_opt.core.space import Categorical, Dimension, Value

MAX_PLACES = 24


def position(dimension: Dimension, value: Value) -> float:
    """The position of `value` on an axis of its dimension: the value, or the index of a category."""
    if isinstance(dimension, Categorical):
        return dimension.index(value)
    assert isinstance(value, int | float), "other dimensions have numbers only"
    return float(value)


def jittered(dimension: Dimension, places: list[float], seed: int = 0) -> np.ndarray:
    """`places`, shape (n,), with a small random shift if the dimension has at most 20 values.

    Otherwise points would overlap.
    """
    exact = np.array(places)
    if dimension.size > 20 or not places:
        return exact
    width = 0.5 * (1.0 if isinstance(dimension, Categorical) else getattr(dimension, "step", 1))
    shifted = exact + width * (np.random.default_rng(seed).random(len(places)) - 0.5)
    is_log = getattr(dimension, "prior", None) == "log-uniform"
    return np.maximum(shifted, 0.5 * exact) if is_log else shifted  # a logarithmic axis shows positive values only


def unit_positions(dimension: Dimension) -> tuple[np.ndarray, np.ndarray]:
    """At most `MAX_PLACES` evenly spaced units in [0, 1], and the positions of their values; both of shape (m,)."""
    m = int(min(MAX_PLACES, dimension.size))
    units = (np.arange(m) + 0.5) / m
    return units, np.array([position(dimension, dimension.decode(unit)) for unit in units])
