"""What ``gan:`` may say, and how models are computed."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Computing(NamedTuple):
    """How a framework computes with a model.

    Attributes:
        precision: ``float32``, or ``mixed_bfloat16``: 16 bits where the framework finds it safe, float32 weights.
        gradient_checkpointing: Whether activations are computed again in the backward pass, to save memory.
    """

    precision: str = "float32"
    gradient_checkpointing: bool = False


PLAIN = Computing()
"""As the framework does by itself."""


class Turn(NamedTuple):
    """Which of the two models moves in one step of a training; the other rests."""

    discriminator: bool
    generator: bool


class Steps(BaseModel):
    """``steps:`` how often each of the two models moves."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    discriminator: int = Field(1, ge=1, description="Updates of the discriminator in a round.")
    generator: int = Field(1, ge=1, description="Updates of the generator in a round.")


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Gan(BaseModel):
    """``gan:`` `model` returns a generator and a discriminator, which train each other (Goodfellow et al. 2014)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    latent: int = Field(64, ge=1, description="Numbers of noise that the generator makes a sample of.")
    noise: Literal["normal", "uniform"] = Field(
        "normal", description="How they are distributed: mean 0 and variance 1, or evenly in [-1, 1]."
    )
    steps: Steps = Field(Steps(), description="How often each model moves.")
    exchange: Literal["model", "batch"] = Field(
        "model",
        description="model: with each batch first the discriminator makes its steps, then the generator, and ranks "
        "exchange after each. batch: one exchange a batch; whoever moves does so at once, and the model with fewer "
        "steps rests in some batches.",
    )
    condition: Annotated[list[Literal["generator", "discriminator"]], BeforeValidator(_listed)] = Field(
        [], description="Which models take the labels as further inputs (Mirza & Osindero 2014)."
    )
    smoothing: float = Field(
        0.0, ge=0, lt=1, description="The discriminator learns to answer 1 minus this to real samples."
    )
    loss_weights: list[float] | None = Field(
        None, description="A factor for the loss of each output of the discriminator; null is 1 for all."
    )

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Who moves in which step of a round, after which the next round begins."""
        n_discriminator, n_generator = self.steps.discriminator, self.steps.generator
        if self.exchange == "model":
            return (Turn(True, False),) * n_discriminator + (Turn(False, True),) * n_generator
        n = max(n_discriminator, n_generator)
        return tuple(Turn(i >= n - n_discriminator, i >= n - n_generator) for i in range(n))

    @property
    def turns_per_batch(self) -> int:
        """How many steps are made with each batch."""
        return len(self.turns) if self.exchange == "model" else 1
