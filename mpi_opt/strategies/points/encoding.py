"""Points as rows of numbers that a model can measure distances between, and back."""

from __future__ import annotations

from typing import final

import numpy as np

from mpi_opt.core.space import Categorical, Dimension, Parameters, Space

LARGEST_FINE = 16
"""A number with more values than this is moved like a real one, and snapped to its nearest value at the end."""


@final
class Encoding:
    """Maps the points of a space to rows: numbers in [0, 1] under their prior, categories as their index.

    Categories that are all numbers and in order are numbers too. An inactive hyperparameter has its middle value, so
    that it tells nothing apart.

    Attributes:
        is_category: Shape (n_dimensions,), bool: any two values are equally far apart.
        levels: For each dimension the row entries that it may have, or None for (almost) a continuum.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.is_category = np.array([_is_unordered(dimension) for dimension in space.values()])
        self._n_categories = np.array([_n_categories(dimension) for dimension in space.values()])
        self.levels = [_levels(dimension) for dimension in space.values()]
        self._is_conditional = any(dimension.when for dimension in space.values())
        self._is_snapping = [not np.isinf(dimension.size) for dimension in space.values()]

    @property
    def n_dimensions(self) -> int:
        """How long a row is."""
        return len(self.levels)

    def row(self, parameters: Parameters) -> np.ndarray:
        """The row of a point: shape (n_dimensions,), float64."""
        return self.from_units(self._space.encode(parameters))

    def point(self, row: np.ndarray) -> Parameters:
        """The nearest point of the space."""
        return self._space.decode(np.where(self.is_category, (row + 0.5) / self._n_categories, np.clip(row, 0, 1)))

    def is_active(self, row: np.ndarray) -> np.ndarray:
        """Whether each hyperparameter takes part in the nearest point of the space: shape (n_dimensions,), bool."""
        point = self.point(row)
        return np.array([name in point for name in self._space])

    def snapped(self, row: np.ndarray) -> np.ndarray:
        """The row of the nearest point of the space."""
        if not self._is_conditional and not any(self._is_snapping):
            return np.clip(row, 0.0, 1.0)
        return self.row(self.point(row))

    def from_units(self, units: np.ndarray) -> np.ndarray:
        """Rows from points of the unit cube, of any leading shape; numbers are left as they are."""
        categories = np.minimum(np.floor(units * self._n_categories), self._n_categories - 1)
        return np.where(self.is_category, categories, units)


def _is_unordered(dimension: Dimension) -> bool:
    if not isinstance(dimension, Categorical):
        return False
    values = dimension.categories
    if len(values) < 3 or any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return True
    return list(values) not in (sorted(values), sorted(values, reverse=True))


def _n_categories(dimension: Dimension) -> int:
    return len(dimension.categories) if isinstance(dimension, Categorical) else 1


def _levels(dimension: Dimension) -> np.ndarray | None:
    if _is_unordered(dimension):
        return np.arange(dimension.size, dtype=float)
    if dimension.size > LARGEST_FINE:
        return None
    if isinstance(dimension, Categorical):
        return (np.arange(dimension.size) + 0.5) / dimension.size
    values = (dimension.low + index * dimension.step for index in range(int(dimension.size)))
    return np.array([dimension.encode(value) for value in values])
