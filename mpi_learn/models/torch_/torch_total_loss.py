"""The loss of a PyTorch model: a user's loss of all outputs together, or a weighted sum of one loss per output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mpi_learn.errors import ConfigurationError
from mpi_learn.models.configuration import ModelSettings
from mpi_learn.models.model import Arrays, Example, named
from mpi_learn.models.outputs import Outputs, check_ranges
from mpi_learn.models.torch_.torch_losses import Loss, make_loss
from mpi_learn.models.torch_.torch_network import flat_outputs
from mpi_learn.settings.component import component

Places = Sequence[int | None]


class JointLoss:
    """A user's loss of all outputs and all labels together.

    Attributes:
        losses, places: The loss of each output and the number of its label, or None; for the metrics of the output.
        is_own: Whether user code computes the loss, which may be a sum over the batch.
    """

    is_own = True

    def __init__(self, loss: Loss, n_outputs: int, places: Places, label_names: tuple[str, ...]) -> None:
        self.losses, self.places = [loss] * n_outputs, places
        self._loss, self._label_names = loss, label_names

    def __call__(
        self, outputs: Any, labels: list[torch.Tensor], weights: list[torch.Tensor], n: int
    ) -> tuple[torch.Tensor, float]:
        """The mean loss of a batch of `n` samples, and its divisor; see `mpi_learn.flat_layout`."""
        return self._loss.mean(outputs, named(labels, self._label_names), weights[0] if weights else None), float(n)

    def check_labels(self, y: Arrays) -> None:
        """A user's loss may accept any labels."""

    def buffers(self) -> list[torch.Tensor]:
        """The buffers of losses that are modules."""
        return self._loss.buffers()


class SumOfLosses:
    """The sum over the outputs of factor × loss; see `JointLoss`."""

    def __init__(
        self, losses: Sequence[Loss | None], places: Places, factors: Sequence[float], *, is_own: bool
    ) -> None:
        self.losses, self.places, self.is_own = losses, places, is_own
        self._factors = factors

    def __call__(
        self, outputs: Any, labels: list[torch.Tensor], weights: list[torch.Tensor], n: int
    ) -> tuple[torch.Tensor, float]:
        flat, sample_weights = flat_outputs(outputs), weights[0] if weights else None
        only, means = self.losses[0], []
        for loss, place, output, factor in zip(self.losses, self.places, flat, self._factors, strict=True):
            if loss is not None and place is not None:
                mean = loss.mean(output, labels[place], sample_weights)
                means.append(mean if factor == 1 else factor * mean)
        if len(flat) == 1 and only is not None and sample_weights is None:
            return means[0], only.weight(labels[0], n)
        return sum(means[1:], means[0]), float(n)

    def check_labels(self, y: Arrays) -> None:
        check_ranges([None if loss is None else loss.rule for loss in self.losses], self.places, y)

    def buffers(self) -> list[torch.Tensor]:
        return [buffer for loss in self.losses if loss is not None for buffer in loss.buffers()]


TotalLoss = JointLoss | SumOfLosses


def make_total_loss(settings: ModelSettings, outputs: Outputs, example: Example) -> TotalLoss:
    """The loss of a model with these outputs, checked on the labels of the example.

    Raises:
        ModelError, ConfigurationError: There is no such loss, or it does not fit outputs and labels.
    """
    if settings.loss is None:
        raise ConfigurationError("a PyTorch model needs a loss", where="loss", cure="write `loss: …`")
    if not isinstance(settings.loss, list | dict):
        loss = make_loss(component(settings.loss))
        if not loss.name:
            return _joint_loss(loss, settings, outputs, example)
    wanted = outputs.losses(settings.loss)
    places = outputs.labels(example.y_names, len(example.y), wanted)
    losses: list[Loss | None] = []
    is_own = False
    for one, shape, place in zip(wanted, outputs.shapes, places, strict=True):
        if one is None or place is None:
            losses.append(None)
            continue
        loss = make_loss(one).fitted(shape, example.y[place])
        if loss.rule is not None:
            loss.rule.check_shape(example.y[place])
        losses.append(loss)
        is_own |= not loss.name or "reduction" in one.arguments
    factors = [1.0 if one is None else float(one) for one in outputs.spread(settings.loss_weights, "loss_weights")]
    found = SumOfLosses(losses, places, factors, is_own=is_own)
    found.check_labels(example.y)
    return found


def _joint_loss(loss: Loss, settings: ModelSettings, outputs: Outputs, example: Example) -> JointLoss:
    """The loss takes all labels. Metrics of outputs get the labels that can be matched with outputs."""
    if settings.loss_weights is not None:
        raise ConfigurationError(
            "expected several losses, found one", where="loss_weights", cure="write one loss per output"
        )
    places: Places = [None] * len(outputs)
    if settings.metrics and len(example.y) and (isinstance(settings.metrics, dict) or len(outputs) == 1):
        places = outputs.labels(example.y_names, len(example.y), outputs.losses(settings.loss))
    return JointLoss(loss, len(outputs), places, example.y_names)
