"""The outcomes of trials as arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from mpi_opt.core.arrays import Bools, Floats, Ints
from mpi_opt.core.merit.figures import Measured
from mpi_opt.core.merit.pareto import as_tuple
from mpi_opt.strategies.points.encoding import GrowingArray
from mpi_opt.strategies.strategy import Cost
from mpi_opt.strategies.surrogates.extremes import scaled, without_extremes
from mpi_opt.strategies.surrogates.proposing.scalarization import scalarized


@dataclass(frozen=True)
class Observations:
    """Points and the values observed there, in the order in which the trials ended.

    Attributes:
        rows: Shape (n, n_dimensions), rows of an `Encoding`.
        values: Shape (n,), to be minimised; NaN for a failed trial. With several figures of merit: shape
            (n, n_figures).
        variances: Shape of `values`: the variance of each value, 0 if it is not known.
    """

    rows: Floats
    values: Floats
    variances: Floats

    def weighted(self, weights: Floats) -> Observations:
        """Combines several figures of merit to one by `weights`, shape (n_figures,) (see `scalarized`)."""
        return Observations(self.rows, *scalarized(self.values, self.variances, weights))

    def succeeded(self) -> Observations:
        """The observations without failed trials."""
        return self._kept(np.isfinite(self.values))

    def without_extremes(self) -> Observations:
        """The observations with penalties and outliers replaced by NaN, so that they count as failed trials."""
        values = without_extremes(columns := self.values.reshape(len(self.values), -1))
        if values is columns:
            return self
        return Observations(self.rows, values.reshape(self.values.shape), self.variances)

    def scaled(self) -> Observations:
        """The observations of one figure of merit with values in (-1, 1)."""
        values, uncertainties = scaled(self.values[:, None], np.sqrt(self.variances)[:, None])
        return Observations(self.rows, values[:, 0], uncertainties[:, 0] ** 2)

    def thinned(self, n: int) -> Observations:
        """At most `n` observations: the n/2 best ones, and an even selection of all others. Keeps the order."""
        if len(self.values) <= n:
            return self
        order = np.argsort(self.values, kind="stable")
        others = np.sort(order[n // 2 :])
        spread = others[np.linspace(0, len(others) - 1, n - n // 2).astype(int)]
        return self._kept(np.sort(np.concatenate([order[: n // 2], spread])))

    def spread(self, n: int) -> Observations:
        """At most `n` observations, evenly selected in their order, whatever their values."""
        size = len(self.values)
        return self if size <= n else self.at(np.linspace(0, size - 1, n).astype(int))

    def at(self, index: Ints) -> Observations:
        """The observations with the positions `index`, ascending."""
        return self._kept(index)

    def nearest(self, n: int, row: Floats, is_category: Bools) -> Observations:
        """The `n` observations nearest to `row`, shape (n_dimensions,). Keeps the order."""
        difference = np.where(is_category, 0.5 * (self.rows != row), self.rows - row)
        return self._kept(np.sort(np.argsort((difference * difference).sum(axis=1), kind="stable")[:n]))

    def first(self, n: int) -> Observations:
        """The first `n` observations."""
        return self._kept(slice(n))

    def is_equal(self, other: Observations) -> bool:
        """Whether points, values and variances are the same."""
        pairs = ((self.rows, other.rows), (self.values, other.values), (self.variances, other.variances))
        return all(np.array_equal(ours, theirs) for ours, theirs in pairs)

    def _kept(self, index: Bools | np.ndarray | slice) -> Observations:
        return Observations(self.rows[index], self.values[index], self.variances[index])


@final
class ObservationHistory:
    """All observations of a search.

    Attributes:
        n_succeeded: Number of trials that did not fail.
    """

    def __init__(self, n_dimensions: int, n_figures: int = 1) -> None:
        self._points = GrowingArray(n_dimensions)
        self._values, self._uncertainties = GrowingArray(n_figures), GrowingArray(n_figures)
        self.n_succeeded = 0

    def add(self, row: Floats, cost: Cost | None) -> None:
        """Adds a trial that ended, at `row`: its cost, which may hold uncertainties, or None if it failed."""
        costs = (math.nan,) if cost is None else as_tuple(cost)
        self._points.append(row)
        self._values.append(np.array(costs))
        self._uncertainties.append(np.array([_uncertainty(each) for each in costs]))
        self.n_succeeded += cost is not None

    @property
    def n(self) -> int:
        """Number of trials that have ended."""
        return len(self._points.rows)

    def observations(self, first: int | None = None) -> Observations:
        """A copy of the `first` observations, by default of all.

        Values are scaled to (-1, 1), and are NaN for failed trials, penalties and outliers.
        """
        values, uncertainties = scaled(without_extremes(self._values.rows[:first]), self._uncertainties.rows[:first])
        variances = uncertainties**2
        if values.shape[1] == 1:
            values, variances = values[:, 0], variances[:, 0]
        return Observations(self._points.rows[:first].copy(), values, variances)


def _uncertainty(cost: float) -> float:
    """The standard deviation of a value; 0 if it is not known."""
    known = cost.uncertainty if isinstance(cost, Measured) else None
    return 0.0 if known is None or not math.isfinite(known) else known
