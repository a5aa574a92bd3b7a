"""Points as rows of numbers between which a model can measure distances."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import numpy as np

from mpi_opt.core.arrays import Bools, Floats
from mpi_opt.core.search_space.space import Categorical, Dimension, Parameters, Space

MIN_DISTANCE = 1e-4
"""Points are near each other if every number differs by less than this part of its range and all categories agree."""
MAX_LEVELS = 16
"""A number with more values than this is optimised as a continuous one, and the result rounded to its nearest value."""


@final
class Encoding:
    """Maps the points of a space to rows and back.

    A number becomes a position in [0, 1] under its prior, a category its index. Three or more categories that are
    numbers in ascending or descending order count as a number. An inactive hyperparameter gets the middle of its range,
    so that it does not contribute to a distance.

    Attributes:
        is_category: Shape (n_dimensions,), bool: hyperparameters of which any two values are equally far apart.
        levels: For each hyperparameter the entries that it can have, or None if it is treated as continuous.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.is_category = np.array([_is_unordered(dimension) for dimension in space.values()])
        self._n_categories = np.array([_n_categories(dimension) for dimension in space.values()])
        self.levels = [_levels(dimension) for dimension in space.values()]
        self._latest: tuple[Parameters, Floats, Floats] = ({}, np.empty(0), np.empty(0))
        self._is_continuous = all(np.isinf(dimension.size) and not dimension.when for dimension in space.values())

    @property
    def n_dimensions(self) -> int:
        """Length of a row."""
        return len(self.levels)

    def row(self, parameters: Parameters) -> Floats:
        """The row of a point: shape (n_dimensions,), float64."""
        return self.units_and_row(parameters)[1]

    def units_and_row(self, parameters: Parameters) -> tuple[Floats, Floats]:
        """A point in the unit cube, and its row; both of shape (n_dimensions,).

        They are kept until the call for another point: bookkeeping and models ask for those of each proposal.
        """
        if parameters is not self._latest[0]:
            units = self._space.encode(parameters)
            self._latest = parameters, units, self.from_units(units)
        return self._latest[1:]

    def rows(self, points: Iterable[Parameters]) -> Floats:
        """The rows of several points: shape (n, n_dimensions)."""
        return np.array([self.row(point) for point in points]).reshape(-1, self.n_dimensions)

    def rows_of_units(self, units: Floats) -> Floats:
        """Rows from points of the unit cube (…, n_dimensions), with the middle for inactive hyperparameters."""
        is_active = self._space.active_units(units.reshape(-1, self.n_dimensions)).reshape(units.shape)
        return self.from_units(np.where(is_active, units, 0.5))

    def point(self, row: Floats) -> Parameters:
        """The nearest point of the space."""
        return self._space.decode(self.units(row))

    def units(self, rows: Floats) -> Floats:
        """Points of the unit cube from rows, of any leading shape; the inverse of `from_units`."""
        return np.where(self.is_category, (rows + 0.5) / self._n_categories, np.clip(rows, 0, 1))

    def is_active(self, row: Floats) -> Bools:
        """Whether each hyperparameter is active at the nearest point of the space: shape (n_dimensions,), bool."""
        point = self.point(row)
        return np.array([name in point for name in self._space])

    def snapped(self, row: Floats) -> Floats:
        """The row of the nearest point of the space."""
        return np.clip(row, 0.0, 1.0) if self._is_continuous else self.row(self.point(row))

    def from_units(self, units: Floats) -> Floats:
        """Rows from points of the unit cube, of any leading shape. Numbers are unchanged."""
        categories = np.minimum(np.floor(units * self._n_categories), self._n_categories - 1)
        return np.where(self.is_category, categories, units)


@final
class GrowingArray:
    """Rows of `n_columns` numbers that are appended one by one, in amortised constant time."""

    def __init__(self, n_columns: int) -> None:
        self._allocated, self._n = np.empty((64, n_columns)), 0

    @property
    def rows(self) -> Floats:
        """All rows, not copied: shape (n, n_columns)."""
        return self._allocated[: self._n]

    def append(self, row: Floats) -> None:
        """Appends `row`, shape (n_columns,)."""
        if self._n == len(self._allocated):
            self._allocated = np.vstack([self._allocated, np.empty_like(self._allocated)])
        self._allocated[self._n] = row
        self._n += 1


def is_near(row: Floats, others: Floats) -> bool:
    """Whether `row`, shape (n_dimensions,), is near one of `others` (m, n_dimensions) (see `MIN_DISTANCE`)."""
    near = np.flatnonzero(np.abs(others[:, 0] - row[0]) < MIN_DISTANCE)
    for index in range(1, len(row)):  # one number after the other: late in a search, half of all trials agree in each
        if not len(near):
            break
        near = near[np.abs(others[near, index] - row[index]) < MIN_DISTANCE]
    return len(near) > 0


def _is_unordered(dimension: Dimension) -> bool:
    if not isinstance(dimension, Categorical):
        return False
    values = dimension.categories
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(values) < 3 or len(numbers) < len(values):
        return True
    return numbers not in (sorted(numbers), sorted(numbers, reverse=True))


def _n_categories(dimension: Dimension) -> int:
    return len(dimension.categories) if isinstance(dimension, Categorical) else 1


def _levels(dimension: Dimension) -> Floats | None:
    if _is_unordered(dimension):
        return np.arange(dimension.size, dtype=float)
    if dimension.size > MAX_LEVELS:
        return None
    return np.array([dimension.encode(value) for value in dimension.all_values()])
