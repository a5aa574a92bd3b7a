"""Losses of PyTorch models: by PyTorch's names, by Keras' names, or any callable of (outputs, targets).

The divisor of the mean loss is that of `Loss.weight` if one output has a loss. If several have, it is the number of
samples: then several ranks train only almost like one if their batches have different numbers of ignored labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.models.configuration import Metrics, ModelConfiguration
from mpi_learn.models.labels import LabelRule, OutputLosses, output_losses
from mpi_learn.models.outputs import Outputs, Shape
from mpi_learn.models.settings import Arrays, Example, named
from mpi_learn.models.torch_.inputs import flat_outputs
from mpi_learn.models.torch_.tensors import device
from mpi_learn.settings.component import Component, component, make_component, shown_arguments
from mpi_learn.settings.suggestions import suggestion
from mpi_learn.settings.user_code import errors_of_user_code, load_function

Function = Callable[[Any, Any], Any]

OF_CLASSES = (nn.CrossEntropyLoss, nn.NLLLoss)
"""Losses whose targets can be class numbers."""
LOSSES: dict[str, type[nn.Module]] = {
    "cross_entropy": nn.CrossEntropyLoss,
    "sparse_categorical_crossentropy": nn.CrossEntropyLoss,
    "categorical_crossentropy": nn.CrossEntropyLoss,
    "nll_loss": nn.NLLLoss,
    "binary_cross_entropy": nn.BCELoss,
    "binary_crossentropy": nn.BCELoss,
    "binary_cross_entropy_with_logits": nn.BCEWithLogitsLoss,
    "mse_loss": nn.MSELoss,
    "mse": nn.MSELoss,
    "mean_squared_error": nn.MSELoss,
    "l1_loss": nn.L1Loss,
    "mae": nn.L1Loss,
    "mean_absolute_error": nn.L1Loss,
    "huber_loss": nn.HuberLoss,
    "huber": nn.HuberLoss,
    "smooth_l1_loss": nn.SmoothL1Loss,
    "smooth_l1": nn.SmoothL1Loss,
    "poisson_nll_loss": nn.PoissonNLLLoss,
    "poisson": nn.PoissonNLLLoss,
    "kl_div": nn.KLDivLoss,
    "soft_margin_loss": nn.SoftMarginLoss,
    "multilabel_soft_margin_loss": nn.MultiLabelSoftMarginLoss,
    "hinge_embedding_loss": nn.HingeEmbeddingLoss,
}
"""Names of functions of PyTorch and of losses of Keras. The targets of all but `OF_CLASSES` have the output's shape.

