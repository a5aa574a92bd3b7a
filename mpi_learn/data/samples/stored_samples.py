"""Samples in memory, and in files that are read in blocks; weights by class, and inputs that no file contains."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.copying import CHUNK_BYTES, copy_samples
from mpi_learn.data.files.data_plan import N_OPEN, DataPlan, opening, readers
from mpi_learn.data.files.reader import Role, dtype_for_model
from mpi_learn.errors import DataError, MPILearnError

VALIDATION = -1
"""The epoch number of validation samples, which get the same values each time."""


class AddedInput(Protocol):
    """An input that is added to each batch as the last one, such as the noise of a generator.

    Its values depend on the position in the order of an epoch, so that they are the same for any number of workers.

    Attributes:
        name: Its name in descriptions.
        turns: The number of steps that are made with each batch, each time with other values.
    """

    @property
    def name(self) -> str: ...

    @property
    def turns(self) -> int: ...

    def draw(self, epoch: int, first: int, n: int) -> np.ndarray:
        """Values of `n` samples from position `first` on in the order of an epoch, shape (turns, n, …)."""


Selection = np.ndarray | slice
CopyRows = Callable[[np.ndarray, Selection, np.dtype], np.ndarray]
"""A function of (array, indices, dtype) for a copy of some rows; see `copied_rows`."""


def copied_rows(array: np.ndarray, indices: Selection, dtype: np.dtype) -> np.ndarray:
    """A new array with the rows at `indices`, integers of shape (n,) or a slice, converted to `dtype`."""
    if isinstance(indices, slice):
        return np.array(array[indices], dtype)
    return array.take(indices, axis=0).astype(dtype, copy=False)


@dataclass(frozen=True)
class SampleFormat:
    """Names and dtypes of samples for the model.

    Attributes:
        x_names, y_names: Names of inputs and labels; empty if they are matched by position.
        weight_names: Names of the outputs to which the weights belong; empty for weights of all outputs.
        x_dtypes, y_dtypes: dtypes of inputs and labels; empty applies the rules of `dtype_for_model`.
    """

    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    x_dtypes: tuple[np.dtype, ...] = ()
    y_dtypes: tuple[np.dtype, ...] = ()
    weight_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: DataPlan) -> SampleFormat:
        """The format of a plan's samples. Arrays have names only if all of them have one."""
        x_names, y_names = ([kind.key for kind in kinds] for kinds in (plan.x, plan.y))
        return cls(
            tuple(x_names) if all(x_names) else (),
            tuple(y_names) if all(y_names) else (),
            tuple(kind.model_dtype for kind in plan.x),
            tuple(kind.model_dtype for kind in plan.y),
            tuple(kind.key for kind in plan.weights if kind.key),
        )


