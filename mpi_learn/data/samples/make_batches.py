"""Makes the batches of a worker, or of a rank that computes the batches of several workers.

A shard has the samples that a worker would have if there were as many workers as shards. Therefore neither the order of
the samples nor the windows of streamed samples depend on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from mpi_learn.data.samples.batches import Batches, BatchOptions, Dataset, completed, shares
from mpi_learn.data.samples.stored_samples import VALIDATION, Samples, StreamedSamples
from mpi_learn.data.samples.streamed_batches import StreamedBatches, streamed_validation


@dataclass(frozen=True)
class Shards:
    """The batches of a rank's shards in one step.

    Attributes:
        first: The number of the first of these shards in the step.
        batches: One for each shard; some may be empty.
    """

    first: int
    batches: tuple[Samples, ...]

    def __len__(self) -> int:
        """The number of samples."""
        return sum(map(len, self.batches))


class ShardedBatches:
    """The batches of consecutive shards, of which each worker computes a part.

    Args:
        n_shards: The number of shards of a step.
        options: The workers that share them.
        make: Makes the batches of the shard with a number, as those of a worker.
    """

    def __init__(self, n_shards: int, options: BatchOptions, make: Callable[[int], Batches | StreamedBatches]) -> None:
        self._n_shards, self._options, self._make = n_shards, options, make
        self._own: dict[int, Batches | StreamedBatches] = {}
        self._take()
        first = next(iter(self._own.values()))
        self.n_steps, self.n_samples, self.least_samples = first.n_steps, first.n_samples, first.least_samples

    def epoch(self, epoch: int) -> Iterator[Shards]:
        """The shards of each of the `n_steps` steps of an epoch, counted from 0."""
        first = min(self._own)
        for batches in zip(*(one.epoch(epoch) for one in self._own.values()), strict=True):
            yield Shards(first, batches)

    def balance(self, speeds: Sequence[float]) -> None:
        """Divides the shards of the next epochs in proportion to the speeds of the workers."""
        self._options = replace(self._options, speeds=tuple(speeds))
        self._take()

    def close(self) -> None:
        """Ends the threads that read ahead."""
        with ExitStack() as stack:
            for one in self._own.values():
                stack.callback(one.close)

    def _take(self) -> None:
        """Opens the batches of shards that are new in this worker's part, and closes those that are no longer."""
        part = self._options.share(self._n_shards)
        before, numbers = self._own, range(part.start, part.stop)
        self._own = {number: before[number] if number in before else self._make(number) for number in numbers}
        for number in before.keys() - self._own.keys():
            before[number].close()


class SharedStream:
    """A worker's share of each batch of streamed samples, which every worker reads as a whole.

    The samples of a step are anywhere in a window. To read a share of them alone would hardly take less time.

    Args:
        whole: The batches of all workers together.
        options: The workers that share each batch.
    """

    def __init__(self, whole: StreamedBatches, options: BatchOptions) -> None:
        self._whole, self._options = whole, options
        self.n_steps, self.n_samples = whole.n_steps, whole.n_samples

    @property
    def least_samples(self) -> int:
        """The size of the smallest batch in an epoch, of all workers. Empty batches do not count."""
        n_workers = self._options.n_workers
        may_become_one = self._options.speeds and n_workers > 1
        return 1 if may_become_one else self._whole.least_samples // n_workers or 1

    def epoch(self, epoch: int) -> Iterator[Samples]:
        """The `n_steps` batches of an epoch, counted from 0."""
        for batch in self._whole.epoch(epoch):
            yield batch.part(self._options.share(len(batch)))

    def balance(self, speeds: Sequence[float]) -> None:
        """Divides the steps of the next epochs in proportion to the speeds of the workers."""
        self._options = replace(self._options, speeds=tuple(speeds))

    def close(self) -> None:
        """Ends the thread that reads ahead."""
        self._whole.close()


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
