"""The interface of a model: flat weights, gradient, evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpi_learn.flat_layout import FlatLayout

Arrays = Sequence[np.ndarray]


class Model(ABC):
    """A model of some framework, seen as one flat vector of weights.

    Attributes:
        layout: Which part of `weights` is which trainable array.
        weights: (layout.size,) float32, the memory that the framework computes with: change it in place.
        n_sums: How many sums ride behind a gradient (see `mpi_learn.flat_layout`).
        has_xla: Whether XLA can be chosen to compile its step.
        is_xla: Whether it is chosen.
    """

    layout: FlatLayout
    weights: np.ndarray
    n_sums: int
    has_xla: bool = False
    is_xla: bool = False

    @abstractmethod
    def gradient(self, x: Arrays, y: Arrays) -> np.ndarray:
        """One training step's forward and backward pass; non-trainable state moves on, `weights` do not.

        Args:
            x: One array per input, the first axis being n samples; n may be 0.
            y: One array per output.

        Returns:
            (layout.size + n_sums,) float32 step vector: the gradient of the loss summed over the samples, then
            the sums. Writable.
        """

    def announce(self, ready: Callable[[np.ndarray, int], None]) -> None:  # noqa: B027 - some know only at the end
        """From now on `gradient` calls `ready` with its step vector and the number of each array that is complete."""

    def compile_step(self, by_xla: bool) -> None:  # noqa: B027 - most frameworks leave no choice
        """Chooses what computes `gradient` for batches as large as the first one that comes; only if `has_xla`."""

    @abstractmethod
    def evaluate(self, x: Arrays, y: Arrays) -> np.ndarray:
        """The sums of one forward pass in inference mode, (n_sums,) float64."""

    @abstractmethod
    def check_labels(self, y: Arrays) -> None:
        """Raises DataError if a label of `y` (all of them, one array per output) cannot be an output of the model."""

    @abstractmethod
    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """Name -> value of loss and metrics over all the samples that `sums`, (n_sums,), were added up over."""

    @abstractmethod
    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        """The outputs in inference mode."""

    @abstractmethod
    def moving(self) -> np.ndarray:
        """The non-trainable real numbers (moving means and variances), float32, a copy: what ranks average."""

    @abstractmethod
    def set_moving(self, values: np.ndarray) -> None:
        """Replaces what `moving` gives."""

    @abstractmethod
    def counters(self) -> np.ndarray:
        """The non-trainable whole numbers (states of random generators), int64, a copy: each rank's own."""

    @abstractmethod
    def set_counters(self, values: np.ndarray) -> None:
        """Replaces what `counters` gives."""

    @abstractmethod
    def finish(self) -> Any:
        """The framework's own model object, holding the weights as they are now."""

    @abstractmethod
    def save(self, path: Path) -> Path:
        """Writes the model to `path` with the framework's suffix; returns the file. Whole or not at all."""

    def close(self) -> None:  # noqa: B027 - most frameworks hold nothing to give back
        """Gives back what the framework holds for this model; `finish`'s object stays usable."""
