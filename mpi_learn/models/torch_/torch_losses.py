"""Losses and metrics for PyTorch models as sums over samples, under Keras' names and PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from mpi_learn.errors import ConfigurationError, DataError, ModelError
from mpi_learn.settings.user_code import is_function, load_function, metric_key
from mpi_learn.settings.yaml_file import nearest

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "sparse_categorical_crossentropy": functional.cross_entropy,
    "categorical_crossentropy": functional.cross_entropy,
    "cross_entropy": functional.cross_entropy,
    "nll_loss": functional.nll_loss,
    "binary_crossentropy": functional.binary_cross_entropy,
    "binary_cross_entropy": functional.binary_cross_entropy,
    "binary_cross_entropy_with_logits": functional.binary_cross_entropy_with_logits,
    "mse": functional.mse_loss,
    "mean_squared_error": functional.mse_loss,
    "mae": functional.l1_loss,
    "mean_absolute_error": functional.l1_loss,
    "huber": functional.huber_loss,
    "smooth_l1": functional.smooth_l1_loss,
    "poisson": functional.poisson_nll_loss,
    "kl_divergence": functional.kl_div,
}
"""Cross entropies take logits, as PyTorch has it; ``binary_crossentropy`` takes probabilities."""
OF_CLASSES = (functional.cross_entropy, functional.nll_loss)


@dataclass(frozen=True)
class Loss:
    """One output's loss.

    Attributes:
        function: Of (outputs, labels, reduction="none"), or the user's of (labels, outputs).
        is_own: Whether it is the user's.
        n_classes: Where labels are class numbers; else None.
    """

    function: Callable[..., torch.Tensor]
    is_own: bool
    n_classes: int | None

    def summed(self, labels: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """Mean over a sample's elements, summed over the samples."""
        if self.n_classes is not None:
            labels = labels.squeeze(-1) if labels.ndim == output.ndim else labels
            if output.ndim == 2:  # one number a sample
                return self.function(output, labels.long(), reduction="sum")
            values = self.function(output, labels.long(), reduction="none")
        else:
            labels = matched(labels, output)
            values = self.function(labels, output) if self.is_own else self.function(output, labels, reduction="none")
        return over_samples(values, len(output))


@dataclass(frozen=True)
class Metric:
    """One metric of one output: the mean over samples of `function`."""

    key: str
    output: int
    function: Function

    def summed(self, labels: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """Mean over a sample's elements, summed over the samples."""
        return over_samples(self.function(labels, output), len(output))


def over_samples(values: torch.Tensor, n: int) -> torch.Tensor:
    """The mean over each sample's elements, summed over the `n` samples; one number is taken for their mean."""
    if values.ndim == 0:
        return values * n
    return values.sum() if values.ndim == 1 else values.float().reshape(n, -1).mean(1).sum()


def matched(labels: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Labels (n,) for an output (n, 1) as (n, 1), and as real numbers."""
    labels = labels.to(output.dtype)
    return labels.unsqueeze(-1) if labels.ndim == output.ndim - 1 and output.shape[-1] == 1 else labels


def check_label_range(losses: list[Loss], y: Any) -> None:
    """Raises DataError if a class number lies outside of the model's outputs.

    Args:
        losses: One per output.
        y: One array of labels per output; all of them, not a few.
    """
    for loss, labels in zip(losses, y, strict=True):
        if loss.n_classes is None or not labels.size:
            continue
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= loss.n_classes:
            raise DataError(
                f"label {low if low < 0 else high} lies outside of the model's {loss.n_classes} classes "
                f"0…{loss.n_classes - 1}",
                where="data.labels",
                cure=f"give the model {high + 1} outputs" if low >= 0 else "number the classes from 0",
            )


def make_losses(loss: Any, outputs: list[tuple[int, ...]], y: Any) -> list[Loss]:
    """One loss per output.

    Raises:
        ConfigurationError, ModelError: No such loss, or labels and outputs do not fit together.
    """
    names = [loss] * len(outputs) if isinstance(loss, str) else list(loss.values() if isinstance(loss, dict) else loss)
    if not len(names) == len(outputs) == len(y):
        raise ModelError(
            f"the model has {len(outputs)} outputs, there are {len(names)} losses and labels for {len(y)}", where="loss"
        )
    return [_loss(*of_output) for of_output in zip(names, outputs, y, strict=True)]


def _loss(name: str, output: tuple[int, ...], labels: np.ndarray) -> Loss:
    if is_function(name):
        return Loss(load_function(name), True, None)
    function = LOSSES.get(name) or getattr(functional, name, None)
    if function is None:
        near = nearest(name, LOSSES)
        raise ConfigurationError(
            f"PyTorch has no loss {name}", where="loss", cure=f"did you mean {near}?" if near else ""
        )
    found, expected = labels.shape[1:], output[1:]
    if function in OF_CLASSES and labels.dtype.kind == "i" and name != "categorical_crossentropy":
        expected = output[2:]
        if found in (expected, (*expected, 1)):
            return Loss(function, False, output[1])
    elif found == expected or (*found, 1) == expected:
        return Loss(function, False, None)
    is_class_number = function in OF_CLASSES and found == output[2:] and labels.dtype.kind == "f"
    raise ModelError(
        f"with {name} the model's output of shape {output[1:]} needs labels of shape {expected} per sample, "
        f"the data have {found}",
        where="data.labels",
        cure="class numbers must be stored as integers" if is_class_number else "",
    )


def make_metrics(metrics: Any, losses: list[Loss]) -> list[Metric]:
    """The metrics that the configuration names.

    Raises:
        ConfigurationError: No such metric.
    """
    if isinstance(metrics, dict):
        pairs = enumerate(metrics.items())
        return [
            _metric(one, i, losses[i], f"{output}_{metric_key(one)}") for i, (output, ones) in pairs for one in ones
        ]
    if metrics and len(losses) > 1:
        raise ConfigurationError(
            f"the model has {len(losses)} outputs: of which are these metrics?",
            where="metrics",
            cure="write a mapping in the order of the outputs, e.g. {energy: [mae], kind: [accuracy]}",
        )
    return [_metric(one, 0, losses[0], metric_key(one)) for one in metrics]


def _metric(name: str, output: int, loss: Loss, key: str) -> Metric:
    if is_function(name):
        return Metric(key, output, load_function(name))
    if name in ("accuracy", "acc"):
        return Metric(key, output, _accuracy(loss))
    functions: dict[str, Function] = {
        "mae": lambda labels, out: (matched(labels, out) - out).abs(),
        "mse": lambda labels, out: (matched(labels, out) - out) ** 2,
    }
    functions |= {"mean_absolute_error": functions["mae"], "mean_squared_error": functions["mse"]}
    if name not in functions:
        near = nearest(name, ["accuracy", *functions])
        raise ConfigurationError(
            f"there is no metric {name} for PyTorch models",
            where="metrics",
            cure=f"did you mean {near}?" if near else "write file.py:function",
        )
    return Metric(key, output, functions[name])


def _accuracy(loss: Loss) -> Function:
    if loss.n_classes is not None:
        return lambda labels, out: out.argmax(1) == (labels.squeeze(-1) if labels.ndim == out.ndim else labels)
    edge = 0.0 if loss.function is functional.binary_cross_entropy_with_logits else 0.5
    return lambda labels, out: (
        (out > edge) == (matched(labels, out) > 0.5) if out.shape[-1] == 1 else out.argmax(1) == labels.argmax(1)
    )
