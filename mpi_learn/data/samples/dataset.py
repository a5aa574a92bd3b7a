"""Which samples are trained on, and which are validated on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_learn.data.samples.class_weights import ClassWeights
from mpi_learn.data.samples.in_memory import Samples, Selection
from mpi_learn.data.samples.latent_noise import Noise
from mpi_learn.data.samples.streamed import StreamedSamples


@dataclass(frozen=True)
class Dataset:
    """The samples of one training.

    Folds and fractions are views: indices into the same arrays, so that they need no memory.

    Attributes:
        training: The samples to train on.
        validation: The samples to validate on; may be the same object with other indices.
        training_indices: Shape (n_training,), which of `training` are used; None is all of them.
        validation_indices: Shape (n_validation,), the same for `validation`.
        noise: A further input of each sample, for a model that makes samples from noise.
        class_weights: Weights of the training samples by their class.
    """

    training: Samples | StreamedSamples
    validation: Samples | StreamedSamples
    training_indices: np.ndarray | None = None
    validation_indices: np.ndarray | None = None
    noise: Noise | None = None
    class_weights: ClassWeights | None = None

    @property
    def n_training(self) -> int:
        """How many samples are trained on."""
        return _count(self.training, self.training_indices)

    @property
    def n_validation(self) -> int:
        """How many samples are validated on."""
        return _count(self.validation, self.validation_indices)

    def take_training(self, positions: Selection) -> Samples:
        """A copy of the training samples at `positions` in [0, n_training), as `Samples.take` gives them."""
        return self.training.take(_through(self.training_indices, positions))

    def take_validation(self, positions: Selection) -> Samples:
        """A copy of the validation samples at `positions` in [0, n_validation), as `Samples.take` gives them."""
        return self.validation.take(_through(self.validation_indices, positions))

    def training_labels(self) -> tuple[np.ndarray, ...]:
        """The outputs of the training samples, each of length n_training; for folds that keep the classes' shares."""
        labels = self.training.y
        if self.training_indices is None:
            return labels
        return tuple(array[self.training_indices] for array in labels)

    def fold(self, training_indices: np.ndarray, validation_indices: np.ndarray) -> Dataset:
        """A dataset that trains on a part of these training samples and validates on another part of them.

        Args:
            training_indices: Shape (n,), positions in [0, n_training).
            validation_indices: Shape (m,), positions in [0, n_training).
        """
        return Dataset(
            self.training,
            self.training,
            _through(self.training_indices, np.asarray(training_indices)),
            _through(self.training_indices, np.asarray(validation_indices)),
        )


def shares(n: int, n_workers: int, worker: int) -> slice:
    """The part of 0, 1, …, n - 1 that `worker` of `n_workers` takes: contiguous, and as even as possible."""
    return slice(n * worker // n_workers, n * (worker + 1) // n_workers)


def _count(samples: Samples | StreamedSamples, indices: np.ndarray | None) -> int:
    return len(samples) if indices is None else len(indices)


def _through(indices: np.ndarray | None, positions: Selection) -> Selection:
    return positions if indices is None else indices[positions]
