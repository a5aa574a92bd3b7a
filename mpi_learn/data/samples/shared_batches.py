"""The batches of a rank whose steps are the same for any number of ranks: of its shards, or of its share of each step.

A shard has the samples that a worker would have if there were as many workers as shards. Therefore neither the order of
the samples nor the windows of streamed samples depend on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from mpi_learn.data.samples.batches import Batches
from mpi_learn.data.samples.dataset import shares
from mpi_learn.data.samples.in_memory import Samples
from mpi_learn.data.samples.streamed_batches import StreamedBatches


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
    """The batches of consecutive shards.

    Args:
        first: The number of the first shard.
        of_shards: The batches of each shard, as those of a worker.
    """

    def __init__(self, first: int, of_shards: Sequence[Batches | StreamedBatches]) -> None:
        self._first, self._of_shards = first, of_shards
        self.n_steps, self.n_samples = of_shards[0].n_steps, of_shards[0].n_samples

    @property
    def least_samples(self) -> int:
        """The size of the smallest batch in an epoch, of all shards. Empty batches do not count."""
        return self._of_shards[0].least_samples

    def epoch(self, epoch: int) -> Iterator[Shards]:
        """The shards of each of the `n_steps` steps of an epoch, counted from 0."""
        for batches in zip(*(one.epoch(epoch) for one in self._of_shards), strict=True):
            yield Shards(self._first, batches)

    def close(self) -> None:
        """Ends the threads that read ahead."""
        with ExitStack() as stack:
            for one in self._of_shards:
                stack.callback(one.close)


class SharedStream:
    """A rank's share of each batch of streamed samples, which every rank reads as a whole.

    The samples of a step are anywhere in a window. To read a share of them alone would hardly take less time.

    Args:
        whole: The batches of all workers together.
        n_workers, worker: The number of workers that share each batch, and the number of this one.
    """

    def __init__(self, whole: StreamedBatches, n_workers: int, worker: int) -> None:
        self._whole, self._n_workers, self._worker = whole, n_workers, worker
        self.n_steps, self.n_samples = whole.n_steps, whole.n_samples

    @property
    def least_samples(self) -> int:
        """The size of the smallest batch in an epoch, of all workers. Empty batches do not count."""
        return self._whole.least_samples // self._n_workers or 1

    def epoch(self, epoch: int) -> Iterator[Samples]:
        """The `n_steps` batches of an epoch, counted from 0."""
        for batch in self._whole.epoch(epoch):
            yield batch.part(shares(len(batch), self._n_workers, self._worker))

    def close(self) -> None:
        """Ends the thread that reads ahead."""
        self._whole.close()