@dataclass(frozen=True)
class Samples:
    """Arrays of the same length: sample i is the i-th entry of each.

    They are held in the stored dtype if it is smaller (uint8 images stay uint8); `take` converts them for the model.

    Attributes:
        x: One array per input of the model, of shape (n_samples, …).
        y: One array per label; none for a model that learns from the inputs alone.
        weights: One array of sample weights, or none.
        format: Names and dtypes.
        copy_rows: How `take` copies.
    """

    x: tuple[np.ndarray, ...]
    y: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...] = ()
    format: SampleFormat = SampleFormat()
    copy_rows: CopyRows = copied_rows

    def __len__(self) -> int:
        return len(self.x[0]) if self.x else 0

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All arrays: inputs, labels, weights."""
        return (*self.x, *self.y, *self.weights)

    def labels(self) -> Iterator[tuple[np.ndarray, ...]]:
        """All labels, in one or several pieces."""
        yield self.y

    def sample_weights(self) -> Iterator[tuple[np.ndarray, ...]]:
        """All sample weights, in one or several pieces."""
        yield self.weights

    def part(self, indices: slice) -> Samples:
        """Views of consecutive samples, as they are held."""
        x, y, weights = (tuple(array[indices] for array in group) for group in (self.x, self.y, self.weights))
        return replace(self, x=x, y=y, weights=weights)

    def take(self, indices: Selection) -> Samples:
        """A copy of some samples, converted for the model.

        Args:
            indices: Integers of shape (n,), or a slice.

        Returns:
            New arrays of length n.
        """
        return Samples(
            self._taken(self.x, indices, self.format.x_dtypes, "features"),
            self._taken(self.y, indices, self.format.y_dtypes, "labels"),
            self._taken(self.weights, indices, (), "weights"),
            self.format,
        )

    def _taken(
        self, arrays: tuple[np.ndarray, ...], indices: Selection, dtypes: tuple[np.dtype, ...], role: Role
    ) -> tuple[np.ndarray, ...]:
        wanted: Any = dtypes or [dtype_for_model(array.dtype, role) for array in arrays]
        copy_rows = self.copy_rows
        return tuple(copy_rows(array, indices, dtype) for array, dtype in zip(arrays, wanted, strict=True))


def samples_of(plan: DataPlan, arrays: Sequence[np.ndarray]) -> Samples:
    """`arrays`, in the order of `DataPlan.kinds`, as samples."""
    n_x, n_labelled = len(plan.x), len(plan.x) + len(plan.y)
    x, y, weights = arrays[:n_x], arrays[n_x:n_labelled], arrays[n_labelled:]
    return Samples(tuple(x), tuple(y), tuple(weights), SampleFormat.of(plan))


BLOCKS_PER_WINDOW = 64
"""A window consists of this number of blocks, or of fewer if a piece in which a file stores its samples is larger."""
LEAST_PIECES_PER_WINDOW = 4
"""A window contains at least this number of the pieces in which a file stores its samples."""


def window_samples(plan: DataPlan, window_bytes: int) -> int:
    """The number of samples that a worker reads and shuffles at once."""
    most_together = max(part.n_together for part in plan.parts)
    return max(1, window_bytes // _bytes_in_window(plan), LEAST_PIECES_PER_WINDOW * most_together)


class StreamedSamples:
    """Samples like `Samples`, but in files. Thread-safe: reads are serialised."""

    def __init__(self, plan: DataPlan, configuration: DataConfiguration) -> None:
        self.plan, self.window_bytes = plan, configuration.window_bytes
        stack = ExitStack()
        opened = self._opened = stack.enter_context(opening(configuration))
        weakref.finalize(self, stack.close)
        self._readers = lru_cache(N_OPEN)(lambda place: readers(opened(place), configuration, plan.requests))
        self._lock = threading.Lock()
        self._starts = np.cumsum([0, *(part.n_samples for part in plan.parts)])
        self.blocks = self._bounds()

    def __len__(self) -> int:
        return self.plan.n_samples

    def close(self) -> None:
        """Closes the files. The next read opens them again."""
        with self._lock:
            self._opened.close()

    @property
    def window_samples(self) -> int:
        """The number of samples that are read and shuffled at once."""
        return window_samples(self.plan, self.window_bytes)

    @property
    def y(self) -> tuple[np.ndarray, ...]:
        """The labels of all samples, one array per output, in the dtype in memory. Each access reads the files."""
        labels = self.buffers(len(self)).y
        self.fill(Samples((), labels), 0, len(self))
        return labels

    def labels(self) -> Iterator[tuple[np.ndarray, ...]]:
        """All labels, in pieces."""
        at_once = max(1, CHUNK_BYTES // self.plan.sample_bytes)
        for start in range(0, len(self) if self.plan.y else 0, at_once):
            stop = min(start + at_once, len(self))
            labels = self.buffers(stop - start).y
            self.fill(Samples((), labels), start, stop)
            yield labels

    def sample_weights(self) -> Iterator[tuple[np.ndarray, ...]]:
        """All sample weights, in pieces."""
        at_once = max(1, CHUNK_BYTES // self.plan.sample_bytes)
        for start in range(0, len(self) if self.plan.weights else 0, at_once):
            stop = min(start + at_once, len(self))
            weights = self.buffers(stop - start).weights
            self.fill(Samples((), (), weights), start, stop)
            yield weights

    def buffers(self, n: int) -> Samples:
        """Uninitialised buffers for `n` samples in the dtypes in memory."""
        return samples_of(self.plan, [np.empty((n, *kind.shape), kind.memory_dtype) for kind in self.plan.kinds])

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
        order = np.argsort(indices, kind="stable")  # files are read in ascending order
        found = self.read(0, len(indices), np.asarray(indices)[order])
        return found.take(np.argsort(order))

    def read(self, start: int, stop: int, indices: np.ndarray | None = None) -> Samples:
        """Samples in the dtypes in memory. The arguments are those of `fill`."""
        found = self.buffers(stop - start)
        self.fill(found, start, stop, indices)
        return found

    def fill(self, buffers: Samples, start: int, stop: int, indices: np.ndarray | None = None) -> None:
        """Reads samples into `buffers`, of length `stop` - `start`.

        Args:
            buffers: As returned by `buffers`, or a part of them. Only the arrays that it contains are read.
            start, stop: Positions `start` to `stop` - 1 are read.
            indices: The samples at all positions, ascending; None: position i is sample i.

        Raises:
            DataError: A file cannot be read.
        """
        if indices is not None:
            self._fill_chosen(buffers, indices[start:stop])
            return
        part_index = int(np.searchsorted(self._starts, start, "right")) - 1
        done = 0
        while start + done < stop:
            part, offset = self.plan.parts[part_index], int(self._starts[part_index])
            end = min(stop, offset + part.n_samples)
            self._copy(part.place, buffers.part(slice(done, end - start)), start + done - offset, end - offset)
            done, part_index = end - start, part_index + 1

    def _fill_chosen(self, buffers: Samples, indices: np.ndarray) -> None:
        """Reads samples at ascending `indices`: in each block, the range from the first to the last of them."""
        first_of_blocks = np.flatnonzero(np.diff(np.searchsorted(self.blocks, indices, "right"))) + 1
        at = 0
        for chosen in np.split(indices, first_of_blocks) if len(indices) else []:
            start, stop = int(chosen[0]), int(chosen[-1]) + 1
            here = buffers.part(slice(at, at + len(chosen)))
            if stop - start == len(chosen):
                self.fill(here, start, stop)
            else:
                for target, found in zip(here.arrays, self.read(start, stop).arrays, strict=True):
                    target[...] = found[chosen - start]
            at += len(chosen)

    def _copy(self, place: str, targets: Samples, start: int, stop: int) -> None:
        """Reads samples `start` to `stop` - 1 of one file."""
        try:
            with self._lock:
                groups = targets.x, targets.y, targets.weights
                for reader, arrays in zip(self._readers(place), groups, strict=True):
                    copy_samples(reader, arrays, start, stop)
        except MPILearnError:
            raise
        except Exception as error:
            error.add_note(f"while samples {start} to {stop - 1} of {place} were read")
            raise

    def _bounds(self) -> np.ndarray:
        """The bounds of the blocks. A block never divides a piece in which a file stores its samples."""
        wanted = max(1, self.window_bytes // _bytes_in_window(self.plan) // BLOCKS_PER_WINDOW)
        bounds = [np.zeros(1, np.int64)]
        for start, part in zip(self._starts, self.plan.parts, strict=False):
            size = -(-wanted // part.n_together) * part.n_together
            bounds.append(start + np.append(np.arange(size, part.n_samples, size), part.n_samples))
        return np.concatenate(bounds)


def _bytes_in_window(plan: DataPlan) -> int:
    """The size of one sample of a window: as read from the files or as held in memory, whichever is larger.

    A function may reduce an image to one number. The images of a window that is full of these numbers would take too
    much memory.
    """
    return max(plan.sample_bytes, *(part.read_bytes for part in plan.parts))


@dataclass(frozen=True)
class ClassWeights:
    """Weights by class; other classes have weight 1.

    Attributes:
        factors: Class number -> weight.
    """

    factors: Mapping[int, float]

    def applied(
        self, labels: tuple[np.ndarray, ...], weights: tuple[np.ndarray, ...], is_training: bool
    ) -> tuple[np.ndarray, ...]:
        """The sample weights of a batch, multiplied by the class weights during training.

        Args:
            labels: One array of n labels, as for `make_class_weights`.
            weights: Arrays with n weights, or of shape (n, …), or none.

        Returns:
            Float arrays like `weights`, or one of shape (n,).
        """
        factors = np.ones(len(labels[0]), np.float32)
        if is_training:
            classes = _classes(labels[0])
            for number, factor in self.factors.items():
                factors[classes == number] = factor
        if not weights:
            return (factors,)
        return tuple(array * factors.reshape(-1, *(1,) * (array.ndim - 1)) for array in weights)


def make_class_weights(wanted: Mapping[int, float] | str, labels: tuple[np.ndarray, ...]) -> ClassWeights:
    """The class weights of a configuration; ``balanced``: samples / (classes × samples of the class).

    Raises:
        DataError: There is more than one label or class per sample, or none.
    """
    if len(labels) != 1:
        raise DataError(
            f"expected one label, found {len(labels)}", where="data.class_weight", cure="write data.weights instead"
        )
    classes = _classes(labels[0])
    if classes.ndim > 1:
        raise DataError(
            f"expected one class per sample, found labels of shape {labels[0].shape[1:]}",
            where="data.class_weight",
            cure="write data.weights instead, or class weights as an argument of the loss",
        )
    if not isinstance(wanted, str):
        return ClassWeights(wanted)
    numbers, counts = np.unique(classes, return_counts=True)
    factors = len(classes) / (len(numbers) * counts)
    return ClassWeights(dict(zip(numbers.tolist(), factors.tolist(), strict=True)))


def _classes(labels: np.ndarray) -> np.ndarray:
    """Class numbers, shape (n,) for one class per sample, from class numbers or from one-hot labels."""
    if labels.ndim > 1 and labels.shape[-1] > 1:
        return np.asarray(labels.argmax(-1))
    classes = np.round(labels).astype(np.int64)
    return np.asarray(classes.squeeze(-1) if classes.ndim > 1 else classes)
