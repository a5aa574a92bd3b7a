"""What feeds a training and its validation, from memory or from files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpi_learn.data.samples.batches import Batch, Batches, as_batch, completed
from mpi_learn.data.samples.dataset import Dataset, shares
from mpi_learn.data.samples.latent_noise import VALIDATION
from mpi_learn.data.samples.streamed import StreamedSamples
from mpi_learn.data.samples.streamed_batches import StreamedBatches, streamed_validation


def make_batches(dataset: Dataset, **options: Any) -> Batches | StreamedBatches:
    """The batches of one worker; to be closed at the end.

    Args:
        dataset: What to train on.
        options: As of `Batches`.
    """
    is_streamed = isinstance(dataset.training, StreamedSamples)
    return (StreamedBatches if is_streamed else Batches)(dataset, **options)


def validation_batches(dataset: Dataset, *, batch_size: int, n_workers: int = 1, worker: int = 0) -> Iterator[Batch]:
    """A worker's share of the validation samples, in their order, in batches of at most `batch_size`; maybe none."""
    part = shares(dataset.n_validation, n_workers, worker)
    if isinstance(dataset.validation, StreamedSamples):
        yield from streamed_validation(dataset, part, batch_size)
        return
    for first in range(part.start, part.stop, batch_size):
        batch = as_batch(dataset.take_validation(slice(first, min(first + batch_size, part.stop))))
        yield next(completed(batch, dataset, VALIDATION, first))
