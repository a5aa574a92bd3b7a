"""Makes optimizers by name; the interface, and the optimizer that applies an update rule on a schedule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_learn.devices.device_vector import DeviceVector, Vector
from mpi_learn.flat_layout import FlatLayout, UpdateRule
from mpi_learn.optimizers.configuration import Fused, OptimizerOptions
from mpi_learn.optimizers.rules.adadelta import AdaptiveDelta
from mpi_learn.optimizers.rules.adagrad import AdaptiveGradient
from mpi_learn.optimizers.rules.adam import AdaptiveMoments
from mpi_learn.optimizers.rules.lamb import LayerwiseAdaptiveMoments
from mpi_learn.optimizers.rules.lars import LayerwiseAdaptiveRates
from mpi_learn.optimizers.rules.rmsprop import RootMeanSquarePropagation
from mpi_learn.optimizers.rules.rule import Float, Rule, Scale, clipped, sum_of_squares
from mpi_learn.optimizers.rules.sgd import StochasticGradientDescent
from mpi_learn.optimizers.wrapped_rules import DeviceRule, UsedArraysRule

if TYPE_CHECKING:  # PyTorch is optional
    import torch


class Optimizer(ABC):
    """Changes a flat vector of weights in place, on the host or on a device.

    Attributes:
        layout: The arrays in the vector.
    """

    layout: FlatLayout

    @abstractmethod
    def update(self, weights: Any, gradient: Any, scale: float = 1.0) -> None:
        """Makes one step.

        Args:
            weights: A `Vector`, (n,) float32, changed in place.
            gradient: A `Vector`, (n,) float32, unchanged on the host; its content on a device is lost. Counts of the
                arrays may follow it; arrays with count 0 do not change.
            scale: Factor of the gradient: 1 / the weight of the batch, by which the gradient was multiplied.
        """

    @abstractmethod
    def finalize(self, weights: Any) -> None:
        """Replaces the weights, (n,) float32, by those with which a training ends; see `UpdateRule.finalize`."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """The state, for a checkpoint. Resuming writes into these arrays."""


class RuleOptimizer(Optimizer):
    """Applies an update rule, with clipping, decoupled weight decay and a learning rate that may change every step.

    Args:
        options: Only those for clipping are used; the others belong to `rule`.
        rule: Makes the steps.
        rate: The learning rate of a step, counted from 0.
        weight_decay: λ of the decoupled weight decay.
    """

    def __init__(
        self, options: OptimizerOptions, rule: UpdateRule, rate: Callable[[int], float], weight_decay: float
    ) -> None:
        self.options, self.rule, self.rate, self.layout = options, rule, rate, rule.layout
        self.weight_decay = weight_decay
        self._n_steps = np.zeros(1, np.int64)  # an array, so that a checkpoint can fill it

    @property
    def n_steps(self) -> int:
        """Steps made so far."""
        return int(self._n_steps[0])

    def arrays(self) -> dict[str, np.ndarray]:
        return {"n_steps": self._n_steps, **self.rule.state}

    def update(self, weights: Vector, gradient: Vector, scale: float = 1.0) -> None:
        """Scales the gradient, clips its elements, then its norm, and applies the rule."""
        if isinstance(gradient, DeviceVector):
            clipped_scale = clip_on_device(gradient, scale, self.options)
            rate = self._next_rate()
            self.rule.apply(weights, gradient, rate, clipped_scale, 1 - rate * self.weight_decay)
            return
        options = self.options
        if options.clip_value is not None:
            gradient = clipped(gradient, Float(scale), Float(options.clip_value))
            scale = 1.0
        if options.clip_norm is not None:
            norm = abs(scale) * float(np.sqrt(sum_of_squares(gradient[: self.layout.size])))
            scale *= min(1.0, options.clip_norm / max(norm, 1e-30))  # a gradient of zeros has the norm 0
        rate = self._next_rate()
        weight_factor = Float(1 - rate * self.weight_decay)
        self.rule.apply(weights, gradient, Float(rate), Float(scale), weight_factor)

    def finalize(self, weights: Any) -> None:
        self.rule.finalize(weights)

    def _next_rate(self) -> float:
        rate = float(self.rate(self.n_steps))
        self._n_steps += 1
        return rate


def clip_on_device(gradient: DeviceVector, scale: float, options: OptimizerOptions) -> Scale:
    """Clips the elements of a gradient in place, then its norm; returns its factor, with that of the norm.

    The norm stays on the device: the factor is a tensor if the norm is clipped.
    """
    front, scale = gradient.front, float(np.float32(scale * gradient.factor))  # exactly 1 where the two cancel
    if options.clip_value is not None:
        front.mul_(scale).clamp_(-options.clip_value, options.clip_value)
        scale = 1.0
    if options.clip_norm is None:
        return scale
    norm = front.norm() * abs(scale)
    return scale * (options.clip_norm / norm.clamp(min=1e-30)).clamp(max=1.0)


RULES: Mapping[str, type[Rule]] = {
    "sgd": StochasticGradientDescent,
    "adam": AdaptiveMoments,
    "adamw": AdaptiveMoments,
    "rmsprop": RootMeanSquarePropagation,
    "adadelta": AdaptiveDelta,
    "adagrad": AdaptiveGradient,
    "lars": LayerwiseAdaptiveRates,
    "lamb": LayerwiseAdaptiveMoments,
}
"""Each class takes the section ``optimizer:`` and the layout of the vector."""


def make_optimizer(
    options: Fused,
    layout: FlatLayout,
    rate: Callable[[int], float] | None = None,
    device: torch.device | None = None,
) -> RuleOptimizer:
    """The optimizer that a section of the configuration names.

    Args:
        options: One of the classes of `mpi_learn.optimizers.configuration`.
        layout: Layout of the vector to update, with or without counts.
        rate: The learning rate of a step, counted from 0; None: always ``options.learning_rate``.
        device: Where the vectors are that it updates, each a `DeviceVector`; None: arrays on the host.
    """
    rule = RULES[options.name](options, layout.without_counts)
    used = UsedArraysRule(rule) if device is None else DeviceRule(rule, device)
    return RuleOptimizer(options, used, rate or (lambda step: options.learning_rate), options.weight_decay)
