"""Names that users write: similar known names, keys of other libraries, and the direction of a metric.

Only keys whose equivalent is not the nearest known name: a suggestion by spelling would be ``loss_weights`` for
``class_weight``, ``trace`` for ``strategy``, and none for ``lr``, ``amp`` and ``labels``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Literal

N_LISTED = 30

MISSPELT_LIKENESS = 0.78
"""Names of at least this likeness differ by a typing error: `nam` and `nmae` are `name`, `game` and `time` are not."""


def nearest(name: str, known: Iterable[str], min_likeness: float = 0.5) -> str | None:
    """The name in `known` that is most similar to `name`; None if none has a likeness, 0 to 1.2, of `min_likeness`."""
    best = max(known, key=lambda other: _likeness(name.lower(), other.lower()), default=None)
    return best if best is not None and _likeness(name.lower(), best.lower()) >= min_likeness else None


def nearest_file(path: Path, pattern: str = "*") -> str | None:
    """The name of a file beside `path` that fits `pattern` and is most similar; None if none is similar.

    Suffixes do not count: they are the same, and would make all names similar.
    """
    names = {other.stem: other.name for other in sorted(path.parent.glob(pattern)) if other.is_file()}
    near = nearest(path.stem, names, 0.7)
    return None if near is None else names[near]


def suggestion(name: str, known: Iterable[str], listing: str = "known") -> str:
    """``did you mean adam? known: sgd, adam``; `listing` is the word before the list of names."""
    names = list(known)
    near = nearest(name, names)
    more = f" and {len(names) - N_LISTED} more" if len(names) > N_LISTED else ""
    return f"{f'did you mean {near}? ' if near else ''}{listing}: {', '.join(names[:N_LISTED]) or 'none'}{more}"


def _likeness(name: str, other: str) -> float:
    """Similarity from 0 to 1.2; a common beginning counts extra, so that ``adag`` is adagrad rather than adam."""
    n_alike = next((i for i, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), min(len(name), len(other)))
    return difflib.SequenceMatcher(None, name, other).ratio() + 0.2 * n_alike / max(len(name), 1)


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


_EVERY_STEP = "an epoch is always one pass over all samples"
_RANKS = "the number of ranks is that of mpirun -np N, or of mpi-learn train -n N"

TRAINING = {
    "accumulate_grad_batches": "write `algorithm: {name: allreduce, accumulate: N}`",
    "amp": "write `precision: mixed_bfloat16`",
    "backward_passes_per_step": "write `algorithm: {name: allreduce, accumulate: N}`",
    "class_weight": "write `data: {class_weight: {0: 1.0, 1: 5.0}}`, or `class_weight: balanced`",
    "compression": "write `algorithm: {name: allreduce, compression: float16}`",
    "criterion": "write `loss: NAME`",
    "devices": _RANKS,
    "drop_last": "write `data: {drop_last: true}`",
    "features": "write `data: {features: NAME}`",
    "fp16": "write `precision: mixed_bfloat16`, or for PyTorch `precision: mixed_float16`",
    "global_batch_size": "write `batch_size: {total: N}`",
    "gradient_clip_val": "write `optimizer: {clip_norm: X}`, or `clip_value`",
    "initial_epoch": "write `checkpoint: {path: FOLDER}`: the same command continues from the last checkpoint",
    "jit_compile": "write `xla: true`",
    "labels": "write `data: {labels: NAME}`",
    "learning_rate": "write `optimizer: {learning_rate: X}`",
    "lr": "write `optimizer: {learning_rate: X}`",
    "lr_scheduler": "write `optimizer: {schedule: …}`",
    "mixed_precision": "write `precision: mixed_bfloat16`",
    "num_workers": _RANKS,
    "op": "gradients are averaged; other rules are those of `algorithm:`",
    "run_eagerly": "steps are always compiled",
    "sample_weight": "write `data: {weights: NAME}`",
    "schedule": "write `optimizer: {schedule: …}`",
    "shuffle": "write `data: {shuffle: true}`",
    "steps_per_epoch": _EVERY_STEP,
    "steps_per_execution": "one step is one call; leave it out",
    "strategy": "write `algorithm: {name: …}`",
    "validation_batch_size": "write `validation: {batch_size: N}`",
    "validation_data": "write `data: {validation: [FILES]}`",
    "validation_freq": "write `validation: {every: N}`",
    "validation_split": "write `data: {validation_fraction: X}`",
    "validation_steps": "all validation samples are evaluated",
    "verbose": "leave it out; one line is printed per epoch, and a live view on a terminal",
    "weights": "write `data: {weights: NAME}`",
    "workers": _RANKS,
}
"""Keys at the top level of a ``training.yaml``."""

DATA = {
    "batch_size": "write it at the top level, outside of data",
    "sample_weight": "write `weights: NAME`",
    "steps_per_epoch": _EVERY_STEP,
    "targets": "write `labels: NAME`",
    "test": "write `validation: [FILES]`",
    "validation_data": "write `validation: [FILES]`",
    "validation_split": "write `validation_fraction: X`",
    "x": "write `features: NAME`",
    "y": "write `labels: NAME`",
}
"""Keys in the section ``data:``."""

OPTIMIZER = {
    "betas": "write `beta_1: X, beta_2: Y`",
    "clipnorm": "write `clip_norm: X` for the norm over all weights; for that of each array, as in Keras, write "
    "`name: keras.optimizers:SGD, clipnorm: X`",
    "clipvalue": "write `clip_value: X`",
    "global_clipnorm": "write `clip_norm: X`",
    "max_grad_norm": "write `clip_norm: X`",
    "lr": "write `learning_rate: X`",
    "warmup_steps": "write `schedule: {warmup_epochs: N}`",
}
"""Keys in the section ``optimizer:``."""
