"""Losses of PyTorch models: by PyTorch's names, by Keras' names, or any callable of (outputs, targets)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from mpi_learn.errors import ConfigurationError
from mpi_learn.models.labels import LabelRule
from mpi_learn.models.outputs import Shape
from mpi_learn.settings.component import Component, make_component
from mpi_learn.settings.suggestions import suggestion

Function = Callable[..., Any]

NAMES = {
    "sparse_categorical_crossentropy": "cross_entropy",
    "categorical_crossentropy": "cross_entropy",
    "binary_crossentropy": "binary_cross_entropy",
    "mse": "mse_loss",
    "mean_squared_error": "mse_loss",
    "mae": "l1_loss",
    "mean_absolute_error": "l1_loss",
    "huber": "huber_loss",
    "smooth_l1": "smooth_l1_loss",
    "poisson": "poisson_nll_loss",
}
"""Names of Keras, and the functions of `torch.nn.functional` that they stand for. Cross entropies take logits.

``poisson`` takes rates, as in Keras. There is no ``kl_divergence``, because PyTorch's ``kl_div`` takes logarithms of
probabilities.
"""
OF_CLASSES = ("cross_entropy", "nll_loss")
OF_SHAPE = (
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss",
    "poisson_nll_loss", "kl_div", "soft_margin_loss",
)  # fmt: skip
"""Losses whose targets have the shape of the output."""
MODULES = {
    "CrossEntropyLoss": "cross_entropy",
    "NLLLoss": "nll_loss",
    "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "MSELoss": "mse_loss",
    "L1Loss": "l1_loss",
    "HuberLoss": "huber_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "PoissonNLLLoss": "poisson_nll_loss",
    "KLDivLoss": "kl_div",
}
"""Classes of `torch.nn`, and the functions that they call."""


@dataclass(frozen=True)
class Loss:
    """The loss of one output, or of all outputs together.

    Attributes:
        function: Of (outputs, targets).
        name: Its name in `torch.nn.functional`; empty for a user function.
        key: Its name in messages.
        rule: What it requires of the targets, if that is known.
    """

    function: Function
    name: str
    key: str
    rule: LabelRule | None = None

    def fitted(self, output: Shape, labels: np.ndarray) -> Loss:
        """The same for an output of this shape and such labels, with its rule."""
        is_class_number = labels.dtype.kind in "biu" and self.key != "categorical_crossentropy"
        if self.name in OF_CLASSES and (is_class_number or labels.shape[1:] == output[2:]):
            rule = LabelRule(self.key, output, class_axis=1, ignored=self._option("ignore_index", -100))
        else:
            is_probability = self.name == "binary_cross_entropy"
            is_elementwise = self.name in (*OF_CLASSES, *OF_SHAPE)
            rule = LabelRule(self.key, output, is_elementwise=is_elementwise, is_probability=is_probability)
        return replace(self, rule=rule) if self.name else self

    def mean(self, outputs: Any, targets: Any, weights: torch.Tensor | None = None) -> torch.Tensor:
        """The mean loss of a batch.

        Args:
            weights: (n,), (n, 1), or with the shape of the losses; the weighted losses are divided by their number.

        Raises:
            ConfigurationError: There are weights, and the loss gives no value for each of them.
        """
        if self.rule is not None and self.rule.class_axis is not None:
            targets = (targets.squeeze(-1) if targets.ndim == outputs.ndim else targets).long()
        elif self.rule is not None:
            targets = matched(targets, outputs)
        if weights is None:
            values: torch.Tensor = self.function(outputs, targets)
            return values if values.ndim == 0 else _checked(values, outputs, targets).float().mean()
        values = self._of_each(outputs, targets)
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
        return (values.float() * weights.reshape(*weights.shape, *[1] * (values.ndim - weights.ndim))).mean()

    def weight(self, targets: Any, n: int) -> float:
        """The divisor in `mean`: the number of samples, or the sum of the weights of their classes."""
        if self.rule is None or self.rule.class_axis is None:
            return float(n)
        kept, factors = targets[targets != self.rule.ignored], self._option("weight")
        return n * kept.numel() / max(targets.numel(), 1) if factors is None else float(factors[kept].sum())

    def buffers(self) -> list[torch.Tensor]:
        """The buffers of a loss that is a module."""
        return list(self.function.buffers()) if isinstance(self.function, torch.nn.Module) else []

    def _option(self, name: str, default: Any = None) -> Any:
        if isinstance(self.function, partial):
            return self.function.keywords.get(name, default)
        return getattr(self.function, name, default)

    def _of_each(self, outputs: Any, targets: Any) -> Any:
        """The values that `mean` reduces, if the loss can give them."""
        if isinstance(self.function, torch.nn.Module):
            function = copy(self.function)
            if hasattr(function, "reduction"):
                vars(function)["reduction"] = "none"
            return function(outputs, targets)
        return self.function(outputs, targets, **({"reduction": "none"} if self.name else {}))


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
    """Labels (n,) for an output (n, 1) as (n, 1), and in the output's dtype."""
    labels = labels.to(output.dtype)
    return labels.unsqueeze(-1) if labels.ndim == output.ndim - 1 and output.shape[-1] == 1 else labels


