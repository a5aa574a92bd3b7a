"""A dataset, for training and validation, and the batches of its samples in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpi_learn.data.samples.stored_samples import (
    VALIDATION,
    AddedInput,
    ClassWeights,
    Samples,
    Selection,
    StreamedSamples,
)

EVEN_SHARE_PARTS = 32


@dataclass(frozen=True)
class BatchOptions:
    """How the samples of an epoch are divided into batches.

    Attributes:
        batch_size: Samples per worker and step. With `total`, the largest number of them.
        n_workers: The number of workers that share the samples.
        worker: The number of this worker, from 0.
        seed: The seed of the order; the same on all workers.
        shuffle: Whether each epoch has a random order; otherwise the samples keep their order.
        drop_last: Whether to leave out samples that do not fill a batch of each worker.
        total: Samples per step, which the workers share as evenly as possible; None: `batch_size` for each worker.
        n_windows: Number of workers that share the memory of one window of streamed samples.
        speeds: With `total`, the speed of each worker, to which its share is proportional; empty: shares are equal.
    """

    batch_size: int
    n_workers: int = 1
    worker: int = 0
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    total: int | None = None
    n_windows: int = 1
    speeds: tuple[float, ...] = ()

    @property
    def step_samples(self) -> int:
        """Samples per step, of all workers together."""
        return self.batch_size * self.n_workers if self.total is None else self.total

    def share(self, n: int) -> slice:
        """This worker's part of `n` samples, or shards."""
        if self.speeds:
            return weighted_shares(n, self.speeds, self.worker)
        return shares(n, self.n_workers, self.worker)

    def n_batches(self, dataset: Dataset) -> int:
        """Batches of each worker per epoch. With an added input, each batch may be used in several steps."""
        n = dataset.n_training
        return n // self.step_samples if self.drop_last else -(-n // self.step_samples)

    def n_steps(self, dataset: Dataset) -> int:
        """Steps per epoch, the same for all workers."""
        return self.n_batches(dataset) * (1 if dataset.added_input is None else dataset.added_input.turns)

    def n_samples(self, dataset: Dataset) -> int:
        """Samples per epoch, of all workers together."""
        return min(dataset.n_training, self.n_batches(dataset) * self.step_samples)

    def order(self, n: int, *keys: int) -> np.ndarray:
        """0, …, n - 1 in a random order that depends on the seed and `keys`; in ascending order without shuffling."""
        return np.random.default_rng([self.seed, *keys]).permutation(n) if self.shuffle else np.arange(n)


class Batches:
    """The batches of one worker.

    All workers use the same order of the samples in an epoch, which does not depend on the number of workers. Each step
    takes the next `step_samples`, and each worker a contiguous part of them. The samples of the last step, and of each
    step with a `total`, are distributed as evenly as possible. Every sample is therefore used exactly once per epoch,
    and at each step two workers together see the same samples as one worker with twice the batch size.

    If the dataset has an added input, each batch is returned once per turn, each time with other values as its last
    input.

    A batch is a copy of its samples and may be empty. It is copied on request, without a thread: 128 images of 784
    float32 take 0.05 ms, less than a transfer from a thread. `Samples.copy_rows` copies it.
    """

    def __init__(self, dataset: Dataset, options: BatchOptions) -> None:
        self.dataset, self.options = dataset, options
        self.n_steps, self.n_samples = options.n_steps(dataset), options.n_samples(dataset)
        self._order: tuple[int, np.ndarray] | None = None

    @property
    def least_samples(self) -> int:
        """The size of the smallest batch in an epoch, of all workers. Empty batches do not count."""
        if self.options.speeds and self.options.n_workers > 1:  # shares may become as small as this
            return 1
        n, width = self.dataset.n_training, self.options.step_samples
        rest = n - (self.options.n_batches(self.dataset) - 1) * width
        return min(rest, width) // self.options.n_workers or 1

    def epoch(self, epoch: int) -> Iterator[Samples]:
        """The `n_steps` batches of an epoch, counted from 0."""
        for step in range(self.options.n_batches(self.dataset)):
            yield from self._taken(epoch, self._part(step))

    def dealt(self, epoch: int, next_part: Callable[[], slice | None]) -> Iterator[Samples]:
        """The batches of all parts that a `Dealer` deals to this worker.

        Args:
            next_part: Returns the next positions in the epoch's order; None when all are dealt.
        """
        size = self.options.batch_size
        while (part := next_part()) is not None:
            for first in range(part.start, part.stop, size):
                yield from self._taken(epoch, slice(first, min(first + size, part.stop)))

    def balance(self, speeds: Sequence[float]) -> None:
        """Divides the steps of the next epochs in proportion to the speeds of the workers."""
        self.options = replace(self.options, speeds=tuple(speeds))

    def close(self) -> None:
        """Has no effect: there is nothing to release."""

    def _taken(self, epoch: int, part: slice) -> Iterator[Samples]:
        batch = self.dataset.take_training(self._order_of(epoch)[part] if self.options.shuffle else part)
        return completed(batch, self.dataset, epoch, part.start)

    def _order_of(self, epoch: int) -> np.ndarray:
        """The order of the samples in an epoch: a permutation that depends on the seed and the epoch alone."""
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self.options.order(self.dataset.n_training, epoch)
        return self._order[1]

    def _part(self, step: int) -> slice:
        width = self.options.step_samples
        first = step * width
        part = self.options.share(min(width, self.dataset.n_training - first))
        return slice(first + part.start, first + part.stop)


class Dealer:
    """Deals the samples of one epoch in chunks to free workers; exists on the one rank that all workers ask.

    At the end of the epoch, the other workers wait for the worker with the last chunk. Chunks are therefore small: at
    most an even share of the epoch divided by `EVEN_SHARE_PARTS`, but at least one batch.

    Args:
        n_samples: Samples per epoch.
        batch_size: Chunks contain whole batches of this size, except the last one.
    """

    def __init__(self, n_samples: int, *, batch_size: int, n_workers: int) -> None:
        self.n_samples = n_samples
        self.chunk_size = batch_size * max(1, n_samples // (n_workers * EVEN_SHARE_PARTS * batch_size))
        self._first = 0

    def deal(self) -> slice | None:
        """The next chunk, as positions in the epoch's order; None when all are dealt."""
        if self._first >= self.n_samples:
            return None
        part = slice(self._first, min(self._first + self.chunk_size, self.n_samples))
        self._first = part.stop
        return part


def completed(batch: Samples, dataset: Dataset, epoch: int, first: int) -> Iterator[Samples]:
    """The batch with the class weights and the added input of the dataset; with the latter, once per turn.

    Args:
        epoch: The epoch, or `VALIDATION`.
        first: The position of its first sample in the order of `epoch`.
    """
    if dataset.class_weights is not None:
        batch = replace(batch, weights=dataset.class_weights.applied(batch.y, batch.weights, epoch != VALIDATION))
    if dataset.added_input is None:
        yield batch
        return
    for values in dataset.added_input.draw(epoch, first, len(batch)):
        yield replace(batch, x=(*batch.x, values))


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
