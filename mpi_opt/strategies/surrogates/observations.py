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

LARGEST_UNCERTAINTY = 1e150
"""Of a value: the square of it is still a number."""

FEWEST_PENALTIES, FEWEST_MEASURED, PENALTY_GAP = 3, 5, 100.0
"""What makes a value a penalty: told so often, beside so many others, so many times as far from the best as they."""


@dataclass(frozen=True)
class Told:
    """What came of trials, in the order in which they ended.

    Attributes:
        rows: Shape (n, n_dimensions).
        values: Shape (n,), to minimise; NaN for a failed trial. Several figures of merit: shape (n, n_merits).
        variances: Shape of `values`: known variance of each value, 0 where none is known.
    """

    rows: np.ndarray
    values: np.ndarray
    variances: np.ndarray

    def weighted(self, weights: np.ndarray) -> Told:
        """One value made of several by `weights` (n_merits,); see `scalarisation`."""
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

    def scaled(self) -> Told:
        """The values divided by the largest among them, so that squares of them stay finite."""
        largest = np.abs(self.values).max()
        if not largest > 0:
            return self
        return Told(self.rows, self.values / largest, (np.sqrt(self.variances) / largest) ** 2)

    def first(self, n: int) -> Told:
        """The first `n`."""
        return Told(self.rows[:n], self.values[:n], self.variances[:n])


@final
class History:
    """What was told, as arrays that grow.

    Args:
        encoding: Of the space.
        n_merits: How many values each trial gives.
    """

    def __init__(self, encoding: Encoding, n_merits: int = 1) -> None:
        self._encoding = encoding
        self._rows = np.empty((64, encoding.n_dimensions))
        self._values, self._variances = np.empty((64, n_merits)), np.zeros((64, n_merits))
        self._n = self.n_values = 0

    def add(self, proposal: Proposal, value: Cost | None, outcome: Cost | Failed) -> None:
        """Adds a trial that ended; `value` is None if it failed."""
        if self._n == len(self._values):
            self._rows = np.vstack([self._rows, np.empty_like(self._rows)])
            self._values = np.vstack([self._values, np.empty_like(self._values)])
            self._variances = np.vstack([self._variances, np.zeros_like(self._variances)])
        self._rows[self._n] = self.row(proposal)
        self._values[self._n] = math.nan if value is None else value
        outcomes = outcome if isinstance(outcome, tuple) else (outcome,)
        self._variances[self._n] = [_variance(one) for one in outcomes] if value is not None else 0.0
        self._n += 1
        self.n_values += value is not None

    def row(self, proposal: Proposal) -> np.ndarray:
        """The row of a proposal."""
        return self._encoding.row(proposal.parameters)

    def told(self) -> Told:
        """All of it; later additions do not change what is returned."""
        rows, values, variances = (part[: self._n].copy() for part in (self._rows, self._values, self._variances))
        return Told(rows, values, variances) if values.shape[1] > 1 else Told(rows, values[:, 0], variances[:, 0])

    def best_rows(self) -> np.ndarray:
        """The rows of the best few values; of several values, the best few of each."""
        columns = self._values[: self._n].T
        order = [np.argsort(column)[: min(8, self.n_values)] for column in columns]
        return self._rows[np.concatenate(order)].copy()


def _variance(outcome: object) -> float:
    """The known variance of a value; 0 if none is known."""
    uncertainty = getattr(outcome, "uncertainty", None) or 0.0
    return min(uncertainty, LARGEST_UNCERTAINTY) ** 2 if math.isfinite(uncertainty) else 0.0
