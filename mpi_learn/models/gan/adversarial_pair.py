"""A generator and a discriminator as one model, as the section ``gan:`` describes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_learn.data.samples.stored_samples import AddedInput
from mpi_learn.errors import ModelError
from mpi_learn.models.building.frameworks import framework_of
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.models.gan.model import DISCRIMINATOR, GENERATOR, NAMES, GanModel
from mpi_learn.models.gan.section import GanSection
from mpi_learn.models.model import Composition, Model, Part
from mpi_learn.models.network import Network
from mpi_learn.models.settings import Example, ModelSettings
from mpi_learn.optimizers.configuration import AnyOptimizer
from mpi_learn.settings.component import component
from mpi_learn.settings.user_code import is_function
from mpi_learn.settings.validation import InvalidValue


class AdversarialPair(Composition):
    """The discriminator and the generator, each with its own optimizer."""

    key = "gan"
    loss_names = tuple(f"{name}_loss" for name in NAMES)

    def __init__(self, section: GanSection) -> None:
        self.section = section

    def check(self, configuration: ModelConfiguration, *, compression: str, accumulate: int) -> None:
        metrics = configuration.metrics
        rules = (
            (
                is_function(configuration.model),
                "gan needs a function that returns two models",
                "write `model: file.py:function`, which returns {generator: …, discriminator: …}",
            ),
            (configuration.loss is not None, "gan needs a loss for the discriminator's outputs", "write `loss: …`"),
            (
                isinstance(metrics, list) and all(component(metric).is_custom for metric in metrics),
                "with gan, metrics compare real and generated samples",
                "write each as a file.py:function of (real, generated), or leave metrics out",
            ),
            (
                compression not in ("top-k", "power-sgd"),
                f"gan does not support compression: {compression}, which would send gradients of a model that rests",
                "write `compression: float16`, or leave it out",
            ),
            (
                accumulate == 1 or self.section.exchange == "batch",
                "gan with accumulate needs `exchange: batch`: with `model` the two models take turns",
                "write `exchange: batch`, or leave accumulate out",
            ),
        )
        for is_met, problem, cure in rules:
            if not is_met:
                raise InvalidValue(problem, cure)

    def models_of(self, built: Any, settings: ModelSettings) -> Mapping[str, Any]:
        is_pair = isinstance(built, dict) and set(built) == {DISCRIMINATOR, GENERATOR}
        kinds = {framework_of(model) for model in built.values()} if is_pair else {None}
        if len(kinds) > 1 or None in kinds:
            shown = f"a mapping of {', '.join(map(str, built))}" if isinstance(built, dict) else type(built).__name__
            raise ModelError(
                f"expected two models, both of Keras or both of PyTorch, it returned {shown}",
                where=settings.configuration.model,
                cure='return {"generator": …, "discriminator": …}',
            )
        return dict(built)

    def compose(
        self, models: Mapping[str, Any], as_network: Callable[[Any], Network], settings: ModelSettings, example: Example
    ) -> Model:
        networks = {name: as_network(model) for name, model in models.items()}
        return GanModel(networks, self.section, settings.configuration, example)

    def parts(self, optimizer: AnyOptimizer) -> list[Part]:
        section, turns = self.section, self.section.turns
        own = {name: getattr(section, f"{name}_optimizer") for name in NAMES}
        return [
            Part("optimizer" if options is None else f"gan.{name}_optimizer", options or optimizer, share)
            for (name, options), share in zip(
                own.items(), (sum(of_model) / len(turns) for of_model in zip(*turns, strict=True)), strict=True
            )
        ]

    def added_input(self, seed: int) -> AddedInput:
        section = self.section
        return Noise(seed, section.latent, section.turns_per_batch, is_normal=section.noise == "normal")


WORDS_PER_BLOCK = 8
"""Philox (Salmon et al. 2011) yields 256 random bits for each value of its counter: eight 32-bit words."""


@dataclass(frozen=True)
class Noise:
    """Random numbers for each sample.

    Attributes:
        seed: The seed of the training.
        size: Numbers per sample and turn.
        turns: The number of uses of each batch, each time with different noise.
        is_normal: Whether the noise is standard normal; otherwise it is uniform in [-1, 1].
        name: See `AddedInput`.
    """

    seed: int
    size: int
    turns: int = 1
    is_normal: bool = True
    name: str = "noise"

    def draw(self, epoch: int, first: int, n: int) -> np.ndarray:
        """Noise of `n` samples from position `first` on in the order of an epoch, shape (turns, n, size), float32."""
        wanted = self.turns * self.size
        n_blocks = -(-wanted // WORDS_PER_BLOCK)
        generator = np.random.Philox(key=[self.seed, epoch + 1])
        generator.advance(first * n_blocks)
        words = generator.random_raw(n * n_blocks * WORDS_PER_BLOCK // 2).view(np.uint32)
        uniform = ((words >> 8).astype(np.float32) + 0.5) * np.float32(2**-24)
        found = self._shaped(uniform.reshape(n, n_blocks * WORDS_PER_BLOCK))[:, :wanted]
        return np.ascontiguousarray(found.reshape(n, self.turns, self.size).swapaxes(0, 1))

    def _shaped(self, uniform: np.ndarray) -> np.ndarray:
        """Converts uniform numbers in (0, 1] to the distribution; to normal ones by Box & Muller (1958)."""
        if not self.is_normal:
            return 2 * uniform - 1
        half = uniform.shape[1] // 2
        radius = np.sqrt(-2 * np.log(uniform[:, :half]))
        angle = np.float32(2 * math.pi) * uniform[:, half:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], 1)
