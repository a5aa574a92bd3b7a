"""What was told, as arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.strategy import Cost
from mpi_opt.strategies.surrogates.scalarization import scalarised

LARGEST_UNCERTAINTY = 1e100
"""Relative to the largest value; its square is finite."""

FEWEST_PENALTIES, FEWEST_MEASURED, PENALTY_GAP = 3, 5, 100.0
"""What makes a value a penalty: told so often, beside so many others, so many times as far from the best as they."""


@dataclass(frozen=True)
class Told:
    """What came of trials, in the order in which they ended.

    Attributes:
        rows: Shape (n, n_dimensions).
        values: Shape (n,), to minimise; NaN for a failed trial. Several figures of merit: shape (n, n_figures).
        variances: Shape of `values`: known variance of each value, 0 where none is known.
    """

    rows: np.ndarray
    values: np.ndarray
    variances: np.ndarray

    def weighted(self, weights: np.ndarray) -> Told:
        """One value made of several by `weights` (n_figures,); see `scalarisation`."""
        return Told(self.rows, *scalarised(self.values, self.variances, weights))

    def succeeded(self) -> Told:
        """Those with a value."""
        kept = np.isfinite(self.values)
        return Told(self.rows[kept], self.values[kept], self.variances[kept])

    def without_penalties(self) -> Told:
        """Without what a user makes up for trials that failed (1e6, say): these count as failed.

        A penalty is one value, told again and again, that is larger than all others by far. A model of it and them
        would see little but the step between the two.
        """
        values = self.values[np.isfinite(self.values)]
        largest = values.max(initial=-math.inf)
        measured = values[values < largest]
        if len(values) - len(measured) < FEWEST_PENALTIES or len(measured) < FEWEST_MEASURED:
            return self
        low, extent = measured.min(), np.ptp(measured)
        if not largest - low > PENALTY_GAP * extent > 0:
            return self
        return Told(self.rows, np.where(self.values == largest, math.nan, self.values), self.variances)

    def thinned(self, n: int) -> Told:
        """At most `n`: the best half of that, and of the others every so many; the order is kept."""
        if len(self.values) <= n:
            return self
        order = np.argsort(self.values, kind="stable")
        others = np.sort(order[n // 2 :])
        spread = others[np.linspace(0, len(others) - 1, n - n // 2).astype(int)]
        kept = np.sort(np.concatenate([order[: n // 2], spread]))
        return Told(self.rows[kept], self.values[kept], self.variances[kept])

    def nearest(self, n: int, row: np.ndarray, is_category: np.ndarray) -> Told:
        """The `n` that are nearest to `row` (n_dimensions,); the order is kept."""
        difference = np.where(is_category, 0.5 * (self.rows != row), self.rows - row)
        kept = np.sort(np.argsort((difference * difference).sum(axis=1), kind="stable")[:n])
        return Told(self.rows[kept], self.values[kept], self.variances[kept])

    def first(self, n: int) -> Told:
        """The first `n`."""
        return Told(self.rows[:n], self.values[:n], self.variances[:n])


@final
class History:
    """What was told, as arrays that grow.

    Args:
        encoding: Of the space.
        n_figures: How many values each trial gives.
    """

    def __init__(self, encoding: Encoding, n_figures: int = 1) -> None:
        self._encoding = encoding
        self._rows = np.empty((64, encoding.n_dimensions))
        self._values, self._uncertainties = np.empty((64, n_figures)), np.zeros((64, n_figures))
        self._n = self.n_values = 0

    def add(self, proposal: Proposal, value: Cost | None, outcome: Cost | Failed) -> None:
        """Adds a trial that ended; `value` is None if it failed."""
        if self._n == len(self._values):
            self._rows = np.vstack([self._rows, np.empty_like(self._rows)])
            self._values = np.vstack([self._values, np.empty_like(self._values)])
            self._uncertainties = np.vstack([self._uncertainties, np.zeros_like(self._uncertainties)])
        self._rows[self._n] = self.row(proposal)
        self._values[self._n] = math.nan if value is None else value
        outcomes = outcome if isinstance(outcome, tuple | list) else (outcome,)
        self._uncertainties[self._n] = [_uncertainty(one) for one in outcomes] if value is not None else 0.0
        self._n += 1
        self.n_values += value is not None

    def row(self, proposal: Proposal) -> np.ndarray:
        """The row of a proposal."""
        return self._encoding.row(proposal.parameters)

    def told(self) -> Told:
        """A copy of all observations, with the values scaled to [-1, 1] (see `scaled`)."""
        values, uncertainties = scaled(self._values[: self._n], self._uncertainties[: self._n])
        variances = uncertainties**2
        one = values.shape[1] == 1
        return Told(
            self._rows[: self._n].copy(), values[:, 0] if one else values, variances[:, 0] if one else variances
        )

    def best_rows(self) -> np.ndarray:
        """The rows of the best few values; of several values, the best few of each."""
        columns = self._values[: self._n].T
        order = [np.argsort(column)[: min(8, self.n_values)] for column in columns]
        return self._rows[np.concatenate(order)].copy()


def scaled(values: np.ndarray, uncertainties: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divides each column by a power of two, so that its largest magnitude lies in [0.5, 1).

    Differences and squares of the results are finite whatever the values are. Since a power of two changes no digit,
    models of the results do not depend on it.

    Args:
        values: Shape (n, n_figures); NaN for failed trials.
        uncertainties: Shape (n, n_figures), standard deviations.

    Returns:
        Both, divided; uncertainties are at most `LARGEST_UNCERTAINTY`.
    """
    magnitudes = np.abs(values).max(axis=0, initial=0.0, where=np.isfinite(values))
    exponents = np.frexp(magnitudes)[1]
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(values, -exponents), np.minimum(np.ldexp(uncertainties, -exponents), LARGEST_UNCERTAINTY)


def _uncertainty(outcome: object) -> float:
    """The standard deviation of a value; 0 if none is known."""
    uncertainty = getattr(outcome, "uncertainty", None) or 0.0
    return float(uncertainty) if math.isfinite(uncertainty) else 0.0
