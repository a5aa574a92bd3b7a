"""Whether a small or a large value of a metric is better."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal

LOWER_IS_BETTER = {
    "loss", "losses", "error", "errors", "mae", "mse", "rmse", "nrmse", "mape", "smape", "msle", "rmsle", "entropy",
    "crossentropy", "divergence", "hinge", "false", "perplexity", "poisson", "logcosh", "nll",
}  # fmt: skip
HIGHER_IS_BETTER = {
    "acc", "accuracy", "auc", "auroc", "precision", "recall", "f1", "fbeta", "iou", "miou", "r2", "similarity",
    "sensitivity", "specificity", "true",
}  # fmt: skip
"""Words in the names of metrics whose direction is known, besides those that end in ``loss`` or ``auc``.

For a name with words of both kinds, lower is better.
"""
PART = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")


def direction_of(metric: str) -> Literal["min", "max"] | None:
    """The better direction of a metric, by the words of its name; None if it is not known."""
    words = _words(metric)
    if words & LOWER_IS_BETTER or any(word.endswith("loss") for word in words):
        return "min"
    return "max" if words & HIGHER_IS_BETTER or any(word.endswith("auc") for word in words) else None


def _words(name: str) -> set[str]:
    """The words of ``val_top5_acc`` or ``MeanIoU``: parts with and without digits at their end, and pairs of parts."""
    parts = [part.lower() for part in PART.findall(name)]
    return {*parts, *(part.rstrip("0123456789") for part in parts), *map("".join, pairwise(parts))}
