"""What a model is built with: its settings, and a few samples, which show the shapes, dtypes and names of its data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_learn.models.configuration import ModelConfiguration

if TYPE_CHECKING:  # a command that only reads a configuration loads no MPI
    from mpi_learn.mpi.communicators import Communicator

Arrays = Sequence[np.ndarray]
Tensors = Sequence[Any]
"""Arrays of a framework."""


@dataclass(frozen=True)
class ModelSettings:
    """The settings from which the model of a rank is built.

    Attributes:
        configuration: The keys of the configuration.
        stream: The stream of random numbers of dropout and noise, a different one on each rank.
        n_workers: Number of gradients of different samples that are combined in a step.
        has_optimizer: Whether the configuration names an optimizer.
        is_validated: Whether there are validation data.
        has_checkpoint: Whether the training may be resumed.
        is_part: Whether the user's function returns several models, of which this is one.
        chain: The ranks that hold the stages of this model, in order; None if this rank holds all of it.
    """

    configuration: ModelConfiguration
    stream: int = 0
    n_workers: int = 1
    has_optimizer: bool = True
    is_validated: bool = True
    has_checkpoint: bool = False
    is_part: bool = False
    chain: Communicator | None = None


@dataclass(frozen=True)
class Example:
    """Some samples.

    Attributes:
        x: One array per input, the first axis being the samples.
        y: One array per label.
        weights: One array of sample weights, one for each of `weight_names`, or none.
        x_names, y_names: The names that the data configuration gives to `x` and `y`; empty if it gives none.
        weight_names: The outputs to which the arrays of `weights` belong; empty for one array for all outputs.
    """

    x: Arrays
    y: Arrays
    weights: Arrays = ()
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    weight_names: tuple[str, ...] = ()

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
        return replace(self, x=x, y=y, weights=weights)


def named(values: Sequence[Any], names: Sequence[str]) -> Any:
    """`values` as user code receives them: a mapping if there are names, else the only value, a list, or None."""
    if names:
        return dict(zip(names, values, strict=True))
    return values[0] if len(values) == 1 else list(values) or None
