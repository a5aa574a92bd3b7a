"""The training and validation samples of one training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpi_learn.data.samples.added_input import AddedInput
from mpi_learn.data.samples.class_weights import ClassWeights
from mpi_learn.data.samples.streamed import Samples, Selection, StreamedSamples


@dataclass(frozen=True)
class Dataset:
    """The samples of one training.

    Folds and fractions are indices into the same arrays, so that they need no copies.

    Attributes:
        validation: The validation samples; may be the same object with other indices.
        training_indices: The indices in `training` that are used, shape (n_training,); None for all.
        validation_indices: The indices in `validation` that are used, shape (n_validation,); None for all.
        added_input: An input that no file contains.
    """

    training: Samples | StreamedSamples
    validation: Samples | StreamedSamples
    training_indices: np.ndarray | None = None
    validation_indices: np.ndarray | None = None
    added_input: AddedInput | None = None
    class_weights: ClassWeights | None = None

    @property
    def n_training(self) -> int:
        """The number of training samples."""
        return _count(self.training, self.training_indices)

    @property
    def n_validation(self) -> int:
        """The number of validation samples."""
        return _count(self.validation, self.validation_indices)

    def close(self) -> None:
        """Closes the files of streamed samples. The next access opens them again."""
        for samples in (self.training, self.validation):
            if isinstance(samples, StreamedSamples):
                samples.close()

    def take_training(self, positions: Selection) -> Samples:
        """A copy of the training samples at `positions` in [0, n_training), as returned by `Samples.take`."""
        return self.training.take(_chosen(self.training_indices, positions))

    def take_validation(self, positions: Selection) -> Samples:
        """A copy of the validation samples at `positions` in [0, n_validation), as returned by `Samples.take`."""
        return self.validation.take(_chosen(self.validation_indices, positions))

    def training_labels(self) -> tuple[np.ndarray, ...]:
        """The labels of the training samples, each of length n_training. Streamed samples are read for this."""
        labels = self.training.y
        if self.training_indices is None:
            return labels
        return tuple(array[self.training_indices] for array in labels)

    def fold(self, training_indices: np.ndarray, validation_indices: np.ndarray) -> Dataset:
        """A dataset with a part of these training samples for training and another part for validation.

        Args:
            training_indices: Shape (n,), positions in [0, n_training).
            validation_indices: Shape (m,), positions in [0, n_training).
        """
        part = np.arange(self.n_training) if self.training_indices is None else self.training_indices
        return Dataset(self.training, self.training, part[training_indices], part[validation_indices])

    def part(self, n_training: int, n_validation: int) -> Dataset:
        """A dataset with at most these numbers of samples: evenly spread ones, or the first ones of streamed samples.

        Spread samples have all classes; of streamed ones, consecutive samples are read together.
        """
        training = _part(self.training, self.training_indices, n_training)
        validation = _part(self.validation, self.validation_indices, n_validation)
        return replace(self, training_indices=training, validation_indices=validation)


def shares(n: int, n_workers: int, worker: int) -> slice:
    """The part of 0, 1, …, n - 1 of `worker` out of `n_workers`: contiguous, and as even as possible."""
    return slice(n * worker // n_workers, n * (worker + 1) // n_workers)


def weighted_shares(n: int, weights: Sequence[float], worker: int) -> slice:
    """The part of 0, 1, …, n - 1 of `worker`: contiguous, in proportion to its weight; at least one if `n` suffices.

    Args:
        weights: A positive number for each worker.
    """
    n_workers = len(weights)
    bounds = np.rint(n * np.cumsum([0.0, *weights]) / math.fsum(weights)).astype(int)
    if n >= n_workers:  # the bounds stay ascending: each is at least one above the last and below the next
        at = np.arange(n_workers + 1)
        bounds = np.maximum.accumulate(bounds - at) + at
        bounds = np.minimum(bounds, n - n_workers + at)
    return slice(int(bounds[worker]), int(bounds[worker + 1]))


def _count(samples: Samples | StreamedSamples, indices: np.ndarray | None) -> int:
    return len(samples) if indices is None else len(indices)


def _part(samples: Samples | StreamedSamples, indices: np.ndarray | None, n: int) -> np.ndarray | None:
    """The indices of at most `n` of the samples with these indices, in the same order."""
    n_all = _count(samples, indices)
    if n >= n_all:
        return indices
    positions = np.arange(n) if isinstance(samples, StreamedSamples) else np.arange(n) * n_all // n
    return positions if indices is None else indices[positions]


def _chosen(indices: np.ndarray | None, positions: Selection) -> Selection:
    return positions if indices is None else indices[positions]
