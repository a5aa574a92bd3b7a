"""Optimizers on flat float32 vectors, each fused into one pass over memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.configuration import Fused

if TYPE_CHECKING:
    from mpi_learn.optimizers.optimizer import Optimizer


def make_optimizer(options: Fused, layout: FlatLayout, rate: Callable[[int], float] | None = None) -> Optimizer:
    """The fused optimizer that a section of the configuration names.

    Args:
        options: One of the classes of `mpi_learn.optimizers.configuration`.
        layout: Of the vector to update, with or without counts.
        rate: The learning rate of a step, counted from 0; None: always ``options.learning_rate``.
    """
    from mpi_learn.optimizers.optimizer import RuleOptimizer  # loads numba, which reading a configuration must not
    from mpi_learn.optimizers.rules.table import RULES
    from mpi_learn.optimizers.used_arrays import UsedArraysRule

    rule = UsedArraysRule(RULES[options.name](options, layout.arrays))
    return RuleOptimizer(options, rule, rate or (lambda step: options.learning_rate), options.weight_decay)
