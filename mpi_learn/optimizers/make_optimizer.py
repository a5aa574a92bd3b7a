"""Every optimizer of MPI Learn: name -> update rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.configuration import Fused
from mpi_learn.optimizers.device_rule import DeviceRule
from mpi_learn.optimizers.optimizer import RuleOptimizer
from mpi_learn.optimizers.rules.adadelta import AdaptiveDelta
from mpi_learn.optimizers.rules.adagrad import AdaptiveGradient
from mpi_learn.optimizers.rules.adam import AdaptiveMoments
from mpi_learn.optimizers.rules.lamb import LayerwiseAdaptiveMoments
from mpi_learn.optimizers.rules.lars import LayerwiseAdaptiveRates
from mpi_learn.optimizers.rules.rmsprop import RootMeanSquarePropagation
from mpi_learn.optimizers.rules.rule import Rule
from mpi_learn.optimizers.rules.sgd import StochasticGradientDescent
from mpi_learn.optimizers.used_arrays import UsedArraysRule

if TYPE_CHECKING:  # PyTorch is optional
    import torch

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
