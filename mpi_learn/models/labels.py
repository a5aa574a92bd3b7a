"""The losses of a model's outputs, and checks of the labels that they accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from mpi_learn.errors import DataError, ModelError
from mpi_learn.models.outputs import Outputs, Shape
from mpi_learn.models.settings import Example
from mpi_learn.settings.component import Component

LossType = TypeVar("LossType")

OF_SHAPES = "change the last layer of the model, or name other labels"


@dataclass(frozen=True)
class LabelRule:
    """The labels that a loss accepts for one output.

    Attributes:
        loss: Its name, for messages.
        output: The shape of the output, batch first.
        class_axis: The axis of the output along which the classes are, if labels are class numbers.
        is_elementwise: Whether labels have the shape of the output.
        is_probability: Whether labels must be between 0 and 1.
        ignored: A class number that the loss ignores.
    """

    loss: str
    output: Shape
    class_axis: int | None = None
    is_elementwise: bool = False
    is_probability: bool = False
    ignored: int | None = None

    def check_shape(self, labels: np.ndarray) -> None:
        """Raises ModelError unless labels of this shape and kind fit the output."""
        expected, shape = self.output[1:], labels.shape[1:]
        if self.class_axis is not None:
            axis = self.class_axis % len(self.output)
            expected = (*self.output[1:axis], *self.output[axis + 1 :])
            possible = [expected, (*expected, 1)]
            cure = "use categorical_crossentropy for one-hot labels" if shape == self.output[1:] else OF_SHAPES
            # classes are on axis 1 in PyTorch, which refuses class numbers of another type; Keras converts them
            if labels.dtype.kind == "f" and shape in possible and self.class_axis == 1:
                raise ModelError(
                    f"with {self.loss} class numbers must be integers, the data have {labels.dtype}",
                    where="data.labels",
                    cure="store them as integers; for labels y, dtype: {y: int64} in the section data converts them",
                )
        elif self.is_elementwise:
            possible = [expected, expected[:-1] if expected and expected[-1] == 1 else expected]
            is_class_number = shape == () and self.loss.startswith("categorical")
            cure = "use sparse_categorical_crossentropy for class numbers" if is_class_number else OF_SHAPES
        else:
            return
        # a length that is known only for a batch (None) cannot be compared; the framework raises an error if it differs
        if shape not in possible and None not in self.output[1:]:
            raise ModelError(
                f"with {self.loss} the model's output of shape {self.output[1:]} needs labels of shape {expected} per "
                f"sample, the data have {shape}",
                where="data.labels",
                cure=cure,
            )

    def check_weights(self, weights: np.ndarray) -> None:
        """Raises ModelError if Keras cannot multiply the losses by these weights: their shapes per sample differ.

        There is one loss for each entry of the output without its last axis.
        """
        if self.class_axis is None and not self.is_elementwise:
            return
        entries, shape = self.output[1:-1], weights.shape[1:]
        if not any(_fits(one, other) for one in _squeezed(entries) for other in _squeezed(shape)):
            raise ModelError(
                f"the data have weights of shape {shape} per sample, {self.loss} has losses of shape {entries}",
                where="data.weights",
                cure=f"store weights of shape {(1,) * len(entries)} or {entries} per sample",
            )

    def check_range(self, labels: np.ndarray) -> None:
        """Raises DataError if one of `labels` is not a class of the output, or not a probability if it must be one."""
        if self.ignored is not None:
            labels = labels[labels != self.ignored]
        if not labels.size:
            return
        # on a GPU, TensorFlow (2.21) returns NaN, and after an assertion of PyTorch (2.13) the device is unusable
        low, high = labels.min(), labels.max()
        n = None if self.class_axis is None else self.output[self.class_axis]
        if n is not None and (low < 0 or high >= n):
            raise DataError(
                f"label {int(low if low < 0 else high)} is outside of the model's {n} classes 0…{n - 1}",
                where="data.labels",
                cure=f"give the model at least {int(high) + 1} outputs" if low >= 0 else "number the classes from 0",
            )
        if self.is_probability and (low < 0 or high > 1):
            raise DataError(
                f"{self.loss} needs labels from 0 to 1, found {low}…{high}",
                where="data.labels",
                cure="write 0 and 1 for two classes: labels: {names: NAME, function: file.py:function} converts them"
                if low < 0
                else "use sparse_categorical_crossentropy for more than two classes",
            )


def _squeezed(shape: Shape) -> list[Shape]:
    """The shape, and the same without a last axis of length 1."""
    return [shape, shape[:-1]] if shape[-1:] == (1,) else [shape]


def _fits(entries: Shape, weights: Shape) -> bool:
    """Whether weights of shape `weights` can be multiplied with entries of shape `entries`."""
    return len(entries) == len(weights) and all(n is None or m in (1, n) for n, m in zip(entries, weights, strict=True))


@dataclass(frozen=True)
class OutputLosses(Generic[LossType]):
    """The loss of each output of a model.

    Attributes:
        losses: One per output; None for an output without one.
        rules: What the losses require of their labels; None if that is not known.
        labels: The number of the label of each output; None for an output without one.
        may_be_sums: Whether a loss may be a sum over the batch: the user's, or one with a `reduction`.
    """

    losses: Sequence[LossType | None]
    rules: Sequence[LabelRule | None]
    labels: Sequence[int | None]
    may_be_sums: bool

    def check_labels(self, y: Sequence[np.ndarray]) -> None:
        """Raises DataError if a label of `y` (one array per label, all samples) is impossible."""
        for rule, label in zip(self.rules, self.labels, strict=True):
            if rule is not None and label is not None:
                rule.check_range(y[label])

    def check_weights(self, weights: Sequence[np.ndarray | None]) -> None:
        """Raises ModelError if Keras cannot multiply every loss by `weights`, one array or None for each output."""
        for rule, array in zip(self.rules, weights, strict=True):
            if rule is not None and array is not None:
                rule.check_weights(array)


MakeLoss = Callable[[Component, Shape, np.ndarray], tuple[LossType, LabelRule | None]]
"""(name and arguments, shape of the output, labels of a few samples) -> loss of a framework, and its rule."""


def output_losses(outputs: Outputs, loss: Any, example: Example, make: MakeLoss[LossType]) -> OutputLosses[LossType]:
    """The losses that the configuration names, checked on the labels of a few samples.

    Raises:
        ConfigurationError, ModelError, DataError: There is no such loss, or it does not fit outputs and labels.
    """
    components = outputs.losses(loss)
    labels = outputs.labels(example.y_names, len(example.y), components)
    losses: list[LossType | None] = [None] * len(outputs)
    rules: list[LabelRule | None] = [None] * len(outputs)
    for index, (wanted, label) in enumerate(zip(components, labels, strict=True)):
        if wanted is not None and label is not None:
            losses[index], rule = make(wanted, outputs.shapes[index], example.y[label])
            if rule is not None:
                rule.check_shape(example.y[label])
            rules[index] = rule
    given = [wanted for wanted in components if wanted is not None]
    may_be_sums = any(wanted.is_custom or "reduction" in wanted.arguments for wanted in given)
    of_outputs = OutputLosses(losses, rules, labels, may_be_sums)
    of_outputs.check_labels(example.y)
    return of_outputs
