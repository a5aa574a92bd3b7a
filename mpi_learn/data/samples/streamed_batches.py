"""Batches of samples in files: shuffled in blocks and windows, and read ahead by a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar, cast

import numpy as np

from mpi_learn.data.samples.batches import BatchOptions, Dataset, completed, shares
from mpi_learn.data.samples.stored_samples import VALIDATION, Samples, StreamedSamples, window_samples


@dataclass(frozen=True)
class Window:
    """Samples that are read and shuffled together: positions `start` to `stop` - 1 of an epoch's order of blocks."""

    epoch: int
    start: int
    stop: int


class StreamedBatches:
    """The batches of one worker, like `Batches`, of samples that stay in their files.

    Each epoch has a random order of blocks of consecutive samples. Each worker processes its contiguous share of that
    order in windows of many blocks. A window is read as a whole, and its samples are shuffled. Each sample is therefore
    used exactly once per epoch, all workers together read each file once, and the order depends only on seed, epoch,
    `n_workers` and the configuration, not on the speed of workers.

    While a window is used, the next one is read, also across epochs. Two windows are in memory.

    Without shuffling, each worker reads its share in order.

    Args:
        dataset: Its training samples are `StreamedSamples`. Its training indices, if any, are in ascending order.
        options: As for `Batches`.
    """

    def __init__(self, dataset: Dataset, options: BatchOptions) -> None:
        self.dataset, self.options = dataset, options
        self.n_steps, self.n_samples = options.n_steps(dataset), options.n_samples(dataset)
        self.samples = cast(StreamedSamples, dataset.training)
        indices, blocks = dataset.training_indices, self.samples.blocks
        self._blocks = blocks if indices is None else np.searchsorted(indices, blocks)
        n_at_once = window_samples(self.samples.plan, self.samples.window_bytes // options.n_windows)
        self._width = whole_batches(n_at_once, options.batch_size)
        self._order: tuple[int, np.ndarray, np.ndarray] | None = None
        self._ahead: ReadAhead[Window, tuple[Samples, np.ndarray]] = ReadAhead(self._read)

    @property
    def least_samples(self) -> int:
        """The size of the smallest batch in an epoch, of all workers. Empty batches do not count."""
        size, n_workers = self.options.batch_size, self.options.n_workers
        if self.options.drop_last:
            return size
        parts = [shares(self.dataset.n_training, n_workers, worker) for worker in range(n_workers)]
        return min((part.stop - part.start) % size or size for part in parts)

    def epoch(self, epoch: int) -> Iterator[Samples]:
        """The `n_steps` batches of an epoch, counted from 0."""
        options = self.options
        share = shares(self.dataset.n_training, options.n_workers, options.worker)
        if options.drop_last:
            share = slice(share.start, share.start + options.n_batches(self.dataset) * options.batch_size)
        n_left = self.n_steps
        for batch in self._batches(self._windows(epoch, share), next(self._windows(epoch + 1, share), None)):
            n_left -= 1
            yield batch
        # empty batches: all workers make the same number of steps, in which they wait for one another
        while n_left:
            for batch in completed(self.samples.buffers(0).take(slice(None)), self.dataset, epoch, 0):
                n_left -= 1
                yield batch

    def dealt(self, epoch: int, next_part: Callable[[], slice | None]) -> Iterator[Samples]:
        """The batches of all parts that a `Dealer` deals to this worker, requested one part ahead.

        Args:
            next_part: Returns the next positions in the epoch's order; None when all are dealt.
        """
        windows = (self._windows(epoch, part) for part in iter(next_part, None))
        return self._batches(chain.from_iterable(windows))

    def close(self) -> None:
        """Ends the thread."""
        self._ahead.close()

    def _windows(self, epoch: int, part: slice) -> Iterator[Window]:
        for start in range(part.start, part.stop, self._width):
            yield Window(epoch, start, min(start + self._width, part.stop))

    def _batches(self, windows: Iterable[Window], then: Window | None = None) -> Iterator[Samples]:
        """The batches of `windows`; the first window that follows is `then`."""
        size = self.options.batch_size
        for window, (samples, order) in self._ahead.pieces(windows, then):
            for first in range(0, len(order), size):
                batch = samples.take(order[first : first + size])
                yield from completed(batch, self.dataset, window.epoch, window.start + first)

    def _read(self, window: Window) -> tuple[Samples, np.ndarray]:
        """The samples of a window and their order. Runs in the thread."""
        buffers, at = self.samples.buffers(window.stop - window.start), 0
        for start, stop in self._spans(window):
            if self._ahead.is_closed:
                raise CancelledError
            here = buffers.part(slice(at, at + stop - start))
            self.samples.fill(here, start, stop, self.dataset.training_indices)
            at += stop - start
        return buffers, self.options.order(at, window.epoch, 1 + window.start)

    def _spans(self, window: Window) -> list[tuple[int, int]]:
        """The training samples of a window as ascending ranges (start, stop)."""
        blocks, starts = self._order_of(window.epoch)
        first = int(np.searchsorted(starts, window.start, "right")) - 1
        spans = []
        for index in range(first, len(blocks)):
            if starts[index] >= window.stop:
                break
            start = int(self._blocks[blocks[index]] - starts[index])  # from positions to samples
            span = max(window.start, int(starts[index])), min(window.stop, int(starts[index + 1]))
            spans.append((start + span[0], start + span[1]))
        return sorted(span for span in spans if span[0] < span[1])

    def _order_of(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The blocks in an epoch's order, and the starting position of each, followed by the end."""
        if self._order is None or self._order[0] != epoch:
            blocks = self.options.order(len(self._blocks) - 1, epoch)
            starts = np.concatenate([[0], np.cumsum(np.diff(self._blocks)[blocks])])
            self._order = epoch, blocks, starts
        return self._order[1:]


def streamed_validation(dataset: Dataset, part: slice, batch_size: int) -> Iterator[Samples]:
    """The validation samples at positions `part`, in their order, read ahead by a thread that ends with them."""
    samples = cast(StreamedSamples, dataset.validation)
    width = whole_batches(samples.window_samples, batch_size)
    windows = [slice(first, min(first + width, part.stop)) for first in range(part.start, part.stop, width)]

    def read(window: slice) -> Samples:
        return samples.read(window.start, window.stop, dataset.validation_indices)

    with closing(ReadAhead(read)) as ahead:
        for window, found in ahead.pieces(windows):
            for first in range(0, len(found), batch_size):
                batch = found.take(slice(first, first + batch_size))
                yield next(completed(batch, dataset, VALIDATION, window.start + first))


def whole_batches(n_samples: int, batch_size: int) -> int:
    """`n_samples`, made a multiple of `batch_size`; one batch at least."""
    return max(1, n_samples // batch_size) * batch_size


Place = TypeVar("Place")
Piece = TypeVar("Piece")


class ReadAhead(Generic[Place, Piece]):
    """Reads pieces in a separate thread, one ahead of their use, until `close` ends the thread.

    Args:
        read: Reads the piece at a place. Its exceptions are raised when the piece is used. It may check `is_closed`
            regularly and end early when that is true.
    """

    def __init__(self, read: Callable[[Place], Piece]) -> None:
        self.is_closed = False
        self._read: Callable[[Place], Piece] | None = read
        self._thread = ThreadPoolExecutor(1, "reading ahead")
        self._asked: tuple[Place, Future[Piece]] | None = None

    def pieces(self, places: Iterable[Place], then: Place | None = None) -> Iterator[tuple[Place, Piece]]:
        """Yields each of `places` with its piece. The last step also starts to read the piece at `then`.

        A piece that was read ahead and is not the next one is dropped, for example when a training resumes at another
        position.
        """
        remaining = iter(places)
        place = next(remaining, None)
        while place is not None:
            following = next(remaining, None)
            yield place, self._take(place, then if following is None else following)
            place = following

    def _take(self, place: Place, following: Place | None) -> Piece:
        """Waits for the piece at `place`, and starts to read the `following` one."""
        asked = self._asked
        future = asked[1] if asked is not None and asked[0] == place else self._submitted(place)
        self._asked = None if following is None else (following, self._submitted(following))
        return future.result()

    def close(self) -> None:
        """Waits for the current read, and ends the thread."""
        self.is_closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._asked = self._read = None  # breaks the reference cycle with the owner of `read`

    def _submitted(self, place: Place) -> Future[Piece]:
        if self._read is None:
            raise RuntimeError("no piece can be read after close()")
        return self._thread.submit(self._read, place)
