"""The mapping of numbers to the unit interval. Parts of [0, 1] of equal length are equally likely under the prior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

PRIORS = ("uniform", "log-uniform")


@dataclass(frozen=True)
class Interval:
    """All numbers from `low` to `high`."""

    low: float
    high: float
    prior: str

    size = math.inf

    def encode(self, value: float) -> float:
        """The place of `value` in [0, 1]."""
        low, high = self._ends
        if self.prior == "log-uniform":
            value = math.log(value)
        unit = (value - low) / (high - low)
        return 0.0 if unit < 0.0 else 1.0 if unit > 1.0 else unit

    def decode(self, unit: float) -> float:
        """The number at `unit` in [0, 1]."""
        low, high = self._ends
        value = low + unit * (high - low)
        if self.prior == "log-uniform":
            value = math.exp(value)
        return float(min(max(value, self.low), self.high))

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """The ends of the interval, or their logarithms. A search encodes millions of numbers."""
        return (math.log(self.low), math.log(self.high)) if self.prior == "log-uniform" else (self.low, self.high)


@dataclass(frozen=True)
class Grid:
    """The numbers `low`, `low` + `step`, … up to `high`. Each is mapped to a cell, a part of [0, 1].

    Integers are exact up to any size. A grid of more than 2⁵³ of them has fewer cells than numbers.
    """

    low: float
    high: float
    step: float
    prior: str

    @cached_property
    def size(self) -> int:
        """How many numbers there are."""
        if self._is_of_integers:
            return int((self.high - self.low) // self.step) + 1
        return math.floor((self.high - self.low) / self.step + 1e-9) + 1  # 0.3 / 0.1 is 2.9999999999999996

    def encode(self, value: float) -> float:
        """The middle of the cell of the number that is nearest to `value`."""
        low = self.low - self._origin
        index = round((value - self.low) / self.step)
        left = self._cells.low if index == 0 else low + (index - 0.5) * self.step
        right = low + (index + 0.5) * self.step
        return 0.5 * (self._cells.encode(left) + self._cells.encode(right))

    def decode(self, unit: float) -> float:
        """The number whose cell contains `unit`."""
        if unit >= 1.0:  # the end of the last cell is not exact for large integers
            return self.low + self.step * (self.size - 1)
        index = round((self._cells.decode(unit) - (self.low - self._origin)) / self.step)
        return self.low + self.step * min(max(index, 0), self.size - 1)

    @property
    def _is_of_integers(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int) and isinstance(self.step, int)

    @cached_property
    def _origin(self) -> float:
        """What is subtracted from all numbers before they are mapped: as floats, large integers are not exact."""
        is_large = self._is_of_integers and max(abs(self.low), abs(self.high)) > 2**53
        # numbers that hardly differ from each other have the same logarithm
        is_uniform = self.prior == "uniform" or self.high - self.low < 1e-6 * self.low
        return self.low if is_large and is_uniform else 0

    @cached_property
    def _cells(self) -> Interval:
        """The interval of all cells: the grid and half a step at each end; all of it is positive for a log prior."""
        low, prior = self.low - self._origin, "uniform" if self._origin else self.prior
        below = low - 0.5 * self.step
        if prior == "log-uniform":
            below = max(below, 0.5 * low)
        return Interval(below, low + (self.size - 0.5) * self.step, prior)
