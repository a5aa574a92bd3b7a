"""The interface of a model that is several models: what a training knows of it besides `Model`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from mpi_learn.data.samples.added_input import AddedInput
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.models.model import Model
from mpi_learn.models.network import Network
from mpi_learn.models.settings import Example, ModelSettings
from mpi_learn.optimizers.configuration import AnyOptimizer


class Part(NamedTuple):
    """The optimizer of one part of a model, in the order of `FlatLayout.by_model`.

    Attributes:
        key: The key of the configuration that holds it.
        optimizer: Its options.
        share: The fraction of the steps that update this part.
    """

    key: str
    optimizer: AnyOptimizer
    share: float = 1.0


class Composition(ABC):
    """How several models of a framework are trained as one: a section of the configuration decides it.

    Loop, algorithms and data see one `Model` with one vector. A GAN holds both models on every rank, with an optimizer
    for each. Of a model in stages, each rank holds one stage, with a single part.

    Attributes:
        key: The section of the configuration.
        loss_names: Names that it adds to the history.
    """

    key: ClassVar[str]
    loss_names: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def check(self, configuration: ModelConfiguration, *, compression: str, accumulate: int) -> None:
        """Raises InvalidValue if the configuration does not fit this kind of model.

        Args:
            compression: How the algorithm sends gradients.
            accumulate: Steps whose gradients it sums before they are exchanged.
        """

    def measured(
        self, settings: ModelSettings, example: Example, earlier: Sequence[int], n_samples: int
    ) -> Composition:
        """This composition with what the first rank measures for all; called there alone, for a model in stages.

        Args:
            earlier: `Model.layers_of_stages` of the training that continues; empty if there is none.
            n_samples: The largest number of samples in a micro-batch.
        """
        return self

    @abstractmethod
    def models_of(self, built: Any, settings: ModelSettings) -> Mapping[str, Any]:
        """The framework's models by name in what the user's function has returned.

        Raises:
            ModelError: It has returned something else.
        """

    @abstractmethod
    def compose(
        self, models: Mapping[str, Any], as_network: Callable[[Any], Network], settings: ModelSettings, example: Example
    ) -> Model:
        """The model of this rank; `as_network` converts those of `models` that the rank holds."""

    @abstractmethod
    def parts(self, optimizer: AnyOptimizer) -> list[Part]:
        """The parts of the vector with an optimizer each; `optimizer` is that of parts without one of their own."""

    @abstractmethod
    def added_input(self, seed: int) -> AddedInput | None:
        """An input of the models that no file contains."""
