"""A surrogate for many hyperparameters: extremely randomised trees (Geurts et al. 2006) of scikit-optimize."""

from __future__ import annotations

from typing import final

import numpy as np
from skopt.learning import ExtraTreesRegressor

from mpi_opt.core.arrays import Floats
from mpi_opt.strategies.surrogates.observations import Observations
from mpi_opt.strategies.surrogates.warp import warped

N_TREES = 100
PENDING_LENGTH = 0.1
"""Length scale of the reduction of the uncertainty around a pending trial, divided by √n_dimensions."""


@final
class Forest:
    """Predicts the mean and the standard deviation over trees.

    Args:
        observed: At least two observations, none failed.
        seed: Seed of the trees.

    Attributes:
        best: The smallest transformed value.
    """

    def __init__(self, observed: Observations, seed: int) -> None:
        y, _ = warped(observed.values, 1.0)
        self._trees = ExtraTreesRegressor(N_TREES, min_samples_leaf=2, random_state=seed, min_variance=1e-6)
        self._trees.fit(observed.rows, y)
        self._pending = np.empty((0, observed.rows.shape[1]))
        self.best = float(y.min())

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation at `rows` (m, n_dimensions); both shape (m,)."""
        mean, std = self._trees.predict(rows, return_std=True)
        if len(self._pending):
            difference = rows[:, None, :] - self._pending[None, :, :]
            distance = (difference * difference).mean(axis=2).min(axis=1)
            std = std * np.sqrt(-np.expm1(-0.5 * distance / PENDING_LENGTH**2) + 1e-6)
        return mean, std

    def pretend(self, rows: Floats) -> None:
        """Adds pending trials at `rows` (m, n_dimensions), near which the predicted standard deviation is reduced."""
        self._pending = np.vstack([self._pending, rows])
