"""Samples that stay in their files, and are read on request in blocks of consecutive samples."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache

import numpy as np

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.copying import CHUNK_BYTES, copy_samples
from mpi_learn.data.files.data_plan import N_OPEN, DataPlan, Readers, opening, readers
from mpi_learn.data.files.reader import Reader
from mpi_learn.data.samples.in_memory import SampleFormat, Samples, Selection, samples_of
from mpi_learn.errors import MPILearnError

BLOCKS_PER_WINDOW = 64
LEAST_BLOCKS_PER_WINDOW = 4
"""A window contains at least this number of the pieces in which a file stores its samples."""


class StreamedSamples:
    """Samples like `Samples`, but in files. Thread-safe: reads are serialised.

    Args:
        plan: The files and their samples.
        configuration: The arrays to read.
    """

    def __init__(self, plan: DataPlan, configuration: DataConfiguration) -> None:
        self.plan, self.window_bytes = plan, configuration.window_bytes
        stack = ExitStack()
        opened = stack.enter_context(opening(configuration))
        weakref.finalize(self, stack.close)
        self._readers = lru_cache(N_OPEN)(lambda place: readers(opened(place), configuration))
        self._lock = threading.Lock()
        self._starts = np.cumsum([0, *(part.n_samples for part in plan.parts)])
        self.blocks = self._bounds()

    def __len__(self) -> int:
        return self.plan.n_samples

    @property
    def window_samples(self) -> int:
        """The number of samples that are read and shuffled at once."""
        most_together = max(part.n_together for part in self.plan.parts)
        return max(1, self.window_bytes // self.plan.sample_bytes, LEAST_BLOCKS_PER_WINDOW * most_together)

    @property
    def y(self) -> tuple[np.ndarray, ...]:
        """The labels of all samples, one array per output, in the dtype in memory. Each access reads the files."""
        labels = self.buffers(len(self)).y
        self._fill(((), labels, ()), 0, len(self))
        return labels

    def labels(self) -> Iterator[tuple[np.ndarray, ...]]:
        """All labels, in pieces."""
        at_once = max(1, CHUNK_BYTES // self.plan.sample_bytes)
        for start in range(0, len(self) if self.plan.y else 0, at_once):
            stop = min(start + at_once, len(self))
            labels = self.buffers(stop - start).y
            self._fill(((), labels, ()), start, stop)
            yield labels

    def buffers(self, n: int) -> Samples:
        """Uninitialised buffers for `n` samples in the dtypes in memory."""
        return samples_of(self.plan, [np.empty((n, *kind.shape), kind.held_dtype) for kind in self.plan.kinds])

    @property
    def format(self) -> SampleFormat:
        """Names and dtypes of samples for the model."""
        return SampleFormat.of(self.plan)

    def take(self, indices: Selection) -> Samples:
        """A copy of some samples, as returned by `Samples.take`.

        Raises:
            DataError: A file cannot be read.
        """
        if isinstance(indices, slice):
            start, stop, _ = indices.indices(len(self))
            return self.read(start, max(start, stop)).take(slice(None))
        order = np.argsort(indices, kind="stable")
        found = self.read(0, len(indices), np.asarray(indices)[order])
        return found.take(np.argsort(order))

    def read(self, start: int, stop: int, indices: np.ndarray | None = None) -> Samples:
        """Samples in the dtypes in memory. The arguments are those of `fill`."""
        found = self.buffers(stop - start)
        self.fill(found, 0, start, stop, indices)
        return found

    def fill(self, buffers: Samples, at: int, start: int, stop: int, indices: np.ndarray | None = None) -> None:
        """Reads samples into `buffers`, from its entry `at` on.

        Args:
            buffers: As returned by `buffers`.
            at: The entry of the first sample.
            start, stop: Positions `start` to `stop` - 1 are read.
            indices: The samples at all positions, ascending; None: position i is sample i.

        Raises:
            DataError: A file cannot be read.
        """
        if indices is not None:
            self._fill_chosen(buffers, at, indices[start:stop])
            return
        here = slice(at, at + stop - start)
        parts = buffers.x, buffers.y, buffers.weights
        self._fill(tuple(tuple(array[here] for array in part) for part in parts), start, stop)

    def _fill_chosen(self, buffers: Samples, at: int, indices: np.ndarray) -> None:
        """Reads samples at ascending `indices`: in each block, the range from the first to the last of them."""
        block_of = np.searchsorted(self.blocks, indices, "right")
        for first, stop in zip(*_runs(block_of), strict=True):
            start, end = int(indices[first]), int(indices[stop - 1]) + 1
            if end - start == stop - first:
                self.fill(buffers, at + first, start, end)
                continue
            for target, found in zip(buffers.arrays, self.read(start, end).arrays, strict=True):
                target[at + first : at + stop] = found[indices[first:stop] - start]

    def _fill(self, parts: Sequence[tuple[np.ndarray, ...]], start: int, stop: int) -> None:
        """Reads into arrays of inputs, labels and weights, any of which may be empty."""
        number = int(np.searchsorted(self._starts, start, "right")) - 1
        done = 0
        while start + done < stop:
            part, offset = self.plan.parts[number], int(self._starts[number])
            end = min(stop, offset + part.n_samples)
            here = slice(done, end - start)
            for reader, arrays in zip(self._opened(part.place), parts, strict=True):
                self._copy(reader, [array[here] for array in arrays], start + done - offset, end - offset)
            done, number = end - start, number + 1

    def _opened(self, place: str) -> Readers:
        with self._lock:
            return self._readers(place)

    def _copy(self, reader: Reader, targets: list[np.ndarray], start: int, stop: int) -> None:
        try:
            with self._lock:
                copy_samples(reader, targets, start, stop)
        except MPILearnError:
            raise
        except Exception as error:
            error.add_note(f"while samples {start} to {stop - 1} of {reader.source.place} were read")
            raise

    def _bounds(self) -> np.ndarray:
        """The bounds of the blocks. A block never divides a piece in which a file stores its samples."""
        wanted = max(1, self.window_bytes // self.plan.sample_bytes // BLOCKS_PER_WINDOW)
        bounds = [np.zeros(1, np.int64)]
        for start, part in zip(self._starts, self.plan.parts, strict=False):
            size = -(-wanted // part.n_together) * part.n_together
            bounds.append(start + np.append(np.arange(size, part.n_samples, size), part.n_samples))
        return np.concatenate(bounds)


def _runs(values: np.ndarray) -> tuple[list[int], list[int]]:
    """The starts and ends of runs of equal `values`."""
    cuts = (np.flatnonzero(np.diff(values)) + 1).tolist()
    return ([0, *cuts], [*cuts, len(values)]) if len(values) else ([], [])
