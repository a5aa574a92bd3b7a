"""The section ``gan:`` of a ``training.yaml``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from mpi_learn.optimizers.configuration import OptimizerConfiguration
from mpi_learn.settings.component import with_absolute_paths
from mpi_learn.settings.validation import Section, as_list


class Turn(NamedTuple):
    """Which of two models are updated in one step of a training; a model that is not updated keeps its weights."""

    discriminator: bool
    generator: bool


class Steps(Section):
    """``steps:`` updates of each model in a round."""

    discriminator: int = Field(1, ge=1, description="Updates of the discriminator in a round.")
    generator: int = Field(1, ge=1, description="Updates of the generator in a round.")


class GanSection(Section):
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

    discriminator_optimizer: OptimizerConfiguration | None = Field(None, description="null: the same as `optimizer`.")
    generator_optimizer: OptimizerConfiguration | None = Field(None, description="null: the same as `optimizer`.")

    def with_absolute_paths(self, directory: Path) -> GanSection:
        """The same with absolute paths of Python files."""
        keys = ("discriminator_optimizer", "generator_optimizer")
        return self.model_copy(update=with_absolute_paths({key: getattr(self, key) for key in keys}, directory))

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
