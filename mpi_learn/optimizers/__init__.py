"""Optimizers that change a flat float32 vector in place, fused in one pass over memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpi_learn.flat_layout import FlatLayout

if TYPE_CHECKING:
    from mpi_learn.optimizers.optimizer import Optimizer


def make_optimizer(options: Any, layout: FlatLayout, rate: Callable[[int], float] | None = None) -> Optimizer:
    """The optimizer that a section of the configuration names.

    Args:
        options: One of the classes of `mpi_learn.optimizers.configuration`.
        layout: Of the vector that it will change.
        rate: The learning rate of a 0-based step; None: always ``options.learning_rate``.
    """
    from mpi_learn.optimizers.rules.table import OPTIMIZERS  # loads numba, which reading a configuration must not

    return OPTIMIZERS[options.name](options, layout, rate or (lambda step: options.learning_rate))
