"""Metrics of PyTorch models as sums over samples: accuracy and errors, torchmetrics, or user functions."""

from __future__ import annotations

import importlib
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.outputs import Shape
from mpi_learn.models.torch_.losses_and_metrics.losses import Loss, matched, reshaped
from mpi_learn.models.torch_.tensors import device
from mpi_learn.settings.component import Component, make_component, shown_arguments
from mpi_learn.settings.suggestions import suggestion
from mpi_learn.settings.user_code import errors_of_user_code

N_THRESHOLDS = 200
"""Number of thresholds of curves, as in Keras. With fixed thresholds, the state of a curve is a sum over samples."""
SAME = {"acc": "accuracy", "mean_absolute_error": "mae", "mean_squared_error": "mse", "AUC": "AUROC"}
Function = Callable[[Any, Any], Any]
ACTIVATIONS: dict[type, Callable[[Any], Any]] = {
    nn.CrossEntropyLoss: lambda outputs: outputs.softmax(1),
    nn.NLLLoss: torch.exp,
    nn.BCEWithLogitsLoss: torch.sigmoid,
    nn.MultiLabelSoftMarginLoss: torch.sigmoid,
    nn.SoftMarginLoss: torch.sigmoid,
}
"""Functions that convert the outputs for a loss to probabilities."""
OF_MANY_LABELS = (nn.BCELoss, nn.BCEWithLogitsLoss, nn.MultiLabelSoftMarginLoss, nn.SoftMarginLoss)
"""Losses with which each column of an output is a binary label; with the others, it is a class."""


class Mean:
    """The mean over samples of a function of (outputs, targets), which returns a mean or one value per sample.

    Attributes:
        size: The length of its state, which is a sum over samples.
    """

    size = 1

    def __init__(self, function: Function) -> None:
        self.function = function

    def state(self, outputs: Any, targets: Any, n: int) -> Any:
        """The state of a batch of `n` samples: a number, or an array (size,) float32."""
        return self.state_on_device(outputs, targets, n).item()

    def state_on_device(self, outputs: Any, targets: Any, n: int) -> torch.Tensor:
        """The same as a tensor: a number, or (size,) float32."""
        return n * torch.as_tensor(self.function(outputs, targets)).mean(dtype=torch.float32)

    def result(self, state: np.ndarray, n: float) -> float:
        """The value from the summed states of `n` samples.

        Raises:
            ConfigurationError: It cannot be computed from these samples, or is not one number.
        """
        return float(state[0]) / n


class ClassAccuracy:
    """The fraction of correct classes among the labels that the loss does not ignore.

    Args:
        ignored: The label that the loss ignores; None if there is none.
    """

    size = 2

    def __init__(self, ignored: int | None) -> None:
        self.ignored = ignored

    def state(self, outputs: Any, targets: Any, n: int) -> Any:
        labels = _classes(targets, outputs)
        is_correct = (outputs.argmax(1) == labels).numpy(force=True)
        is_kept = labels.numpy(force=True) != self.ignored  # NumPy takes less time for small arrays
        counts = np.array([np.count_nonzero(is_correct & is_kept), np.count_nonzero(is_kept)], np.float32)
        return counts * (n / max(is_kept.size, 1))

    def state_on_device(self, outputs: Any, targets: Any, n: int) -> torch.Tensor:
        labels = _classes(targets, outputs)
        is_kept = torch.ones_like(labels, dtype=torch.bool) if self.ignored is None else labels != self.ignored
        counts = torch.stack([((outputs.argmax(1) == labels) & is_kept).sum(), is_kept.sum()])
        return counts.float() * (n / max(labels.numel(), 1))

    def result(self, state: np.ndarray, n: float) -> float:
        return float(state[0] / state[1]) if state[1] else math.nan


class TorchmetricsMetric:
    """A metric of torchmetrics; its states are added over batches and ranks, as its own reduction does.

    Args:
        metric: A `torchmetrics.Metric`.
        key: Its name, for messages.
        loss: The loss of the output. If it takes logits, metrics of classes receive probabilities; torchmetrics would
            guess in each batch whether it received logits.

    Raises:
        ConfigurationError: A state is not a sum.
    """

    def __init__(self, metric: Any, key: str, loss: Loss | None) -> None:
        is_of_classes = type(metric).__module__.startswith("torchmetrics.classification")
        self._activation = ACTIVATIONS.get(type(loss.module)) if loss is not None and is_of_classes else None
        add = importlib.import_module("torchmetrics.utilities").dim_zero_sum
        metric.to(device())
        self.metric, self.key, self.initial = metric, key, dict(metric.metric_state)
        is_sum = all(metric._reductions[name] is add for name in self.initial)
        if not is_sum or not all(isinstance(start, torch.Tensor) for start in self.initial.values()):
            raise ConfigurationError(
                f"the metric {key} does not add up over batches and ranks",
                where="metrics",
                cure="give it `thresholds` if it has them, or use a figure_of_merit function on the trained model",
            )
        self._layout = FlatLayout.of(self.initial.values())
        self.size = self._layout.size

    def state(self, outputs: Any, targets: Any, n: int) -> Any:
        return self.state_on_device(outputs, targets, n).numpy(force=True)

    def state_on_device(self, outputs: Any, targets: Any, n: int) -> torch.Tensor:
        if isinstance(outputs, torch.Tensor) and outputs.shape[-1:] == (1,) and targets.ndim == outputs.ndim - 1:
            outputs = outputs.squeeze(-1)
        if self._activation is not None:
            outputs = self._activation(outputs)
        self.metric.reset()
        self.metric.update(outputs, targets)
        changes = [getattr(self.metric, name) - start for name, start in self.initial.items()]
        return torch.cat([change.reshape(-1).float() for change in changes])

    def result(self, state: np.ndarray, n: float) -> float:
        self.metric.reset()
        for (name, start), part in zip(self.initial.items(), self._layout.views(state), strict=True):
            setattr(self.metric, name, start + torch.as_tensor(part).to(start))
        with warnings.catch_warnings(), errors_of_user_code(f"computing {self.key}", "metrics"):
            warnings.simplefilter("ignore")  # it was never updated
            value = self.metric.compute()
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError) as error:  # PyTorch raises RuntimeError for several values
            found = f"{value.numel()} values" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
            raise ConfigurationError(
                f"the metric {self.key} gives {found}, expected one number",
                where="metrics",
                cure="for a metric of classes, write an average: {name: F1Score, average: macro}; otherwise use a "
                "figure_of_merit function on the trained model",
            ) from error


