"""The interface of one network of a framework. A model consists of one network, or of the two of a GAN."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from mpi_learn.flat_layout import FlatLayout, UpdateRule
from mpi_learn.models.labels import LabelRule
from mpi_learn.models.outputs import Outputs, Shape
from mpi_learn.models.settings import Arrays, Example, ModelSettings, Tensors
from mpi_learn.settings.component import Component

Loss = Callable[[Any, Any], Any]
"""(labels, output) -> mean loss of a batch."""


NOT_IN_OPTIMIZER = "trained, but not by the optimizer"
"""The trait of a parameter that has become trainable, or part of the model, after the optimizer was made."""


OF_FRAMEWORK = ("training", "stop_training", "stop_evaluating", "stop_predicting", "built", "compiled")
"""Attributes that the framework itself changes in a model."""


class ArrayKind(NamedTuple):
    """What two ranks compare of an array of a model.

    Attributes:
        name: Its name in the framework, without the counters in names that Keras generates.
        shape: Its shape.
        dtype: The name of its dtype.
        is_trained: Whether it is part of the flat vector.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_trained: bool

    def __str__(self) -> str:
        kind = "the trained array" if self.is_trained else "the array"
        return f"{kind} {self.name} of shape {self.shape} ({self.dtype})"


class ModelState(Protocol):
    """The values of a model that are not trained, as two vectors.

    Ranks average the real numbers, such as moving means and variances. Each rank keeps its own integers, such as
    counters and the states of random generators.
    """

    def floats(self) -> np.ndarray:
        """A copy of the real numbers, float32."""

    def set_floats(self, values: np.ndarray) -> None:
        """Replaces them by the first elements of `values`."""

    def integers(self) -> np.ndarray:
        """A copy of the integers, int64."""

    def set_integers(self, values: np.ndarray) -> None:
        """Replaces them by the first elements of `values`."""

    def random_mask(self) -> np.ndarray:
        """Whether each of the integers belongs to the state of a random generator, bool; the others are counters."""

    def seed_random(self, keys: Sequence[int]) -> None:
        """Sets the states of all random generators, as a function of `keys`, which are not negative."""


def seed_of(keys: Sequence[int]) -> int:
    """A seed in [0, 2³¹), a function of `keys`."""
    return int(np.random.SeedSequence(keys).generate_state(1)[0] >> 1)


def plain_attributes(layer: Any) -> dict[str, Any]:
    """The public numbers, texts and flags of an object of a framework that user code may change."""
    return {
        name: value
        for name, value in vars(layer).items()
        if isinstance(value, float | int | str | None) and not name.startswith("_") and name not in OF_FRAMEWORK
    }


def joined(arrays: Iterable[Any], dtype: type) -> np.ndarray:
    """Copies the elements of all arrays, tensors or variables into one vector."""
    parts: list[np.ndarray] = [np.asarray(array).astype(dtype).ravel() for array in arrays]
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


class Network(ModelState, Protocol):
    """One model of a framework, whose trainable arrays are parts of a flat vector.

    Attributes:
        framework: ``keras`` or ``torch``.
        settings: The settings with which the network was built.
        layout: Layout of the trainable arrays.
        weights: (layout.size,) float32, their values; see `move_into`.
        sees_attributes: Whether its steps see a change of an attribute of a layer. Compiled ones do not.
    """

    framework: str
    settings: ModelSettings
    layout: FlatLayout
    weights: np.ndarray
    sees_attributes: bool

    @property
    def uses_gpu(self) -> bool:
        """See `Model.uses_gpu`."""

    @property
    def has_constraints(self) -> bool:
        """See `Model.has_constraints`."""

    @property
    def synchronizes_statistics(self) -> bool:
        """See `Model.synchronizes_statistics`."""

    @property
    def has_unsaved_random(self) -> bool:
        """See `Model.has_unsaved_random`; known after `compile`."""

    @property
    def has_penalty(self) -> bool:
        """Whether its layers add terms to the loss, which may be sums over the batch; known after `outputs`."""

    def arrays(self) -> list[ArrayKind]:
        """All arrays: the trainable ones in the order of `layout`, then the others."""

    def resize(self, arrays: Sequence[ArrayKind]) -> None:
        """Gives arrays that are not trained the shapes of `arrays`, with zeros where the shape differs."""

    def traits(self) -> dict[str, Any]:
        """Numbers, texts and flags of its layers that user code may change and ranks do not exchange, by name."""

    def repeatable(self) -> AbstractContextManager[None]:
        """In the block, random numbers depend on the configured seed alone; at its end, the state is as before."""

    def least_samples(self, x: Arrays) -> int:
        """See `Model.least_samples`; tried on the first of a few samples. The state does not change."""

    def outputs(self, x: Arrays) -> Outputs:
        """The outputs for a few samples; builds the model."""

    def move_into(self, weights: np.ndarray) -> None:
        """Copies the trainable arrays into `weights`, (layout.size,) float32, which hold their values from then on."""

    def current(self) -> Any:
        """The framework's own model, with the current weights."""

    def save(self, path: Path) -> Path:
        """Writes the model to `path` with the framework's suffix; returns the file. Atomic."""

    def save_weights(self, path: Path) -> Path:
        """Writes only the weights; returns the file. Atomic."""

    def line_to_load(self, file: Path, name: str) -> str:
        """The line of Python that loads the weights in `file` into the variable `name`."""

    def parts(self, flat: Any) -> list[Any]:
        """The trainable arrays in `flat`, as tensors."""

    def forward(self, parts: list[Any], x: Tensors, training: bool, is_updated: bool) -> tuple[Tensors, Any]:
        """A forward pass: outputs and penalty. Moving means and variances are updated only if `is_updated`."""

    def loss(self, wanted: Component, output: Shape, labels: np.ndarray) -> tuple[Loss, LabelRule | None]:
        """A function of (labels, output) for the mean loss of a batch, and what it requires of labels."""

    def with_gradients(self, function: Callable[[], Any], parts: Sequence[list[Any]]) -> tuple[Any, list[list[Any]]]:
        """(losses, further results) of `function`, and the gradient of each loss with respect to its arrays.

        Args:
            parts: The arrays of each model; an empty list for a model without a loss.
        """

    def compile(self, function: Callable[..., Any], example: Example, weights: np.ndarray) -> Callable[..., Any]:
        """Converts a function of (flat weights, x, y), with tensors, to a function of (x, y), with NumPy arrays.

        Raises:
            ModelError: Models, loss and data do not fit together.
        """

    def optimizer(self, wanted: Component) -> UpdateRule:
        """An optimizer of the framework for the trainable arrays; after `move_into`."""

    def close(self) -> None:
        """Releases what the framework holds. The object of `current` stays usable; that of PyTorch on the CPU."""
