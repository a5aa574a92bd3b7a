"""Assigns losses, metrics and labels to the outputs of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.models.configuration import Metrics
from mpi_learn.settings.component import Component, component

Shape = tuple[int | None, ...]


def shown(shapes: Iterable[Shape]) -> str:
    """Shapes for a message: ``(3,) and (8, 8)``."""
    return " and ".join(map(str, shapes))


def names_in_history(names: Iterable[str]) -> list[str]:
    """The names of metrics; as in Keras, a name that is already taken gets a number: ``f1``, ``f1_1``."""
    n_taken, found = Counter(["loss"]), []
    for name in names:
        found.append(f"{name}_{n_taken[name]}" if n_taken[name] else name)
        n_taken[name] += 1
    return found


def possible_names(metrics: Metrics, weighted_metrics: Metrics) -> list[str]:
    """The names of configured metrics in the history, before the model is known.

    The name of a single output in a mapping is a prefix only for some models; both names are in the result.
    """
    kinds = (metrics, weighted_metrics)
    has_one_output = len({output for kind in kinds if isinstance(kind, dict) for output in kind}) == 1
    names = _configured_names(kinds, has_prefix=True)
    return names + (_configured_names(kinds, has_prefix=False) if has_one_output else [])


def _configured_names(kinds: tuple[Metrics, Metrics], has_prefix: bool) -> list[str]:
    names: list[str] = []
    for kind, mark in zip(kinds, ("", "weighted_"), strict=True):  # the prefix is added only if the plain name is taken
        for output, of_output in (kind if isinstance(kind, dict) else {"": kind}).items():
            prefix = f"{output}_" if output and has_prefix else ""
            for key in (component(metric).key for metric in of_output):
                names.append(f"{prefix}{mark if prefix + key in names else ''}{key}")
    return names_in_history(names)


@dataclass(frozen=True)
class Outputs:
    """The outputs of a model, flat.

    Attributes:
        shapes: With the batch first; None is any length.
        names: One per output; empty if the model has no names for them.
        is_mapping: Whether the model returns them by name, in no particular order.
        owner: The model, for messages.
    """

    shapes: tuple[Shape, ...]
    names: tuple[str, ...] = ()
    is_mapping: bool = False
    owner: str = "the model"

    def __len__(self) -> int:
        return len(self.shapes)

    def named_by(self, *mappings: object) -> Outputs:
        """The same outputs; without names, they take those of the first mapping with one entry per output."""
        for mapping in mappings:
            if not self.names and isinstance(mapping, dict) and len(mapping) == len(self):
                return replace(self, names=tuple(mapping))
        return self

    def by_output(self, value: Any, where: str) -> list[Any]:
        """One entry per output from a value for all of them, a list or a mapping; None where there is none.

        Raises:
            ConfigurationError: A list of another length, or a name that no output has.
        """
        if isinstance(value, dict):
            if len(self) == 1 < len(value) and not self.names:
                raise ConfigurationError(
                    f"{self.owner} has one output, found entries for {len(value)}: {', '.join(value)}",
                    where=where,
                    cure="write one entry, or return a mapping of outputs from the model",
                )
            # a single output without a name is meant whatever its name in the mapping is
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
        if self.is_mapping and len(self) > 1:  # a list would be assigned in the alphabetical order of the outputs
            raise self.without_order(where)
        if len(value) != len(self):
            raise ConfigurationError(
                f"expected one entry per output of {self.owner}, {len(self)} in all, found {len(value)}",
                where=where,
                cure=f"write [{', '.join(['…'] * len(self))}]",
            )
        return value

    def factors(self, loss_weights: Any, where: str = "loss_weights") -> list[float]:
        """The factor of the loss of each output, 1 where there is none."""
        return [1.0 if factor is None else float(factor) for factor in self.by_output(loss_weights, where)]

    def losses(self, loss: Any) -> list[Component | None]:
        """The loss of each output."""
        return [None if entry is None else component(entry) for entry in self.by_output(loss, "loss")]

    def metrics(self, metrics: Any, where: str = "metrics") -> list[list[Component]]:
        """The metrics of each output; a plain list belongs to the only output."""
        if isinstance(metrics, dict):
            return [list(map(component, of_output or [])) for of_output in self.by_output(metrics, where)]
        if metrics and len(self) > 1:
            example = self.names or ("energy", "kind")
            raise ConfigurationError(
                f"the model has {len(self)} outputs, and these metrics do not say which of them they measure",
                where=where,
                cure=f"write a mapping: {{{', '.join(f'{name}: [mae]' for name in example[:2])}}}",
            )
        return [list(map(component, metrics))] + [[] for _ in range(len(self) - 1)]

    def name(self, index: int) -> str:
        """The name of an output, for messages."""
        return self.names[index] if self.names else f"number {index}"

    def key(self, index: int, wanted: Component) -> str:
        """The name of a metric in the history: with the output's name before it if there are several outputs."""
        has_prefix = self.names and (len(self) > 1 or self.is_mapping)
        return f"{self.names[index]}_{wanted.key}" if has_prefix else wanted.key

    def labels(self, names: Sequence[str], n_labels: int, losses: Sequence[Component | None]) -> list[int | None]:
        """The index of the label of each output; None for an output without one.

        Labels with names are matched by name, others by order: one per output, or one per output with a loss.

        Raises:
            ModelError: They cannot be matched.
        """
        wanted = [index for index, loss in enumerate(losses) if loss is not None]
        if len(self) == 1 == n_labels:  # nothing can be confused: names need not agree
            return [0]
        # names before order: two labels of the same shape in another order would train without an error
        if names and (self.names or n_labels > 1):
            if not set(names) <= set(self.names):
                raise ModelError(
                    f"the labels are named {', '.join(names)}, the model's outputs "
                    f"{', '.join(self.names) or 'have no names'}",
                    where="data.labels",
                    cure="use the names of the outputs" if self.names else "write a list, in the order of the outputs",
                )
            places = {name: index for index, name in enumerate(names)}
            label_of_output = [places.get(name) for name in self.names]
        elif self.is_mapping and n_labels:
            raise self.without_order("data.labels")
        elif n_labels in (len(self), len(wanted)):
            # as many labels as outputs: one for each, also without a loss; fewer: only for outputs with a loss
            order = range(len(self)) if n_labels == len(self) else wanted
            label_of_output = [order.index(index) if index in order else None for index in range(len(self))]
        else:
            cure = "give a label for each output, or `loss: {NAME: …}` for those that have labels"
            raise ModelError(
                f"the model has {len(self)} output{'s' * (len(self) != 1)}, the data have labels for {n_labels}",
                where="data.labels",
                cure="name one label" if len(self) == 1 else cure,
            )
        if lacking := [index for index in wanted if label_of_output[index] is None]:
            raise ModelError(
                f"the output {self.name(lacking[0])} has a loss but no label",
                where="data.labels",
                cure="add its label, or leave its loss out",
            )
        return label_of_output

    def weights(self, names: Sequence[str], n_weights: int) -> list[int | None]:
        """The index of the sample weights of each output; None for an output without them.

        Args:
            names: The outputs to which the weights belong, one for each array; empty for one array for all outputs.

        Raises:
            ConfigurationError: There is no output of a name.
        """
        if not names:
            return [0 if n_weights else None] * len(self)
        found: list[int | None] = self.by_output({name: index for index, name in enumerate(names)}, "data.weights")
        return found

    def without_order(self, where: str) -> ConfigurationError:
        """The error to raise if entries of `where` are given in an order, but the outputs have none."""
        return ConfigurationError(
            f"the model returns its outputs by name ({', '.join(self.names)}), which have no order",
            where=where,
            cure=f"write a mapping: {{{', '.join(f'{name}: …' for name in self.names)}}}",
        )
