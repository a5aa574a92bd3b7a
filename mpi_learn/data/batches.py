"""Which samples a worker sees at which step of which epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mpi_learn.data.samples import Dataset, Samples, shares


@dataclass(frozen=True)
class Batch:
    """The samples of one step of one worker; of its own memory, so it may be kept.

    Args:
        x: One float32 array for each input, of shape (n_samples, …).
        y: One float32 or int64 array for each output, of shape (n_samples, …).
        n_samples: How many; may be 0.
    """

    x: tuple[np.ndarray, ...]
    y: tuple[np.ndarray, ...]
    n_samples: int


class Batches:
    """The batches of one worker.

    The samples of an epoch are put in one order, the same for all workers and for any number of them. Step t takes the
    next `batch_size` × `n_workers` of them, of which each worker takes its contiguous part; what the last step finds is
    dealt as evenly as possible. So every sample is used exactly once an epoch, and two workers together see at each
    step what one worker with the double batch sees.

    A batch is gathered when it is asked for: 128 images of 784 float32 take 0.05 ms, less than handing them over from a
    thread would.

    Args:
        dataset: What to train on.
        batch_size: Samples per worker and step.
        n_workers: How many workers share the samples.
        worker: Which of them this is, from 0.
        seed: Of the order; the same on all workers.
        shuffle: Whether each epoch has an order of its own; else the samples stay as they are.
    """

    def __init__(
        self, dataset: Dataset, *, batch_size: int, n_workers: int, worker: int, seed: int, shuffle: bool = True
    ) -> None:
        self.dataset, self.batch_size, self.n_workers, self.worker = dataset, batch_size, n_workers, worker
        self.seed, self.shuffle = seed, shuffle

    @property
    def n_steps(self) -> int:
        """Steps an epoch, the same for all workers."""
        return -(-self.dataset.n_training // (self.batch_size * self.n_workers))

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The `n_steps` batches of an epoch, counted from 0."""
        order = epoch_order(self.dataset.n_training, self.seed, epoch) if self.shuffle else None
        for step in range(self.n_steps):
            part = self._part(step)
            yield as_batch(self.dataset.take_training(part if order is None else order[part]))

    def _part(self, step: int) -> slice:
        width = self.batch_size * self.n_workers
        first = step * width
        part = shares(min(width, self.dataset.n_training - first), self.n_workers, self.worker)
        return slice(first + part.start, first + part.stop)


def validation_batches(dataset: Dataset, *, batch_size: int, n_workers: int = 1, worker: int = 0) -> Iterator[Batch]:
    """A worker's share of the validation samples, in their order, in batches of at most `batch_size`; maybe none."""
    part = shares(dataset.n_validation, n_workers, worker)
    for first in range(part.start, part.stop, batch_size):
        yield as_batch(dataset.take_validation(slice(first, min(first + batch_size, part.stop))))


def epoch_order(n: int, seed: int, epoch: int) -> np.ndarray:
    """The order of `n` samples in an epoch: a permutation, shape (n,), that depends on `seed` and `epoch` alone."""
    return np.random.default_rng([seed, epoch]).permutation(n)


def as_batch(samples: Samples) -> Batch:
    """The same arrays as a `Batch`."""
    return Batch(samples.x, samples.y, len(samples))
