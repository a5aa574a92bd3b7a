"""Settings of models: function and arguments, losses and metrics, precision, and the section ``gan:``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from mpi_learn.settings.component import Named, shown_arguments
from mpi_learn.settings.section import Section, as_list

Framework = Literal["auto", "keras", "torch"]
Losses = Annotated[Named | list[Named | None] | dict[str, Named | None] | None, Field(union_mode="left_to_right")]
Metrics = list[Named] | dict[str, list[Named]]
LossWeights = list[float] | dict[str, float] | None


@dataclass(frozen=True)
class ModelSettings:
    """The settings from which the model of a rank is built.

    Attributes:
        model: ``file.py:function``, ``package.module:function``, or a .keras or .json file.
        parameters: The function's arguments.
        loss: By output; None: the model computes its own.
        metrics, weighted_metrics: By output; the latter are weighted with the sample weights.
        loss_weights: Factors of the losses, by output; None is 1 for all.
        framework: What the function must return; ``auto`` accepts both.
        gan: The section ``gan:``, if the function returns two models that train each other.
        precision: ``float32`` or ``mixed_bfloat16`` (16-bit activations, float32 weights).
        gradient_checkpointing: Whether activations are recomputed in the backward pass to save memory.
        seed: Seed of the initial weights; the same seed gives the same weights on every rank.
        stream: The stream of random numbers of dropout and noise, a different one on each rank.
        n_workers: Number of ranks whose gradients are combined.
        has_optimizer: Whether the configuration names an optimizer.
        is_validated: Whether there are validation data.
        has_checkpoint: Whether the training may be resumed.
    """

    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    loss: Losses = None
    metrics: Metrics = field(default_factory=list)
    weighted_metrics: Metrics = field(default_factory=list)
    loss_weights: LossWeights = None
    framework: Framework = "auto"
    gan: Gan | None = None
    precision: str = "float32"
    gradient_checkpointing: bool = False
    seed: int = 0
    stream: int = 0
    n_workers: int = 1
    has_optimizer: bool = True
    is_validated: bool = True
    has_checkpoint: bool = False

    @property
    def call(self) -> str:
        """The lines of Python that build the model: ``model = build_model(units=64)``."""
        source, _, name = self.model.rpartition(":")
        module = Path(source).stem if source.endswith(".py") else source
        return f"from {module} import {name}\nmodel = {name}({shown_arguments(dict(self.parameters))})"


class Turn(NamedTuple):
    """Which of two models are updated in one step of a training; a model that is not updated keeps its weights."""

    discriminator: bool
    generator: bool


class Steps(Section):
    """``steps:`` updates of each model in a round."""

    discriminator: int = Field(1, ge=1, description="Updates of the discriminator in a round.")
    generator: int = Field(1, ge=1, description="Updates of the generator in a round.")


class Gan(Section):
    """``gan:`` `model` returns a generator and a discriminator that train each other (Goodfellow et al. 2014)."""

    latent: int = Field(64, ge=1, description="Size of the noise vector from which the generator makes one sample.")
    noise: Literal["normal", "uniform"] = Field(
        "normal", description="Distribution of the noise: mean 0 and variance 1, or uniform in [-1, 1]."
    )
    steps: Steps = Field(Steps(), description="Updates of each model in a round.")
    exchange: Literal["model", "batch"] = Field(
        "model",
        description="model: with each batch the discriminator makes its steps, then the generator, and ranks exchange "
        "after each step. batch: one exchange per batch; both models are updated at once, and the model with fewer "
        "steps is not updated in some batches.",
    )
    condition: Annotated[list[Literal["generator", "discriminator"]], BeforeValidator(as_list)] = Field(
        [], description="Models that take the labels as further inputs (Mirza & Osindero 2014)."
    )
    smoothing: float = Field(
        0.0, ge=0, lt=1, description="The discriminator's target for real samples is 1 minus this."
    )
    loss_weights: list[float] | None = Field(
        None, description="A factor for the loss of each output of the discriminator; null is 1 for all."
    )

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The models that are updated in each step of a round."""
        n_discriminator, n_generator = self.steps.discriminator, self.steps.generator
        if self.exchange == "model":
            return (Turn(True, False),) * n_discriminator + (Turn(False, True),) * n_generator
        n = max(n_discriminator, n_generator)
        return tuple(Turn(i >= n - n_discriminator, i >= n - n_generator) for i in range(n))

    @property
    def turns_per_batch(self) -> int:
        """The number of steps made with each batch."""
        return len(self.turns) if self.exchange == "model" else 1
