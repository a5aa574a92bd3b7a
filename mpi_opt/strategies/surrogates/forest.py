"""A forest of extremely randomised trees (scikit-optimize) as surrogate: for very many hyperparameters."""

from __future__ import annotations

from typing import final

import numpy as np
from skopt.learning import ExtraTreesRegressor

from mpi_opt.strategies.surrogates.observations import Told
from mpi_opt.strategies.surrogates.warp import warped

N_TREES = 100
PENDING_LENGTH = 0.1
"""How far around a pending trial the uncertainty is taken away, per square root of a dimension."""


@final
class Forest:
    """Mean and standard deviation over trees.

    Args:
        told: Without failures, at least two.
        seed: Of the trees.
    """

    def __init__(self, told: Told, seed: int) -> None:
        y, _ = warped(told.values, 1.0)
        self._trees = ExtraTreesRegressor(N_TREES, min_samples_leaf=2, random_state=seed, min_variance=1e-6)
        self._trees.fit(told.rows, y)
        self._pending = np.empty((0, told.rows.shape[1]))
        self.best = float(y.min())

    def predict(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation at `rows` (m, n_dimensions); both shape (m,)."""
        mean, std = self._trees.predict(rows, return_std=True)
        if len(self._pending):
            difference = rows[:, None, :] - self._pending[None, :, :]
            distance = (difference * difference).mean(axis=2).min(axis=1)
            std = std * np.sqrt(-np.expm1(-0.5 * distance / PENDING_LENGTH**2) + 1e-6)
        return mean, std

    def pretend(self, rows: np.ndarray) -> None:
        """Takes `rows` (m, n_dimensions) as being tried: there is nothing to learn near them."""
        self._pending = np.vstack([self._pending, rows])