def make_loss(wanted: Component) -> Loss:
    """The loss that the configuration names.

    Raises:
        ConfigurationError: There is none, or it does not take the arguments.
    """
    if wanted.is_own:
        function = make_component(with_tensors(wanted) if wanted.name.startswith("torch.") else wanted, 2)
        if not callable(function):
            raise ConfigurationError(f"expected a loss, found {type(function).__name__}", where=f"loss: {wanted.name}")
        parameters = function.parameters() if isinstance(function, torch.nn.Module) else ()
        if any(parameter.requires_grad for parameter in parameters):
            raise ConfigurationError(
                "the loss has parameters, which would not be trained",
                where=f"loss: {wanted.name}",
                cure="make them parameters of the model, which returns them with its outputs",
            )
        return Loss(function, _name_of(function), wanted.key)
    name = NAMES.get(wanted.name, wanted.name)
    function = getattr(functional, name, None)
    if function is None or name.startswith("_"):
        cure = suggestion(wanted.name, [*NAMES, *OF_CLASSES, *OF_SHAPE])
        raise ConfigurationError(f"PyTorch has no loss {wanted.name}", where="loss", cure=cure)
    known = list(inspect.signature(function).parameters)[2:]
    if unknown := [name for name in wanted.arguments if name not in known]:
        raise ConfigurationError(
            f"{name} has no argument {unknown[0]}", where="loss", cure=f"its arguments are: {', '.join(known)}"
        )
    arguments = ({"log_input": False} if wanted.name == "poisson" else {}) | with_tensors(wanted).arguments
    return Loss(partial(function, **arguments) if arguments else function, name, wanted.key)


def fitted_loss(wanted: Component, output: Shape, labels: np.ndarray) -> tuple[Loss, LabelRule | None]:
    """The loss of an output of this shape and such labels, and what it requires of them; see `make_loss`."""
    loss = make_loss(wanted).fitted(output, labels)
    return loss, loss.rule


def with_tensors(wanted: Component) -> Component:
    """The same with lists of numbers as tensors, as PyTorch takes the weights of classes."""
    lists = {key: value for key, value in wanted.arguments.items() if isinstance(value, list)}
    tensors = {key: torch.tensor(value, dtype=torch.float32) for key, value in lists.items()}
    return Component.model_construct(name=wanted.name, **(wanted.arguments | tensors))


def _name_of(function: Any) -> str:
    """The name in `torch.nn.functional` of a loss from there, or of one of the modules of `torch.nn`."""
    if isinstance(function, torch.nn.Module):
        return MODULES.get(type(function).__name__, "") if type(function).__module__ == "torch.nn.modules.loss" else ""
    inner = function.func if isinstance(function, partial) else function
    return inner.__name__ if getattr(inner, "__module__", "") == "torch.nn.functional" else ""
