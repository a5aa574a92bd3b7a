"""From what was told and what is pending to what to try next, as a function without memory or clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import final

import numpy as np
from threadpoolctl import ThreadpoolController

from mpi_opt.strategies.acquisition import LogExpectedImprovement, maximised
from mpi_opt.strategies.encoding import Encoding
from mpi_opt.strategies.history import Told
from mpi_opt.strategies.surrogate import Success, Surrogate

N_GLOBAL, N_LOCAL, N_CLIMBS = 512, 256, 6
N_THOROUGH = 16
"""After so many proposals of one call each is sought with a quarter of the effort."""


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


@final
class Proposer:
    """Proposes points of a space.

    Args:
        encoding: Of the space.
        seed: What is proposed depends on it.
    """

    def __init__(self, encoding: Encoding, seed: int) -> None:
        self._encoding, self._seed = encoding, seed
        self._surrogate = Surrogate(encoding.is_category)

    def propose(
        self,
        told: Told,
        pending: np.ndarray,
        number: int,
        count: int,
        is_allowed: Callable[[np.ndarray], bool],
    ) -> list[np.ndarray]:
        """Up to `count` rows to try next, one after the other, each as if the earlier ones gave what is expected.

        Args:
            told: Everything told; at least two with a value.
            pending: Shape (m, n_dimensions): the rows that are being tried.
            number: Of the next proposal.
            count: How many to propose.
            is_allowed: Whether a row may be proposed.
        """
        with _threads().limit(limits=1):  # rank 0 shares its core with the coordinator, and the host with other ranks
            return self._proposed(told, pending, number, count, is_allowed)

    def quick_rows(self, best: np.ndarray, number: int) -> list[np.ndarray]:
        """Some rows near the `best` (m, n_dimensions) or anywhere, without a model, for when there is no time."""
        rng = np.random.default_rng([self._seed, number, 2])
        rows = [self._around(best, rng, 8), self._anywhere(rng, 8)]
        rng.shuffle(rows)
        return [self._encoding.snapped(row) for row in np.vstack(rows)]

    def _proposed(
        self,
        told: Told,
        pending: np.ndarray,
        number: int,
        count: int,
        is_allowed: Callable[[np.ndarray], bool],
    ) -> list[np.ndarray]:
        succeeded = told.succeeded()
        model, best = self._surrogate.fit(succeeded)
        model.pretend(pending)
        log_success = None
        if len(succeeded.values) < len(told.values):
            log_success = Success(told, self._encoding.is_category).log_probability
        rows: list[np.ndarray] = []
        for index in range(count):
            rng = np.random.default_rng([self._seed, number + index, 1])
            gain = LogExpectedImprovement(model, best, log_success)
            effort = 1.0 if index < N_THOROUGH else 0.25
            row = self._best_row(gain, succeeded, rng, effort, lambda row: _is_none_of(row, rows) and is_allowed(row))
            if row is None:
                break
            rows.append(row)
            model.pretend(row[None, :])
        return rows

    def _best_row(
        self,
        gain: LogExpectedImprovement,
        told: Told,
        rng: np.random.Generator,
        effort: float,
        is_allowed: Callable[[np.ndarray], bool],
    ) -> np.ndarray | None:
        n = self._encoding.n_dimensions
        best = told.rows[np.argsort(told.values, kind="stable")[:5]]
        n_global, n_local, n_climbs = (math.ceil(effort * number) for number in (N_GLOBAL, N_LOCAL, N_CLIMBS))
        candidates = np.vstack([self._anywhere(rng, n_global), self._around(best, rng, n_local)])
        return maximised(gain, self._encoding, candidates, np.zeros(n), np.ones(n), is_allowed, n_climbs)

    def _anywhere(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return self._on_levels(self._encoding.from_units(rng.random((count, self._encoding.n_dimensions))))

    def _around(self, best: np.ndarray, rng: np.random.Generator, count: int) -> np.ndarray:
        """Rows around the best few: some numbers moved by 0.001 to 0.3, some categories drawn anew."""
        rows = best[rng.integers(len(best), size=count)]
        scale = 10.0 ** rng.uniform(-3.0, -0.5, size=(count, 1))
        moved = np.clip(rows + scale * rng.standard_normal(rows.shape), 0.0, 1.0)
        redrawn = self._encoding.from_units(rng.random(rows.shape))
        is_changed = rng.random(rows.shape) < max(0.5, 1.0 / rows.shape[1])
        is_redrawn = is_changed & self._encoding.is_category & (rng.random(rows.shape) < 0.3)
        rows = np.where(is_changed & ~self._encoding.is_category, moved, rows)
        return self._on_levels(np.where(is_redrawn, redrawn, rows))

    def _on_levels(self, rows: np.ndarray) -> np.ndarray:
        """Numbers with few values moved to the nearest of them."""
        for index, levels in enumerate(self._encoding.levels):
            if levels is not None:
                rows[:, index] = levels[np.abs(rows[:, index][:, None] - levels).argmin(axis=1)]
        return rows


def _is_none_of(row: np.ndarray, rows: list[np.ndarray]) -> bool:
    return not any(np.array_equal(row, other) for other in rows)
