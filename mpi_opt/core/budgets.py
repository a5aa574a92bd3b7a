"""Trials of one study that were trained for different numbers of epochs: which of them can be its best one."""

from __future__ import annotations

import math

IN_STAGES = ("population",)
"""Strategies whose trials are stages of longer trainings: a trial with fewer epochs was not ended early."""


def epochs(budget: float | None) -> float:
    """The number of epochs after which a training ends; infinite without a budget: all epochs of the configuration."""
    return math.inf if budget is None else budget


def rank_of_length(budget: float | None, strategy: str) -> float:
    """Smaller for a trial that precedes others whatever their figures of merit: one that was trained for more epochs.

    A short training, for example of a lower rung of `halving`, shows whether a longer one is worth while. Its figure of
    merit is not that of the network that the user has configured.
    """
    return 0.0 if strategy in IN_STAGES else -epochs(budget)
