"""From what was told and what is pending to what to try next, as a function without memory or clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np

from mpi_opt.strategies.acquisition import LogExpectedImprovement, maximised
from mpi_opt.strategies.encoding import Encoding
from mpi_opt.strategies.gaussian_process import GaussianProcess
from mpi_opt.strategies.surrogate import Success, Surrogate, Told

N_GLOBAL, N_LOCAL = 512, 256


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
        """Up to `count` rows to try next, chosen one after the other, each as if the earlier ones gave what is expected.

        Args:
            told: Everything told; at least two with a value.
            pending: Shape (m, n_dimensions): the rows that are being tried.
            number: Of the next proposal.
            count: How many to propose.
            is_allowed: Whether a row may be proposed.
        """
        succeeded = told.succeeded()
        model, best = self._surrogate.fit(succeeded)
        for row in pending:
            model.pretend(row)
        log_success = None
        if len(succeeded.values) < len(told.values):
            log_success = Success(told, self._encoding.is_category).log_probability
        rows: list[np.ndarray] = []
        for index in range(count):
            rng = np.random.default_rng([self._seed, number + index, 1])
            gain = LogExpectedImprovement(model, best, log_success)
            row = self._best_row(gain, succeeded, rng, is_allowed, rows)
            if row is None:
                break
            rows.append(row)
            model.pretend(row)
        return rows

    def _best_row(
        self,
        gain: LogExpectedImprovement,
        told: Told,
        rng: np.random.Generator,
        is_allowed: Callable[[np.ndarray], bool],
        taken: list[np.ndarray],
    ) -> np.ndarray | None:
        n = self._encoding.n_dimensions
        candidates = np.vstack([self._anywhere(rng), self._near_best(told, rng)])
        return maximised(
            gain,
            self._encoding,
            candidates,
            np.zeros(n),
            np.ones(n),
            lambda row: not any(np.array_equal(row, other) for other in taken) and is_allowed(row),
        )

    def _anywhere(self, rng: np.random.Generator) -> np.ndarray:
        return self._on_levels(self._encoding.from_units(rng.random((N_GLOBAL, self._encoding.n_dimensions))))

    def _near_best(self, told: Told, rng: np.random.Generator) -> np.ndarray:
        """Rows around the best few: some numbers moved by 0.001 to 0.3, some categories drawn anew."""
        best = told.rows[np.argsort(told.values, kind="stable")[:5]]
        rows = best[rng.integers(len(best), size=N_LOCAL)]
        scale = 10.0 ** rng.uniform(-3.0, -0.5, size=(N_LOCAL, 1))
        moved = np.clip(rows + scale * rng.standard_normal(rows.shape), 0.0, 1.0)
        redrawn = self._encoding.from_units(rng.random(rows.shape))
        is_changed = rng.random(rows.shape) < np.maximum(0.5, 1.0 / rows.shape[1])
        is_redrawn = is_changed & self._encoding.is_category & (rng.random(rows.shape) < 0.3)
        rows = np.where(is_changed & ~self._encoding.is_category, moved, rows)
        return self._on_levels(np.where(is_redrawn, redrawn, rows))

    def _on_levels(self, rows: np.ndarray) -> np.ndarray:
        """Numbers with few values moved to the nearest of them."""
        for index, levels in enumerate(self._encoding.levels):
            if levels is not None:
                rows[:, index] = levels[np.abs(rows[:, index][:, None] - levels).argmin(axis=1)]
        return rows
