"""Which loss, metrics and labels belong to which output of a model, and whether the labels are possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_learn.errors import ConfigurationError, DataError, ModelError
from mpi_learn.settings.component import Component, Named, component

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Outputs:
    """The outputs of a model, flat.

    Attributes:
        shapes: With the batch first; None is any length.
        names: One per output; empty if the model has no names for them.
        is_mapping: Whether the model returns them by name, in no particular order.
    """

    shapes: tuple[Shape, ...]
    names: tuple[str, ...] = ()
    is_mapping: bool = False

    def __len__(self) -> int:
        return len(self.shapes)

    def named_by(self, *mappings: object) -> Outputs:
        """The same; outputs in an order, but without names, take them from the first complete mapping."""
        for mapping in mappings:
            if not self.names and isinstance(mapping, dict) and len(mapping) == len(self):
                return Outputs(self.shapes, tuple(mapping))
        return self

    def spread(self, value: Any, where: str) -> list[Any]:
        """One entry per output from a value for all of them, a list or a mapping; None where there is none.

        Raises:
            ConfigurationError: A list of another length, or a name that no output has.
        """
        if isinstance(value, dict):
            names = self.names or (tuple(value) if len(self) == 1 else ())
            if unknown := [name for name in value if name not in names]:
                raise ConfigurationError(
                    f"the model has no output {unknown[0]}",
                    where=where,
                    cure=f"its outputs are: {', '.join(names)}"
                    if names
                    else "its outputs have no names: write a list, in their order",
                )
            return [value.get(name) for name in names]
        if not isinstance(value, list):
            return [value] * len(self)
        if self.is_mapping and len(self) > 1:
            raise self._without_order(where)
        if len(value) != len(self):
            raise ConfigurationError(f"{len(value)} entries for a model with {len(self)} outputs", where=where)
        return value

    def losses(self, loss: Any) -> list[Component | None]:
        """The loss of each output."""
        return [None if one is None else component(one) for one in self.spread(loss, "loss")]

    def metrics(self, metrics: Any, where: str = "metrics") -> list[list[Component]]:
        """The metrics of each output; a plain list belongs to the only output."""
        if isinstance(metrics, dict):
            return [list(map(component, ones or [])) for ones in self.spread(metrics, where)]
        if metrics and len(self) > 1:
            example = self.names or ("energy", "kind")
            raise ConfigurationError(
                f"the model has {len(self)} outputs, and these metrics do not say which of them they measure",
                where=where,
                cure=f"write a mapping: {{{', '.join(f'{name}: [mae]' for name in example[:2])}}}",
            )
        return [list(map(component, metrics))] + [[] for _ in range(len(self) - 1)]

    def labels(self, names: Sequence[str], n_labels: int, losses: Sequence[Component | None]) -> list[int | None]:
        """The number of the label of each output; None for an output without one.

        Labels with names are matched by name, others by order: one per output, or one per output with a loss.

        Raises:
            ModelError: They cannot be matched.
        """
        wanted = [number for number, loss in enumerate(losses) if loss is not None]
        if len(self) == 1 == n_labels:
            return [0]
        if names and (self.names or n_labels > 1):
            if not set(names) <= set(self.names):
                raise ModelError(
                    f"the labels are named {', '.join(names)}, the model's outputs "
                    f"{', '.join(self.names) or 'have no names'}",
                    where="data.labels",
                    cure="use the names of the outputs" if self.names else "write a list, in the order of the outputs",
                )
            places = {name: number for number, name in enumerate(names)}
            found = [places.get(name) for name in self.names]
        elif self.is_mapping and n_labels:
            raise self._without_order("data.labels")
        elif n_labels in (len(self), len(wanted)):
            order = range(len(self)) if n_labels == len(self) else wanted
            found = [order.index(number) if number in order else None for number in range(len(self))]
        else:
            raise ModelError(
                f"the model has {len(self)} outputs, the data have labels for {n_labels}",
                where="data.labels",
                cure="give a label for each output, or `loss: {NAME: …}` for those that have labels",
            )
        if lacking := [number for number in wanted if found[number] is None]:
            name = self.names[lacking[0]] if self.names else f"number {lacking[0]}"
            raise ModelError(f"the output {name} has a loss but no label", where="data.labels")
        return found

    def _without_order(self, where: str) -> ConfigurationError:
        return ConfigurationError(
            f"the model returns its outputs by name ({', '.join(self.names)}), which have no order",
            where=where,
            cure=f"write a mapping: {{{', '.join(f'{name}: …' for name in self.names)}}}",
        )


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

    @property
    def n_classes(self) -> int | None:
        """The number of classes, if labels are class numbers."""
        return None if self.class_axis is None else self.output[self.class_axis]

    def check_shape(self, labels: np.ndarray) -> None:
        """Raises ModelError unless labels of this shape and kind fit the output."""
        expected, found = self.output[1:], labels.shape[1:]
        if self.class_axis is not None:
            axes = [axis for axis in range(len(self.output)) if axis not in (0, self.class_axis % len(self.output))]
            expected = tuple(self.output[axis] for axis in axes)
            possible = [expected, (*expected, 1)]
            cure = "use categorical_crossentropy for one-hot labels" if found == self.output[1:] else ""
            if labels.dtype.kind == "f" and found in possible and self.class_axis == 1:
                cure, possible = "class numbers must be stored as integers", []
        elif self.is_elementwise:
            possible = [expected, expected[:-1] if expected and expected[-1] == 1 else expected]
            is_class_number = found == () and self.loss.startswith("categorical")
            cure = "use sparse_categorical_crossentropy for class numbers" if is_class_number else ""
        else:
            return
        if found not in possible and None not in self.output[1:]:
            raise ModelError(
                f"with {self.loss} the model's output of shape {self.output[1:]} needs labels of shape {expected} per "
                f"sample, the data have {found}",
                where="data.labels",
                cure=cure,
            )

    def check_weights(self, weights: np.ndarray) -> None:
        """Raises ModelError unless Keras can multiply the losses, one per entry of the output, by these weights."""
        if self.class_axis is None and not self.is_elementwise:
            return
        entries, found = self.output[1:-1], weights.shape[1:]
        if not any(_fits(one, other) for one in _squeezed(entries) for other in _squeezed(found)):
            raise ModelError(
                f"the data have weights of shape {found} per sample, {self.loss} has losses of shape {entries}",
                where="data.weights",
                cure=f"store weights of shape {(1,) * len(entries)} or {entries} per sample",
            )

    def check_range(self, labels: np.ndarray) -> None:
        """Raises DataError if one of `labels` (all of them, not a few) is impossible."""
        if self.ignored is not None:
            labels = labels[labels != self.ignored]
        if not labels.size:
            return
        low, high = labels.min(), labels.max()
        n = self.n_classes
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
                cure="use sparse_categorical_crossentropy for more than two classes",
            )


def _squeezed(shape: Shape) -> list[Shape]:
    """The shape, and the same without a last axis of length 1."""
    return [shape, shape[:-1]] if shape[-1:] == (1,) else [shape]


def _fits(entries: Shape, weights: Shape) -> bool:
    """Whether weights of this shape can be multiplied with so many entries."""
    return len(entries) == len(weights) and all(n is None or m in (1, n) for n, m in zip(entries, weights, strict=True))


def check_ranges(rules: Sequence[LabelRule | None], places: Sequence[int | None], y: Sequence[np.ndarray]) -> None:
    """`LabelRule.check_range` for every output that has a rule and a label."""
    for rule, place in zip(rules, places, strict=True):
        if rule is not None and place is not None:
            rule.check_range(y[place])


def key_of(outputs: Outputs, index: int, wanted: Named) -> str:
    """The name of a metric in the history: with the output's name before it if there are several outputs."""
    key = component(wanted).key
    return f"{outputs.names[index]}_{key}" if outputs.names and (len(outputs) > 1 or outputs.is_mapping) else key
