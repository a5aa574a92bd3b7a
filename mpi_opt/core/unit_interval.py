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
        low, high = self.low, self.high
        if self.prior == "log-uniform":
            value, low, high = math.log(value), math.log(low), math.log(high)
        return min(max((value - low) / (high - low), 0.0), 1.0)

    def decode(self, unit: float) -> float:
        """The number at `unit` in [0, 1]."""
        if self.prior == "log-uniform":
            value = math.exp(math.log(self.low) + unit * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + unit * (self.high - self.low)
        return float(min(max(value, self.low), self.high))


@dataclass(frozen=True)
class Grid:
    """The numbers `low`, `low` + `step`, … up to `high`. Each is mapped to a cell, a part of [0, 1]."""

    low: float
    high: float
    step: float
    prior: str

    @cached_property
    def size(self) -> int:
        """How many numbers there are."""
        return math.floor((self.high - self.low) / self.step + 1e-9) + 1

    def encode(self, value: float) -> float:
        """The middle of the cell of the number that is nearest to `value`."""
        index = round((value - self.low) / self.step)
        left = self._cells.low if index == 0 else self.low + (index - 0.5) * self.step
        right = self.low + (index + 0.5) * self.step
        return 0.5 * (self._cells.encode(left) + self._cells.encode(right))

    def decode(self, unit: float) -> float:
        """The number whose cell contains `unit`."""
        index = round((self._cells.decode(unit) - self.low) / self.step)
        return self.low + self.step * min(max(index, 0), self.size - 1)

    @cached_property
    def _cells(self) -> Interval:
        """The interval of all cells: the grid and half a step at each end; all of it is positive for a log prior."""
        below = self.low - 0.5 * self.step
        if self.prior == "log-uniform":
            below = max(below, 0.5 * self.low)
        return Interval(below, self.low + (self.size - 0.5) * self.step, self.prior)
