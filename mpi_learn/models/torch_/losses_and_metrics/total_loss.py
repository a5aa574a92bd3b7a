"""The loss of a PyTorch model: a user's loss of all outputs together, or a weighted sum of one loss per output.

The divisor of the mean loss is that of `Loss.weight` if one output has a loss. If several have, it is the number of
samples: then several ranks train only almost like one if their batches have different numbers of ignored labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mpi_learn.errors import ConfigurationError
from mpi_learn.models.configuration import Metrics, ModelConfiguration
from mpi_learn.models.labels import OutputLosses, output_losses
from mpi_learn.models.outputs import Outputs
from mpi_learn.models.settings import Arrays, Example, named
from mpi_learn.models.torch_.inputs import flat_outputs
from mpi_learn.models.torch_.losses_and_metrics.losses import Loss, make_loss, make_output_loss
from mpi_learn.settings.component import component


@dataclass(frozen=True)
class TotalLoss:
    """The sum over the outputs of factor × loss, or one loss of all outputs and all labels.

    Attributes:
        of_outputs: The loss of each output, which the metrics of the output refer to.
        factors: One per output.
        joint: The user's loss of all outputs together, which replaces the sum; None if there is none.
        weights: The index of the sample weights of each output; None for an output without them.
        label_names: The names by which `joint` receives the labels; empty for a tensor or a list.
    """

    of_outputs: OutputLosses[Loss]
    factors: Sequence[float] = ()
    joint: Loss | None = None
    weights: Sequence[int | None] = ()
    label_names: tuple[str, ...] = ()

    def __call__(
        self, outputs: Any, labels: list[torch.Tensor], weights: list[torch.Tensor], n: int, on_host: Arrays
    ) -> tuple[torch.Tensor, float]:
        """The mean loss of a batch of `n` samples, and its divisor; see `mpi_learn.flat_layout`.

        An output whose labels are all ignored has no part in the loss: PyTorch's mean over no labels is NaN.

        Args:
            on_host: The labels as arrays.
        """
        if self.joint is not None:
            sample_weights = weights[0] if weights else None
            return self.joint.mean(outputs, named(labels, self.label_names), sample_weights), float(n)
        of_outputs, terms, divisors = self.of_outputs, [], []
        flat = flat_outputs(outputs)
        parts = zip(of_outputs.losses, of_outputs.labels, flat, self.factors, self.weights, strict=True)
        for loss, label, output, factor, weight in parts:
            if loss is None or label is None:
                continue
            divisors.append(loss.weight(on_host[label], n))
            if divisors[-1]:
                of_samples = None if weight is None else weights[weight]
                mean = loss.mean(output, labels[label], of_samples, on_host[label])
                # without a multiplication by 1, and below an addition of 0: each would cost an operation per step
                terms.append(mean if factor == 1 else factor * mean)
        if not terms:
            return torch.zeros(()), 0.0
        return sum(terms[1:], terms[0]), divisors[0] if len(divisors) == 1 else float(n)


def make_total_loss(configuration: ModelConfiguration, outputs: Outputs, example: Example) -> TotalLoss:
    """The loss of a model with these outputs, checked on the labels of the example.

    Raises:
        ModelError, ConfigurationError: There is no such loss, or it does not fit outputs and labels.
    """
    if configuration.loss is None:
        raise ConfigurationError("a PyTorch model needs a loss", where="loss", cure="write `loss: …`")
    loss = None if isinstance(configuration.loss, list | dict) else make_loss(component(configuration.loss))
    if loss is None or not loss.is_custom:
        losses = output_losses(outputs, configuration.loss, example, make_output_loss)
        weights = outputs.weights(example.weight_names, len(example.weights))
        return TotalLoss(losses, outputs.factors(configuration.loss_weights), weights=weights)
    if configuration.loss_weights is not None:
        raise ConfigurationError(
            "expected several losses, found one", where="loss_weights", cure="write one loss per output"
        )
    if example.weight_names:
        raise ConfigurationError(
            "one loss for all outputs takes one weight per sample, found weights by output",
            where="data.weights",
            cure="write one loss per output, or one name of weights",
        )
    n = len(outputs)
    labels: Sequence[int | None] = [None] * n  # only metrics of single outputs need labels that match the outputs
    of_single_outputs = metrics_of_single_outputs(configuration.metrics)
    if of_single_outputs and len(example.y) and (isinstance(of_single_outputs, dict) or n == 1):
        labels = outputs.labels(example.y_names, len(example.y), outputs.losses(configuration.loss))
    of_outputs = OutputLosses([loss] * n, [None] * n, labels, may_be_sums=True)
    return TotalLoss(of_outputs, joint=loss, label_names=example.y_names)


def metrics_of_single_outputs(metrics: Metrics) -> Metrics:
    """The metrics of single outputs beside a joint loss: all of a mapping, or those of a list that are not the user's.

    The user's metrics in a list receive all outputs and labels.
    """
    return metrics if isinstance(metrics, dict) else [one for one in metrics if not component(one).is_custom]
