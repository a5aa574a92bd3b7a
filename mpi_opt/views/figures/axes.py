"""Where the values of a hyperparameter stand on an axis."""

from __future__ import annotations

import numpy as np

from mpi_opt.core.space import Categorical, Dimension, Value


def place(dimension: Dimension, value: Value) -> float:
    """Where `value` stands on an axis of its dimension: itself, or a category's index."""
    return dimension.index(value) if isinstance(dimension, Categorical) else float(value)


def spread(dimension: Dimension, places: list[float], seed: int = 0) -> np.ndarray:
    """`places`, shape (n,), moved a little to and fro where few different values would hide each other."""
    if dimension.size > 20 or not places:
        return np.array(places)
    width = 0.5 * (1.0 if isinstance(dimension, Categorical) else getattr(dimension, "step", 1))
    return np.array(places) + width * (np.random.default_rng(seed).random(len(places)) - 0.5)


def unit_places(dimension: Dimension, n: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Units in [0, 1], shape (m,), that show a dimension well, and where their values stand; m is at most `n`."""
    m = int(min(n, dimension.size))
    units = (np.arange(m) + 0.5) / m
    return units, np.array([place(dimension, dimension.decode(unit)) for unit in units])
