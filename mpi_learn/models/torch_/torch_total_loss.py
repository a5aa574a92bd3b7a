"""The loss of a PyTorch model: a user's loss of all outputs together, or a weighted sum of one loss per output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mpi_learn.errors import ConfigurationError
from mpi_learn.models.configuration import ModelSettings
from mpi_learn.models.labels import OutputLosses, output_losses
from mpi_learn.models.model import Example, named
from mpi_learn.models.outputs import Outputs
from mpi_learn.models.torch_.torch_inputs import flat_outputs
from mpi_learn.models.torch_.torch_losses import Loss, fitted_loss, make_loss
from mpi_learn.settings.component import component


class JointLoss:
    """A user's loss of all outputs and all labels together.

    Attributes:
        of_outputs: The loss for each output, which the metrics of the output refer to.
    """

    def __init__(self, loss: Loss, of_outputs: OutputLosses[Loss], label_names: tuple[str, ...]) -> None:
        self.of_outputs, self._loss, self._label_names = of_outputs, loss, label_names

    def __call__(
        self, outputs: Any, labels: list[torch.Tensor], weights: list[torch.Tensor], n: int
    ) -> tuple[torch.Tensor, float]:
        """The mean loss of a batch of `n` samples, and its divisor; see `mpi_learn.flat_layout`."""
        return self._loss.mean(outputs, named(labels, self._label_names), weights[0] if weights else None), float(n)


class SumOfLosses:
    """The sum over the outputs of factor × loss; see `JointLoss`."""

    def __init__(self, of_outputs: OutputLosses[Loss], factors: Sequence[float]) -> None:
        self.of_outputs, self._factors = of_outputs, factors

    def __call__(
        self, outputs: Any, labels: list[torch.Tensor], weights: list[torch.Tensor], n: int
    ) -> tuple[torch.Tensor, float]:
        flat, sample_weights = flat_outputs(outputs), weights[0] if weights else None
        losses, means = self.of_outputs.losses, []
        for loss, place, output, factor in zip(losses, self.of_outputs.places, flat, self._factors, strict=True):
            if loss is not None and place is not None:
                mean = loss.mean(output, labels[place], sample_weights)
                means.append(mean if factor == 1 else factor * mean)
        if len(flat) == 1 and losses[0] is not None and sample_weights is None:
            return means[0], losses[0].weight(labels[0], n)
        return sum(means[1:], means[0]), float(n)


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
    losses = output_losses(outputs, settings.loss, example, fitted_loss)
    return SumOfLosses(losses, outputs.factors(settings.loss_weights))


def _joint_loss(loss: Loss, settings: ModelSettings, outputs: Outputs, example: Example) -> JointLoss:
    """The loss takes all labels. Metrics of outputs get the labels that can be matched with outputs."""
    if settings.loss_weights is not None:
        raise ConfigurationError(
            "expected several losses, found one", where="loss_weights", cure="write one loss per output"
        )
    n = len(outputs)
    places: Sequence[int | None] = [None] * n
    if settings.metrics and len(example.y) and (isinstance(settings.metrics, dict) or n == 1):
        places = outputs.labels(example.y_names, len(example.y), outputs.losses(settings.loss))
    return JointLoss(loss, OutputLosses([loss] * n, [None] * n, places, may_be_sums=True), example.y_names)
