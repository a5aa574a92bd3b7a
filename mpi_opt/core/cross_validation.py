"""K-fold cross-validation over samples: who trains on what, the same for every trial of a study."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from mpi_opt.errors import ConfigurationError

HOLD_OUT = 0.2
"""With one fold, the fraction of the samples that validates."""


def split(
    n_samples: int, fold: int, folds: int, seed: int, labels: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The samples of one fold.

    With `folds` > 1 every sample validates in exactly one fold; with one fold a seeded fifth of the samples validates.

    Args:
        n_samples: How many samples there are.
        fold: 0-based.
        folds: How many folds.
        seed: Of the study: every trial sees the same folds.
        labels: Shape (n_samples,) of classes or (n_samples, n_classes) one-hot: the folds get the classes in equal
            shares. Labels that are not classes, or of which one has fewer samples than folds, do not count.

    Returns:
        The training and the validation indices, int64, each sorted.

    Raises:
        ConfigurationError: There are fewer samples than folds.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    parts = folds if folds > 1 else round(1 / HOLD_OUT)
    if n_samples < parts:
        raise ConfigurationError(
            f"{n_samples} samples cannot be split into {parts} folds", where="folds", cure=f"folds: {max(n_samples, 1)}"
        )
    strata = None if labels is None else classes(np.asarray(labels), parts)
    splitter = (KFold if strata is None else StratifiedKFold)(parts, shuffle=True, random_state=seed % 2**32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs = list(splitter.split(np.empty(n_samples), strata))
    return pairs[fold]


def classes(labels: np.ndarray, at_least: int) -> np.ndarray | None:
    """`labels` as class numbers; None if they are not classes or one of them has fewer than `at_least` samples."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all():
        labels = labels.argmax(axis=1)
    if labels.ndim != 1 or (labels.dtype.kind == "f" and not np.equal(np.mod(labels, 1), 0).all()):
        return None
    _, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return numbers if counts.min() >= at_least and len(counts) > 1 else None


def number_of_folds(configuration: Mapping[str, Any]) -> int:
    """K in what the store keeps as a study's configuration: ``folds: 5`` or ``folds: {number: 5, …}``."""
    folds = configuration.get("folds") or 1
    return int(folds.get("number", 1) if isinstance(folds, Mapping) else folds)
