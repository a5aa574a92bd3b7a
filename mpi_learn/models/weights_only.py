"""A master's part of a model: the weights, without a framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.models.model import Model
from mpi_learn.models.network import ArrayKind, Network
from mpi_learn.models.settings import Arrays


class ModelSizes(NamedTuple):
    """The sizes of the workers' model that a master needs."""

    layout: FlatLayout
    framework: str
    n_sums: int
    n_floats: int
    n_integers: int
    arrays: tuple[ArrayKind, ...] = ()

    @classmethod
    def of(cls, model: Model) -> ModelSizes:
        """The sizes of a worker's model."""
        state = model.state
        sizes = state.floats().size, state.integers().size
        return cls(model.layout, model.framework, model.n_sums, *sizes, tuple(model.arrays()))


class StateOnly:
    """The state of a model with which other ranks compute; see `ModelState`."""

    def __init__(self, n_floats: int, n_integers: int) -> None:
        self._floats, self._integers = np.zeros(n_floats, np.float32), np.zeros(n_integers, np.int64)

    def floats(self) -> np.ndarray:
        return self._floats.copy()

    def set_floats(self, values: np.ndarray) -> None:
        self._floats = np.array(values, np.float32)

    def integers(self) -> np.ndarray:
        return self._integers.copy()

    def set_integers(self, values: np.ndarray) -> None:
        self._integers = np.array(values, np.int64)

    def random_mask(self) -> np.ndarray:
        return np.zeros(self._integers.size, np.bool_)

    def seed_random(self, keys: Sequence[int]) -> None:
        """Does nothing: a master draws no random numbers."""


class WeightsOnly(Model):
    """The weights of a model with which other ranks compute. The model itself is built on request.

    Args:
        sizes: The sizes of the models of the workers.
        build: Makes the whole model.
    """

    def __init__(self, sizes: ModelSizes, build: Callable[[], Model]) -> None:
        self.layout, self.framework, self.n_sums = sizes.layout, sizes.framework, sizes.n_sums
        self.weights = aligned_empty(self.layout.size)
        self.state = StateOnly(sizes.n_floats, sizes.n_integers)
        self._build, self._arrays = build, list(sizes.arrays)

    @property
    def networks(self) -> Mapping[str, Network]:  # type: ignore[override]  # read only
        """The networks of the whole model, with these weights."""
        with closing(self.whole()) as model:
            return model.networks

    def gradient(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        """Zeros, because a master has no samples."""
        return np.zeros(self.layout.size + self.n_sums, np.float32)

    def evaluate(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        """Zeros, because a master has no samples."""
        return np.zeros(self.n_sums)

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """Empty, because the workers compute the metrics."""
        return {}

    def check_labels(self, y: Arrays) -> None:
        """Does nothing, because the workers check the labels."""

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        with closing(self.whole()) as model:
            return model.predict(x)

    def arrays(self) -> list[ArrayKind]:
        """The arrays of the workers' model."""
        return self._arrays

    def resize(self, arrays: Sequence[ArrayKind]) -> None:
        """The state of the workers' model has these shapes."""
        self._arrays = list(arrays)

    def probe(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> list[np.ndarray]:
        """Nothing, because the workers compute."""
        return []

    def whole(self) -> Model:
        """Builds the model with these weights; loads the framework."""
        model = self._build()
        model.weights[:] = self.weights
        model.resize(self._arrays)
        model.state.set_floats(self.state.floats())
        return model
