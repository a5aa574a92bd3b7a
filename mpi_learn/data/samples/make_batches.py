"""Creates the batches of training and validation, from memory or from files."""

from __future__ import annotations

from collections.abc import Iterator

from mpi_learn.data.samples.added_input import VALIDATION
from mpi_learn.data.samples.batches import Batches, BatchOptions, completed
from mpi_learn.data.samples.dataset import Dataset, shares
from mpi_learn.data.samples.in_memory import Samples
from mpi_learn.data.samples.streamed import StreamedSamples
from mpi_learn.data.samples.streamed_batches import StreamedBatches, streamed_validation


def make_batches(dataset: Dataset, options: BatchOptions) -> Batches | StreamedBatches:
    """The batches of one worker. The caller closes them at the end."""
    is_streamed = isinstance(dataset.training, StreamedSamples)
    return (StreamedBatches if is_streamed else Batches)(dataset, options)


def validation_batches(dataset: Dataset, *, batch_size: int, n_workers: int = 1, worker: int = 0) -> Iterator[Samples]:
    """A worker's share of the validation samples, in order, in batches of at most `batch_size`; may be empty."""
    part = shares(dataset.n_validation, n_workers, worker)
    if isinstance(dataset.validation, StreamedSamples):
        yield from streamed_validation(dataset, part, batch_size)
        return
    for first in range(part.start, part.stop, batch_size):
        batch = dataset.take_validation(slice(first, min(first + batch_size, part.stop)))
        yield next(completed(batch, dataset, VALIDATION, first))