``cross_entropy``, its names in Keras, ``binary_cross_entropy_with_logits`` and ``multilabel_soft_margin_loss`` take
logits, ``binary_cross_entropy`` and ``binary_crossentropy`` probabilities, and ``nll_loss`` logarithms of
probabilities. ``poisson`` takes rates, as in Keras. There is no ``kl_divergence``, because PyTorch's ``kl_div`` takes
logarithms of probabilities.
"""


@dataclass(frozen=True)
class Loss:
    """The loss of one output, or of all outputs together.

    Attributes:
        function: A function of (outputs, targets).
        of_each: The same without the mean over the batch if `module` has a `reduction`; otherwise `function`.
        key: Its name in messages.
        module: The loss of `torch.nn` or of the user, if it is a module.
        rule: What it requires of the targets, if that is known.
    """

    function: Function
    of_each: Function
    key: str
    module: nn.Module | None = None
    rule: LabelRule | None = None

    @property
    def is_custom(self) -> bool:
        """Whether it is not one of `torch.nn`."""
        return not _is_of_torch(type(self.module))

    @property
    def reduction(self) -> str:
        """The `reduction` of the loss, such as ``mean`` or ``sum``; empty for a function."""
        return str(getattr(self.module, "reduction", ""))

    def mean(
        self, outputs: Any, targets: Any, weights: torch.Tensor | None = None, labels: np.ndarray | None = None
    ) -> torch.Tensor:
        """The mean loss of a batch.

        Args:
            weights: (n,), (n, 1), or with the shape of the losses. They multiply the losses and do not change the
                divisor, so that weights of 1 change nothing.
            labels: The targets on the host, needed with weights: see `weight`.

        Raises:
            ConfigurationError: There are weights, and the loss gives no value for each of them.
        """
        targets = self._fitted(targets, outputs)
        if weights is not None:
            return self._weighted_mean(outputs, targets, weights, labels)
        values: torch.Tensor = self.function(outputs, targets)
        return values if values.ndim == 0 else _checked(values, outputs, targets).float().mean()

    def weight(self, labels: np.ndarray | None, n: int) -> float:
        """The divisor in `mean`: usually `n`, the number of samples or of losses.

        It is computed on the host, where the labels come from: the device would have to finish its work before.

        PyTorch's mean over class numbers is different: it leaves out ignored labels, and divides by the sum of the
        weights of the classes if there are any.
        """
        if self.rule is None or self.rule.class_axis is None or self.reduction != "mean" or labels is None:
            return float(n)
        is_kept = labels != self.rule.ignored
        if self._factors is None:
            return float(n * np.count_nonzero(is_kept) / max(labels.size, 1))
        return float(self._factors[torch.from_numpy(labels[is_kept].astype(np.int64))].sum())

    @cached_property
    def _factors(self) -> torch.Tensor | None:
        """The weights of the classes on the host. They are constants: see `buffers`."""
        factors = getattr(self.module, "weight", None)
        return None if factors is None else factors.cpu()

    def buffers(self) -> list[torch.Tensor]:
        """The buffers of a loss that is a module."""
        return [] if self.module is None else list(self.module.buffers())

    def _fitted(self, targets: Any, outputs: Any) -> Any:
        """The targets in the shape and dtype that a loss of `torch.nn` takes."""
        if self.rule is None:
            return targets
        if self.rule.class_axis is None:
            return matched(targets, outputs)
        return (targets.squeeze(-1) if targets.ndim == outputs.ndim else targets).long()

    def _weighted_mean(
        self, outputs: Any, targets: Any, weights: torch.Tensor, labels: np.ndarray | None
    ) -> torch.Tensor:
        """See `mean`."""
        if self.reduction == "sum":
            raise ConfigurationError(
                "with sample weights the loss must not be a sum over the batch",
                where="loss",
                cure="leave out reduction",
            )
        values = self.of_each(outputs, targets)
        if values.ndim == 0:
            raise ConfigurationError(
                "with sample weights the loss must not return one number for the whole batch",
                where="loss",
                cure="return one value per sample",
            )
        if weights.numel() == len(weights):
            weights = weights.reshape(-1)
        if values.shape[: weights.ndim] != weights.shape:
            raise ConfigurationError(
                f"weights of shape {tuple(weights.shape)} do not fit losses of shape {tuple(values.shape)}",
                where="data.weights",
                cure="store one weight per sample, or one for each of the losses",
            )
        weighted = values.float() * weights.reshape(*weights.shape, *[1] * (values.ndim - weights.ndim))
        n = len(values) if self.reduction == "batchmean" else weighted.numel()
        mean: torch.Tensor = weighted.sum() / (self.weight(labels, n) or 1.0)
        return mean


def _checked(values: torch.Tensor, outputs: Any, targets: Any) -> torch.Tensor:
    """The values of a loss.

    Raises:
        ConfigurationError: Outputs (n, 1) and targets (n,) have become values (n, n).
    """
    shapes = [tuple(tensor.shape) for tensor in (outputs, targets) if isinstance(tensor, torch.Tensor)]
    if values.ndim == 2 and shapes == [(len(values), 1), (len(values),)] and 1 < values.shape[1] == len(values):
        raise ConfigurationError(
            f"the loss returns values of shape {tuple(values.shape)} for outputs {shapes[0]} and targets {shapes[1]}",
            where="loss",
            cure="use outputs.squeeze(-1)",
        )
    return values


def matched(labels: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Labels in the shape and dtype of an output; see `reshaped`."""
    return reshaped(labels, output).to(output.dtype)


