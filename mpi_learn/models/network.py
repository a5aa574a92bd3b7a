"""The interface of one network of a framework, of which two make a generative adversarial model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.labels import LabelRule
from mpi_learn.models.model import Arrays, Example, ModelState
from mpi_learn.models.outputs import Shape
from mpi_learn.settings.component import Component
from mpi_learn.update_rule import UpdateRule

Tensors = Sequence[Any]
Loss = Callable[[Any, Any], Any]
"""(labels, output) -> mean loss of a batch."""


class Network(ModelState, Protocol):
    """One model of a framework, whose trainable arrays are parts of a flat vector."""

    framework: str
    layout: FlatLayout

    @property
    def has_constraints(self) -> bool:
        """See `Model.has_constraints`."""

    def output_shapes(self, x: Arrays) -> list[Shape]:
        """The shapes of the outputs for a few samples; builds the model."""

    def give(self, weights: np.ndarray) -> None:
        """Copies the trainable arrays into `weights`, (layout.size,) float32, from which the model may compute."""

    def take(self, weights: np.ndarray) -> Any:
        """The framework's own model, with these weights."""

    def save(self, path: Path, weights: np.ndarray) -> Path:
        """Writes the model; see `Model.save`."""

    def save_weights(self, path: Path, weights: np.ndarray) -> Path:
        """Writes the weights alone."""

    def parts(self, flat: Any) -> list[Any]:
        """The trainable arrays in `flat`, as tensors."""

    def called(self, parts: list[Any], x: Tensors, training: bool, is_updated: bool) -> tuple[Tensors, Any]:
        """Outputs and penalty; moving means and variances are updated only if `is_updated`."""

    def loss(self, wanted: Component, output: Shape, labels: np.ndarray) -> tuple[Loss, LabelRule | None]:
        """A function of (labels, output) for the mean loss of a batch, and what it requires of labels."""

    def differentiated(self, function: Callable[[], Any], parts: Sequence[list[Any]]) -> tuple[Any, list[list[Any]]]:
        """(losses, further results) of `function`, and the gradient of each loss by its parts."""

    def compiled(self, function: Callable[..., Any], example: Example, weights: np.ndarray) -> Callable[..., Any]:
        """`function` of (flat weights, x, y) and lists of tensors, as one of (x, y) and lists of arrays.

        Raises:
            ModelError: Models, loss and data do not fit together.
        """

    def optimizer(self, wanted: Component) -> UpdateRule:
        """An optimizer of the framework for the trainable arrays; the weights have been given by now."""

    def close(self) -> None:
        """Releases what the framework holds."""