Metric = Mean | ClassAccuracy | TorchmetricsMetric
"""A metric whose state is a sum over samples."""


def make_metric(wanted: Component, loss: Loss | None, output: Shape) -> Metric:
    """A metric of one output.

    Args:
        loss: The output's.
        output: The shape of the output.

    Raises:
        ConfigurationError: There is none, or it does not fit.
    """
    if wanted.is_custom:
        metric = make_component(wanted, 2)
        return TorchmetricsMetric(metric, wanted.key, loss) if hasattr(metric, "metric_state") else Mean(metric)
    name = SAME.get(wanted.name, wanted.name)
    functions: dict[str, Function] = {
        "mae": lambda out, labels: (matched(labels, out) - out).abs(),
        "mse": lambda out, labels: (matched(labels, out) - out) ** 2,
    }
    if name in functions and not wanted.arguments:
        return Mean(functions[name])
    if name == "accuracy":
        return _accuracy(wanted, loss, output)
    return _of_torchmetrics(name, wanted, output, loss, [*functions, "accuracy"])


def _accuracy(wanted: Component, loss: Loss | None, output: Shape) -> Metric:
    # PyTorch has classes on axis 1; a single column, or a loss for many labels per sample, means yes or no
    has_classes = len(output) > 1 and output[1] != 1 and not _has_many_labels(loss)
    if has_classes and "threshold" not in wanted.arguments:
        return ClassAccuracy(loss.rule.ignored if loss is not None and loss.rule is not None else None)
    if loss is not None and loss.is_custom and "threshold" not in wanted.arguments:
        raise ConfigurationError(
            "with one column and a loss of your own it is unknown whether outputs are logits or probabilities",
            where="metrics: accuracy",
            cure="write {name: accuracy, threshold: 0.0} for logits, 0.5 for probabilities",
        )
    is_logit = loss is not None and ACTIVATIONS.get(type(loss.module)) is torch.sigmoid
    edge = wanted.arguments.get("threshold", 0.0 if is_logit else 0.5)
    return Mean(lambda out, labels: (out > edge) == (matched(labels, out) > 0.5))


def _has_many_labels(loss: Loss | None) -> bool:
    return loss is not None and type(loss.module) in OF_MANY_LABELS


def _classes(labels: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Class numbers, from class numbers or from one-hot labels."""
    return labels.argmax(1) if labels.shape == output.shape else reshaped(labels, output[:, 0])


def _of_torchmetrics(name: str, wanted: Component, output: Shape, loss: Loss | None, known: list[str]) -> Metric:
    try:
        package = importlib.import_module("torchmetrics")
    except ImportError:
        raise ConfigurationError(
            f"{name} is a metric of torchmetrics, which is not installed",
            where="metrics",
            cure=f"{suggestion(name, known)}; or pip install torchmetrics, or write file.py:function",
        ) from None
    kind = getattr(package, name, None)
    if not (isinstance(kind, type) and issubclass(kind, package.Metric)):
        raise ConfigurationError(
            f"neither MPI Learn nor torchmetrics has a metric {name}",
            where="metrics",
            cure=f"{suggestion(name, [*known, *package.__all__])}; or write file.py:function",
        )
    parameters, arguments = inspect.signature(kind).parameters, wanted.arguments
    n_classes = output[1] if len(output) > 1 else 1
    if "task" in parameters:
        task = {"task": "multiclass", "num_classes": n_classes}
        if n_classes == 1:
            task = {"task": "binary"}
        elif _has_many_labels(loss):
            task = {"task": "multilabel", "num_labels": n_classes}
        arguments = {**task, **({"thresholds": N_THRESHOLDS} if "thresholds" in parameters else {}), **arguments}
    with errors_of_user_code(f"{name} with ({shown_arguments(arguments)})", "metrics"):
        return TorchmetricsMetric(kind(**arguments), wanted.key, loss)
