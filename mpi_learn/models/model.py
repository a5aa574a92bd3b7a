"""The interface of a model: flat weights, gradient, evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mpi_learn.flat_layout import FlatLayout
from mpi_learn.settings.component import Component
from mpi_learn.update_rule import UpdateRule

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Example:
    """A few samples, from which a model learns shapes, dtypes and names.

    Attributes:
        x: One array per input, the first axis being the samples.
        y: One array per label.
        weights: One array of sample weights, or none.
        x_names, y_names: The names that the data configuration gives to `x` and `y`; empty if it gives none.
    """

    x: Arrays
    y: Arrays
    weights: Arrays = ()
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.x[0])

    def part(self, first: int, stop: int) -> Example:
        """Samples `first` to `stop` - 1."""
        return self._each(lambda array: array[first:stop])

    def doubled(self) -> Example:
        """Every sample twice."""
        return self._each(lambda array: np.concatenate([array, array]))

    def _each(self, change: Callable[[np.ndarray], np.ndarray]) -> Example:
        x, y, weights = (list(map(change, arrays)) for arrays in (self.x, self.y, self.weights))
        return Example(x, y, weights, self.x_names, self.y_names)


def named(values: Sequence[Any], names: Sequence[str]) -> Any:
    """`values` as user code takes them: a mapping if they have names, the value itself if it is the only one."""
    if names:
        return dict(zip(names, values, strict=True))
    return values[0] if len(values) == 1 else list(values) or None


class ModelState(Protocol):
    """The values of a model that are not trained, as two vectors.

    Ranks average the real numbers, such as moving means and variances. Each rank keeps its own integers, such as
    counters and the states of random generators.
    """

    def floats(self) -> np.ndarray:
        """The real numbers, float32, a copy."""

    def set_floats(self, values: np.ndarray) -> None:
        """Replaces them by the first of `values`."""

    def integers(self) -> np.ndarray:
        """The integers, int64, a copy."""

    def set_integers(self, values: np.ndarray) -> None:
        """Replaces them by the first of `values`."""


class Model(ABC):
    """A model of some framework, seen as one flat vector of weights.

    Attributes:
        layout: Which part of `weights` is which trainable array.
        weights: (layout.size,) float32, the memory that the framework computes with; changed in place.
        state: The values that are not trained.
        n_sums: Number of sums behind a gradient (see `mpi_learn.flat_layout`).
        framework: ``keras`` or ``torch``.
        has_xla: Whether XLA can compile its step.
        is_xla: Whether XLA does.
        has_own_loss: Whether user code computes its loss, which may be a sum over the batch.
        synchronizes_statistics: Whether its batch normalisation would use the batches of all replicas.
        least_samples: The smallest batch that the model can be trained with.
        can_evaluate: Whether `evaluate` is possible: not if only the user's `train_step` computes a loss.
        has_constraints: Whether the framework's optimizers constrain its weights after each step.
    """

    layout: FlatLayout
    weights: np.ndarray
    state: ModelState
    n_sums: int
    framework: str
    has_xla: bool = False
    is_xla: bool = False
    has_own_loss: bool = False
    synchronizes_statistics: bool = False
    least_samples: int = 1
    can_evaluate: bool = True
    has_constraints: bool = False

    @abstractmethod
    def gradient(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        """Forward and backward pass of one training step; updates `state`, but not `weights`.

        Args:
            x: One array per input, the first axis being n samples; n may be 0.
            y: One array per label.
            weights: One array of sample weights, or none.

        Returns:
            (layout.size + n_sums,) float32 step vector: the gradient of the loss, times the batch's weight (its
            number of samples where nothing else is documented), 1 for each array that has a gradient and 0 for the
            others (if `layout.has_counts`), then the sums. Writable.
        """

    def compile_step(self, by_xla: bool) -> None:  # noqa: B027 - optional
        """Chooses what computes `gradient` for batches as large as the next one; only if `has_xla`."""

    @abstractmethod
    def evaluate(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        """The sums of one forward pass in inference mode, (n_sums,) float64."""

    @abstractmethod
    def check_labels(self, y: Arrays) -> None:
        """Raises DataError if a label of `y` (one array per label) is outside of the model's outputs."""

    @abstractmethod
    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """Loss and metrics, by name, over all samples of `sums`, (n_sums,)."""

    @abstractmethod
    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        """The outputs in inference mode."""

    @abstractmethod
    def optimizer(self, wanted: Component, number: int = 0) -> UpdateRule:
        """An optimizer of the framework, for `weights`.

        Args:
            wanted: Its name or the user's function, with arguments.
            number: The model that it updates, if there are several in one vector.

        Raises:
            ConfigurationError: It is not available for this model.
        """

    @abstractmethod
    def current(self) -> Any:
        """The framework's own model object, with the current weights."""

    @abstractmethod
    def save(self, path: Path) -> Path:
        """Writes the model to `path` with the framework's suffix; returns the file. Atomic."""

    @abstractmethod
    def save_weights(self, path: Path) -> tuple[Path, str]:
        """Writes only the weights, for models that `save` cannot write.

        Returns:
            The file, and the lines of Python that load it.
        """

    def close(self) -> None:  # noqa: B027 - optional
        """Ends the training: releases what the framework holds for it. The object of `current` stays usable."""
