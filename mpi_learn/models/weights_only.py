"""What a master has of a model: the weights, and no framework."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.models.model import Arrays, Model


class WeightsOnly(Model):
    """The weights of a model that other ranks compute with. The model itself is built when it is asked for.

    Args:
        layout: Of the trainable arrays.
        n_sums, n_moving, n_counters: Lengths, as the workers' models have them.
        build: Makes the whole model.
    """

    def __init__(
        self,
        layout: FlatLayout,
        n_sums: int,
        n_moving: int,
        n_counters: int,
        build: Callable[[], Model],
    ) -> None:
        self.layout = layout
        self.weights = aligned_empty(self.layout.size)
        self.n_sums = n_sums
        self._moving = np.zeros(n_moving, np.float32)
        self._counters = np.zeros(n_counters, np.int64)
        self._build = build

    def moving(self) -> np.ndarray:
        """See `Model.moving`."""
        return self._moving.copy()

    def set_moving(self, values: np.ndarray) -> None:
        """See `Model.set_moving`."""
        self._moving[:] = values

    def counters(self) -> np.ndarray:
        """See `Model.counters`."""
        return self._counters.copy()

    def set_counters(self, values: np.ndarray) -> None:
        """See `Model.set_counters`."""
        self._counters[:] = values

    def finish(self) -> Any:
        """Builds the model, which loads the framework, and gives it the weights."""
        return self._whole().finish()

    def save(self, path: Path) -> Path:
        """See `Model.save`; loads the framework."""
        return self._whole().save(path)

    def gradient(self, x: Arrays, y: Arrays) -> np.ndarray:
        """A master computes none: there are no samples for it."""
        return np.zeros(self.layout.size + self.n_sums, np.float32)

    def evaluate(self, x: Arrays, y: Arrays) -> np.ndarray:
        """A master evaluates nothing: there are no samples for it."""
        return np.zeros(self.n_sums)

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """The workers' word counts."""
        return {}

    def check_labels(self, y: Arrays) -> None:
        """The workers do it."""

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        """Builds the model first."""
        return self._whole().predict(x)

    def _whole(self) -> Model:
        model = self._build()
        model.weights[:] = self.weights
        model.set_moving(self._moving)
        return model
