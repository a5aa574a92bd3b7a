"""Creates the batches of training and validation, from memory or from files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mpi_learn.data.samples.added_input import VALIDATION
from mpi_learn.data.samples.batches import Batches, BatchOptions, completed
from mpi_learn.data.samples.dataset import Dataset, shares
from mpi_learn.data.samples.shared_batches import ShardedBatches, SharedStream
from mpi_learn.data.samples.streamed import Samples, StreamedSamples
from mpi_learn.data.samples.streamed_batches import StreamedBatches, streamed_validation

AnyBatches = Batches | StreamedBatches | ShardedBatches | SharedStream


def make_batches(dataset: Dataset, options: BatchOptions) -> AnyBatches:
    """The batches of one worker. The caller closes them at the end."""
    is_streamed = isinstance(dataset.training, StreamedSamples)
    if options.total is not None and is_streamed:
        whole = replace(options, total=None, speeds=(), batch_size=options.total, n_workers=1, worker=0)
        return SharedStream(StreamedBatches(dataset, whole), options)
    return (StreamedBatches if is_streamed else Batches)(dataset, options)


def make_sharded_batches(dataset: Dataset, options: BatchOptions, n_shards: int) -> ShardedBatches:
    """The batches of the shards that one worker computes: as even a part of them as possible.

    Args:
        options: With a `total`, of which each of `n_shards` has an equal part.
    """
    assert options.total is not None, "shards divide a total batch"
    as_worker = replace(
        options, total=None, speeds=(), batch_size=options.total // n_shards, n_workers=n_shards, n_windows=n_shards
    )
    made = StreamedBatches if isinstance(dataset.training, StreamedSamples) else Batches
    return ShardedBatches(n_shards, options, lambda shard: made(dataset, replace(as_worker, worker=shard)))


def validation_batches(dataset: Dataset, *, batch_size: int, n_workers: int = 1, worker: int = 0) -> Iterator[Samples]:
    """A worker's share of the validation samples, in order, in batches of at most `batch_size`; may be empty."""
    part = shares(dataset.n_validation, n_workers, worker)
    if isinstance(dataset.validation, StreamedSamples):
        yield from streamed_validation(dataset, part, batch_size)
        return
    for first in range(part.start, part.stop, batch_size):
        batch = dataset.take_validation(slice(first, min(first + batch_size, part.stop)))
        yield next(completed(batch, dataset, VALIDATION, first))
