"""The interface of a stage: the layers of a model that one rank holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.model import Model
from mpi_learn.models.network import Network
from mpi_learn.models.pipeline.split import Layer
from mpi_learn.models.settings import Arrays, Example, ModelSettings


class Stage(ABC):
    """Some consecutive layers of a model, with one float32 array of shape (n, …) between two stages.

    The gradient of a step is that of the sum over micro-batches of their mean loss times their weight.

    Attributes:
        network: The layers.
        layout: The trainable arrays as parts of `weights`, with counts.
        weights: (layout.size,) float32; see `Model.weights`.
        least_samples: The smallest micro-batch that the stage can be trained with.
        last: The model whose inputs are the activations of the stage before; it has loss and metrics. None unless this
            is the last stage.
    """

    network: Network
    layout: FlatLayout
    weights: np.ndarray
    least_samples: int = 1
    last: Model | None = None

    @abstractmethod
    def infer(self, x: Arrays) -> np.ndarray:
        """The activations in inference mode; not called on the last stage.

        Args:
            x: The inputs of the model, or the activations of the stage before.
        """

    @abstractmethod
    def begin(self, n_sums: int) -> None:
        """Begins a step: no micro-batch has passed yet.

        Args:
            n_sums: Number of sums behind the gradient, the same in all steps.
        """

    @abstractmethod
    def forward(self, micro_batch: int, x: Arrays, y: Arrays, weights: Arrays) -> np.ndarray | None:
        """A forward pass in training mode; keeps what the backward pass of this micro-batch needs.

        Args:
            x: As in `infer`.
            y, weights: Labels and sample weights; only the last stage uses them.

        Returns:
            The activations, which the next stage receives; None on the last stage.
        """

    @abstractmethod
    def backward(self, micro_batch: int, gradient: np.ndarray | None) -> np.ndarray | None:
        """The backward pass of a micro-batch.

        Args:
            gradient: With respect to the activations of this stage; None on the last stage.

        Returns:
            The gradient with respect to the activations of the stage before; None on the first stage.
        """

    @abstractmethod
    def sums(self) -> np.ndarray:
        """The sums of the forward passes of this step, (n_sums,) float64; zeros unless this is the last stage."""

    @abstractmethod
    def step(self, sums: np.ndarray) -> np.ndarray:
        """The step vector, (layout.size + n_sums,) float32: the gradient, counts, and `sums`."""

    @abstractmethod
    def values(self) -> list[np.ndarray]:
        """All arrays of the stage, trained or not, in the order in which the whole model has them."""


class StagesOfFramework(ABC):
    """How models of a framework are divided into stages and joined again."""

    @abstractmethod
    def layers(self, model: Any, x: Arrays) -> list[Layer]:
        """The layers of one sequential model, for `stage_bounds`.

        Args:
            x: The inputs of a few samples.

        Raises:
            ModelError: The model is not a sequence of layers.
        """

    @abstractmethod
    def seconds(self, model: Any, bounds: Sequence[int], example: Example, settings: ModelSettings) -> list[float]:
        """The times of a forward and a backward pass of the layers between `bounds`, in s. May change the model.

        Args:
            example: Its `x` are the inputs of a micro-batch.
        """

    @abstractmethod
    def part(self, model: Any, bounds: Sequence[int], index: int) -> Any:
        """Stage `index` of one sequential model, whose layers are divided at `bounds`.

        Raises:
            ModelError: The stage shares weights with another one.
        """

    @abstractmethod
    def check_separate(self, models: Sequence[Any]) -> None:
        """Raises ModelError if two of these stages share weights."""

    @abstractmethod
    def stage(self, model: Any, settings: ModelSettings, example: Example, *, is_first: bool, is_last: bool) -> Stage:
        """The stage of this rank.

        Args:
            example: A few samples; its `x` are the activations of the stage before, unless `is_first`.

        Raises:
            ModelError, ConfigurationError: It cannot be trained as a stage.
        """

    @abstractmethod
    def joined(self, models: Sequence[Any]) -> Any:
        """One model that calls these models one after the other; of a single one, this model."""

    @abstractmethod
    def whole(self, model: Any, settings: ModelSettings, example: Example) -> Model:
        """The model of a rank that holds all stages."""

    @abstractmethod
    def restored(self, model: Any, values: Sequence[np.ndarray], settings: ModelSettings, example: Example) -> Network:
        """A model with the `Stage.values` of all stages, for saving and predicting."""
