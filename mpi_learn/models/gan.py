"""What generative adversarial networks of every framework have in common (Goodfellow et al. 2014, algorithm 1).

The two models lie in one flat vector, the discriminator first. Behind each stands one number, which in a gradient says
of how many samples that model's part speaks: a model that rests has none there, and its optimizer does not move.

The discriminator's loss is the mean of its losses on real and on generated samples, the generator's that of the
discriminator taking what it made for real (the paper's "non-saturating" form). Further outputs of the discriminator
predict the labels, for both models (Odena, Olah & Shlens 2017).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.flat_layout import N_WORDS, FlatLayout
from mpi_learn.models.configuration import Gan, Turn
from mpi_learn.models.model import Arrays
from mpi_learn.settings.user_code import metric_key

DISCRIMINATOR, GENERATOR = "discriminator", "generator"
N_D, D_LOSS, N_G, G_LOSS = 2, 3, 4, 5
"""Where the sums hold the discriminator's samples and loss, and the generator's; metrics stand behind them."""
FIRST_GAN_METRIC = 6


def joint_layout(discriminator: FlatLayout, generator: FlatLayout) -> FlatLayout:
    """Both models in one vector, each with its number of samples behind it."""
    shapes = (*discriminator.shapes, (1,), *generator.shapes, (1,))
    return FlatLayout(shapes, (len(discriminator.shapes) + 1, len(generator.shapes) + 1))


class Rounds:
    """Whose turn it is, step after step.

    Attributes:
        place: Of the next step in its round; what a checkpoint must hold.
    """

    def __init__(self, turns: tuple[Turn, ...]) -> None:
        self.turns, self.place = turns, 0

    def next(self) -> Turn:
        """Who moves now."""
        turn = self.turns[self.place]
        self.place = (self.place + 1) % len(self.turns)
        return turn


class GanSums:
    """What of a step of two models adds up.

    Args:
        metrics: Functions of (real, generated) samples, ``file.py:function``.
    """

    def __init__(self, metrics: list[str]) -> None:
        self.keys = [metric_key(one) for one in metrics]
        self.n = FIRST_GAN_METRIC + len(self.keys) + N_WORDS

    def results(self, sums: np.ndarray) -> dict[str, float]:
        """Name -> value; the two losses over those steps in which their model moved, ``loss`` is their sum."""
        losses = [float(sums[loss]) / max(float(sums[n]), 1.0) for n, loss in ((N_D, D_LOSS), (N_G, G_LOSS))]
        found = {"loss": sum(losses), f"{DISCRIMINATOR}_loss": losses[0], f"{GENERATOR}_loss": losses[1]}
        values = sums[FIRST_GAN_METRIC:-N_WORDS] / max(float(sums[0]), 1.0)
        return found | dict(zip(self.keys, map(float, values), strict=True))


def check_pair(found: Any, kind: type, framework: str, specification: str) -> None:
    """Raises ModelError unless the user's function returned both models."""
    names = {DISCRIMINATOR, GENERATOR}
    if not isinstance(found, dict) or set(found) != names or not all(isinstance(one, kind) for one in found.values()):
        shown = f"a mapping of {', '.join(map(str, found))}" if isinstance(found, dict) else type(found).__name__
        raise ModelError(
            f"expected two {framework} models, it returned {shown}",
            where=specification,
            cure='return {"generator": …, "discriminator": …}',
        )


def check_generated(generated: list[tuple[int, ...]], x: Arrays) -> None:
    """Raises ModelError unless generated samples are of the shape of the real ones."""
    expected = [one.shape[1:] for one in x]
    if generated != expected:
        raise ModelError(
            f"the generator makes samples of shape {_shown(generated)}, the data have {_shown(expected)}",
            where="data.features",
            cure="change the output of the generator, or data.features",
        )


def weights_of(options: Gan, n_outputs: int, n_labels: int) -> list[float]:
    """A factor for the loss of each output of the discriminator.

    Raises:
        ModelError: Its further outputs are not as many as there are labels.
        ConfigurationError: There are not as many factors as outputs.
    """
    if n_outputs not in (1, 1 + n_labels):
        raise ModelError(
            f"the discriminator has {n_outputs - 1} outputs after the first, the data have labels for {n_labels}",
            where="data.labels",
            cure="the first output says real or generated; give it one more for each of the labels, or none",
        )
    weights = options.loss_weights or [1.0] * n_outputs
    if len(weights) != n_outputs:
        raise ConfigurationError(
            f"{len(weights)} weights, the discriminator has {n_outputs} outputs", where="gan.loss_weights"
        )
    return weights


def _shown(shapes: list[tuple[int, ...]]) -> str:
    return " and ".join(str(shape) for shape in shapes)
