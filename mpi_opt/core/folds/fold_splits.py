"""K-fold cross-validation over samples, with the same folds for every trial of a study."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from mpi_opt.core.arrays import Ints
from mpi_opt.errors import ConfigurationError

HOLD_OUT = 0.2
"""With one fold, the fraction of the samples for validation."""


def split(n_samples: int, fold: int, n_folds: int, seed: int, labels: np.ndarray | None = None) -> tuple[Ints, Ints]:
    """The training and the validation samples of one fold.

    With `n_folds` > 1 each sample is a validation sample in exactly one fold. With one fold, a random fifth of the
    samples is used for validation.

    Args:
        n_samples: Number of samples.
        fold: 0-based index of the fold.
        n_folds: Number of folds.
        seed: The study's seed, so that all trials have the same folds.
        labels: Shape (n_samples,) of classes or (n_samples, n_classes) one-hot. The folds are stratified by class.
            Labels that are not classes, or with fewer samples of a class than folds, are ignored.

    Returns:
        The training and the validation indices, int64, both sorted.

    Raises:
        ConfigurationError: There are fewer samples than folds, or fewer than five with one fold.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    parts = n_folds if n_folds > 1 else round(1 / HOLD_OUT)
    if n_samples < parts:
        into = f"{n_folds} folds" if n_folds > 1 else f"training and validation samples: one fold needs {parts}"
        cure = f"folds: {n_samples}" if n_samples > 1 else "give more samples, or validation data of their own"
        raise ConfigurationError(f"{n_samples} samples cannot be split into {into}", where="folds", cure=cure)
    strata = None if labels is None else classes(np.asarray(labels), parts)
    splitter = (KFold if strata is None else StratifiedKFold)(parts, shuffle=True, random_state=seed % 2**32)
    with warnings.catch_warnings():  # scikit-learn warns of classes with fewer samples than folds
        warnings.simplefilter("ignore")
        pairs: list[tuple[Ints, Ints]] = list(splitter.split(np.empty(n_samples), strata))
    return pairs[fold]


def classes(labels: np.ndarray, at_least: int) -> Ints | None:
    """`labels` as class numbers, shape (n_samples,).

    Returns:
        None if the labels are not classes, if there is only one class, or if a class has fewer than `at_least` samples.
    """
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if _is_one_hot(labels):
        labels = labels.argmax(axis=1)
    if labels.ndim != 1 or (labels.dtype.kind == "f" and not np.equal(np.mod(labels, 1), 0).all()):
        return None
    _, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return numbers if counts.min() >= at_least and len(counts) > 1 else None


def _is_one_hot(labels: np.ndarray) -> bool:
    return labels.ndim == 2 and bool(np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all())


def number_of_folds(configuration: Mapping[str, Any]) -> int:
    """K of a study's stored configuration, which has ``folds: 5`` or ``folds: {number: 5, …}``."""
    folds = configuration.get("folds") or 1
    return int(folds.get("number", 1) if isinstance(folds, Mapping) else folds)