def reshaped(labels: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Labels in the shape of an output, if only axes of length 1 differ: labels (n,) for an output (n, 1) as (n, 1).

    Raises:
        ModelError: Other axes differ: PyTorch would refuse the shapes, or compare each label with several outputs.
    """
    if labels.shape == output.shape:
        return labels
    lengths, expected = ([n for n in tensor.shape[1:] if n != 1] for tensor in (labels, output))
    if lengths != expected or labels.numel() != output.numel():
        raise ModelError(
            f"expected labels of shape {tuple(output.shape[1:])} per sample, like the output, found "
            f"{tuple(labels.shape[1:])}",
            where="data.labels",
            cure="store labels of this shape, or use losses and metrics of your own: file.py:function",
        )
    return labels.reshape(output.shape)


def make_loss(wanted: Component) -> Loss:
    """The loss that the configuration names.

    Raises:
        ConfigurationError: There is none, or it does not take the arguments.
    """
    kind = _class_of_torch(wanted)
    if kind is None:
        function = make_component(wanted, 2)
    else:
        arguments = ({"log_input": False} if wanted.name == "poisson" else {}) | wanted.arguments
        with errors_of_user_code(f"{wanted.name} with ({shown_arguments(arguments)})", "loss"):
            function = kind(**{name: _as_argument(value) for name, value in arguments.items()})
    if not callable(function):
        raise ConfigurationError(
            f"expected a loss, found {type(function).__name__}",
            where=f"loss: {wanted.name}",
            cure="return a torch.nn.Module or a function of (outputs, labels)",
        )
    module = of_each = function
    if isinstance(module, nn.Module):
        if any(parameter.requires_grad for parameter in module.parameters()):
            raise ConfigurationError(
                "the loss has parameters, which would not be trained",
                where=f"loss: {wanted.name}",
                cure="make them parameters of the model, which returns them with its outputs",
            )
        module.to(device())
        if hasattr(module, "reduction"):
            of_each = copy(module)
            vars(of_each)["reduction"] = "none"
    if kind is not None:
        return Loss(function.forward, of_each.forward, wanted.key, module)  # 2 µs faster than a call of the module
    return Loss(function, of_each, wanted.key, module if isinstance(module, nn.Module) else None)


def make_output_loss(wanted: Component, output: Shape, labels: np.ndarray) -> tuple[Loss, LabelRule | None]:
    """The loss of an output of this shape and such labels, and what it requires of them; see `make_loss`."""
    loss = make_loss(wanted)
    kind, rule = type(loss.module), None
    is_class_number = labels.dtype.kind in "biu" and loss.key != "categorical_crossentropy"
    has_shape_of_classes = labels.shape[1:] in (output[2:], (*output[2:], 1)) and labels.shape[1:] != output[1:]
    if kind in OF_CLASSES and (is_class_number or has_shape_of_classes):
        rule = LabelRule(loss.key, output, class_axis=1, ignored=getattr(loss.module, "ignore_index", None))
    elif kind in LOSSES.values():
        rule = LabelRule(loss.key, output, is_elementwise=True, is_probability=kind is nn.BCELoss)
    return replace(loss, rule=rule), rule


def _class_of_torch(wanted: Component) -> type[nn.Module] | None:
    """The class of `torch.nn` that a name refers to; None for a loss of the user."""
    found: Any = load_function(wanted.name) if wanted.is_custom else _named_class(wanted.name)
    if getattr(found, "__module__", "") == "torch.nn.functional":
        found = LOSSES.get(found.__name__, found)
    if found is None:
        cure = f"{suggestion(wanted.name, LOSSES)}; or write torch.nn:CLASS or file.py:function"
        raise ConfigurationError(f"PyTorch has no loss {wanted.name}", where="loss", cure=cure)
    return found if _is_of_torch(found) else None


def _named_class(name: str) -> type[nn.Module] | None:
    """The class of `torch.nn` for a name in `LOSSES`, or with this name; None if there is none."""
    found = LOSSES.get(name) or getattr(nn, name, None)
    return found if _is_of_torch(found) else None


def _is_of_torch(kind: Any) -> bool:
    return isinstance(kind, type) and kind.__module__ == "torch.nn.modules.loss"


def _as_argument(value: Any) -> Any:
    """Converts a list of numbers to a tensor, because PyTorch takes weights of classes as a tensor."""
    return torch.tensor(value, dtype=torch.float32) if isinstance(value, list) else value


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
