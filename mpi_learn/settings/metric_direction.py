"""Whether a small or a large value of a metric is better."""

from __future__ import annotations

from typing import Literal

LOWER_IS_BETTER = (
    "loss", "error", "mae", "mse", "mape", "msle", "entropy", "divergence", "hinge", "false", "perplexity", "poisson",
    "logcosh", "log_cosh",
)  # fmt: skip
HIGHER_IS_BETTER = (
    "acc", "auc", "precision", "recall", "f1", "fbeta", "iou", "r2", "similarity", "sensitivity", "specificity", "true",
)  # fmt: skip
"""Parts of the names of metrics whose direction is known. For a name with parts of both kinds, lower is better."""


def direction_of(metric: str) -> Literal["min", "max"] | None:
    """The better direction of a metric, by its name; None if it is not known."""
    name = metric.lower()
    if any(part in name for part in LOWER_IS_BETTER):
        return "min"
    return "max" if any(part in name for part in HIGHER_IS_BETTER) else None
