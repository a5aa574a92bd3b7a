"""The samples of each file, determined on one rank from metadata, as plain values for all ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from weakref import WeakSet

import numpy as np

from mpi_learn.data.configuration import DataConfiguration, Names, Transform
from mpi_learn.data.files.finding import Copies, find_files, is_url
from mpi_learn.data.files.reader import ArrayKind, Reader, Requests, check_same_arrays, find_arrays
from mpi_learn.data.formats.open_source import open_source
from mpi_learn.data.formats.source import Source
from mpi_learn.errors import DataError, UserError

OpenSource = Callable[[str], Source]
Readers = tuple[Reader, Reader, Reader]
"""The readers of features, labels and weights."""

N_OPEN = 32
"""The number of sources that stay open: a training may have more files than a process can open."""


@dataclass(frozen=True)
class FilePart:
    """The samples of one file.

    Args:
        place: The path or URL of the file.
        n_samples: The number of its samples, at least 1.
        n_together: The number of samples that it stores as one piece.
        read_bytes: The memory to read one sample, in bytes. A user's function may return much smaller arrays.
        why_not_streamable: Why it cannot be read in pieces; empty if it can.
        cure: What to change so that it can.
    """

    place: str
    n_samples: int
    n_together: int = 1
    read_bytes: int = 1
    why_not_streamable: str = ""
    cure: str = ""


@dataclass(frozen=True)
class DataPlan:
    """The samples of a list of files, one after the other.

    Args:
        parts: The files that contain samples, in order.
        requests: The arrays in every file, as found in the first one.
        x, y: The inputs and the labels.
        weights: The sample weights: one array or none.
    """

    parts: tuple[FilePart, ...]
    requests: Requests
    x: tuple[ArrayKind, ...]
    y: tuple[ArrayKind, ...]
    weights: tuple[ArrayKind, ...] = ()

    @property
    def kinds(self) -> tuple[ArrayKind, ...]:
        """The kinds of all arrays: inputs, labels, weights."""
        return (*self.x, *self.y, *self.weights)

    @property
    def n_samples(self) -> int:
        """The number of samples in all files."""
        return sum(part.n_samples for part in self.parts)

    @property
    def sample_bytes(self) -> int:
        """The memory of one sample, in bytes."""
        return max(1, sum(kind.memory_bytes for kind in self.kinds))

    @property
    def n_bytes(self) -> int:
        """The memory of all samples, in bytes."""
        return self.n_samples * self.sample_bytes


class Sources:
    """Opens paths and URLs, and keeps the last sources.

    Args:
        copies: The copies of URLs.
    """

    def __init__(self, copies: Copies) -> None:
        def opened(place: str) -> Source:
            source = open_source(copies.path(place) if is_url(place) else Path(place), place)
            self._existing.add(source)
            return source

        self._existing: WeakSet[Source] = WeakSet()
        self._opened = lru_cache(N_OPEN)(opened)

    def __call__(self, place: str) -> Source:
        """The source of a path or URL."""
        return self._opened(place)

    def close(self) -> None:
        """Closes the files of all sources, also of those that only a traceback refers to. Sources can open them again.

        An open HDF5 file cannot be written, not even by the program that has it open.
        """
        for source in list(self._existing):
            source.close()


@contextmanager
def opening(configuration: DataConfiguration) -> Iterator[Sources]:
    """The sources of a configuration. Copies of URLs exist inside of the context; at its end, all files are closed."""
    cache = configuration.cache and Path(configuration.cache)
    with Copies(cache or None, configuration.keep_cache) as copies, closing(Sources(copies)) as sources:
        yield sources


def make_plans(configuration: DataConfiguration, opened: OpenSource) -> tuple[DataPlan, DataPlan | None]:
    """The plans for training and validation, whose shapes must agree.

    Raises:
        DataError: A file cannot be read or does not match the configuration.
    """
    training, first = _make_plan(configuration, "train", opened)
    if configuration.validation_fraction is not None:
        n_validation(training.n_samples, configuration.validation_fraction)
    if configuration.validation is None:
        return training, None
    validation, _ = _make_plan(configuration, "validation", opened, first)
    _check_npy_folders(training, validation)
    x, y = _promote_kinds([training.x, validation.x]), _promote_kinds([training.y, validation.y])
    weights = _promote_kinds([training.weights, validation.weights])
    return replace(training, x=x, y=y, weights=weights), replace(validation, x=x, y=y, weights=weights)


def _check_npy_folders(training: DataPlan, validation: DataPlan) -> None:
    """Raises `DataError` if both read NPY files of the same folder: the names would match the same arrays."""
    of_training, of_validation = (
        {os.path.realpath(Path(part.place).parent): part.place for part in plan.parts if part.place.endswith(".npy")}
        for plan in (training, validation)
    )
    for folder, place in of_validation.items():
        if folder in of_training:
            raise DataError(
                "all NPY files of a folder belong together, and the folder of this one is also in data.train",
                where=f"data.validation: {place}",
                cure="put the validation arrays in a folder of their own, with the same names",
            )


def count_samples(configuration: DataConfiguration) -> tuple[int, int]:
    """The numbers of training and validation samples, from the metadata of the files. Needs no MPI.

    Raises:
        DataError: A file cannot be read or does not match the configuration.
    """
    with opening(configuration) as opened:
        training, validation = make_plans(configuration, opened)
    if validation is not None:
        return training.n_samples, validation.n_samples
    fraction = configuration.validation_fraction
    n_held_out = 0 if fraction is None else n_validation(training.n_samples, fraction)
    return training.n_samples - n_held_out, n_held_out


@contextmanager
def _errors_at(key: str) -> Iterator[None]:
    """Adds the key to errors that name only a file or a URL: it is damaged, of no known format, or not reachable."""
    try:
        yield
    except UserError as error:
        if error.where.startswith("data."):
            raise
        raise error.at(f"data.{key}") from error


def _make_plan(
    configuration: DataConfiguration, key: str, opened: OpenSource, first: Readers | None = None
) -> tuple[DataPlan, Readers]:
    """The plan for ``configuration.train`` or ``configuration.validation``, and the readers of its first file.

    Args:
        first: Readers of another file, whose arrays and shapes all files must have.
    """
    parts: list[FilePart] = []
    kinds: list[list[tuple[ArrayKind, ...]]] = [[], [], []]
    with _errors_at(key):
        places = find_files(getattr(configuration, key), f"data.{key}")
    for place in places:
        with _errors_at(key):
            source = opened(place)
            requests = find_arrays(source, configuration)
            if first is not None:
                check_same_arrays(requests, source, _requests(first), first[0].source)
                requests = _requests(first)  # in the order of the first file
            found = readers(source, configuration, requests)
        if found[0].n_samples == 0:
            continue
        first = first or found
        for reader, expected, kinds_so_far in zip(found, first, kinds, strict=True):
            _check_same(reader, expected)
            reader.check_complete()
            kinds_so_far.append(reader.kinds)
        parts.append(_part(place, found, configuration))
    if not parts or first is None:
        names = ", ".join(getattr(configuration, key))
        raise DataError("there is no sample in any file", where=f"data.{key}: {names}", cure="name files with samples")
    plan = DataPlan(tuple(parts), _requests(first), *map(_promote_kinds, kinds))
    _check_weights_and_dtypes(plan, configuration)
    return plan, first


def _part(place: str, found: Readers, configuration: DataConfiguration) -> FilePart:
    """The samples of the file at `place`."""
    why_not_streamable = next((reader.why_not_streamable for reader in found if reader.why_not_streamable), "")
    cure = "write the samples to HDF5, Parquet, ROOT or NPY files" if why_not_streamable else ""
    if not why_not_streamable and is_url(place) and configuration.cache is None:
        why_not_streamable, cure = "the file is remote, and there is no folder for copies", "name one: cache: DIR"
    n_together, read_bytes = max(reader.n_together for reader in found), sum(reader.sample_bytes for reader in found)
    return FilePart(place, found[0].n_samples, n_together, read_bytes, why_not_streamable, cure)


def readers(source: Source, configuration: DataConfiguration, requests: Requests) -> Readers:
    """The readers of features, labels and weights of one file.

    Args:
        requests: The arrays, in an order that is the same for all files.

    Raises:
        DataError: As for `Reader`; or the lengths differ.
    """
    dtypes = _dtypes(configuration)
    x = Reader(source, requests[0], "features", _function(configuration.features), dtypes)
    y = Reader(source, requests[1], "labels", _function(configuration.labels), dtypes)
    weights = Reader(source, requests[2], "weights")
    for reader in (y, weights):
        if reader.requests and x.n_samples != reader.n_samples:
            raise reader.error(
                f"{x.n_samples} samples of features but {reader.n_samples} of {reader.role}",
                "; ".join(map(str, reader.requests)),
                cure=f"features and {reader.role} need one entry for each sample",
            )
    return x, y, weights


def _requests(of_file: Readers) -> Requests:
    return tuple(reader.requests for reader in of_file)


def _function(wanted: Transform | Names | None) -> str:
    return wanted.function if isinstance(wanted, Transform) else ""


def _dtypes(configuration: DataConfiguration) -> dict[str, np.dtype]:
    """Key or name of an array -> configured dtype; ``features`` is the key for all features."""
    wanted = configuration.dtype or {}
    by_name = wanted if isinstance(wanted, dict) else {"features": wanted}
    return {name: np.dtype(dtype) for name, dtype in by_name.items()}


def _check_weights_and_dtypes(plan: DataPlan, configuration: DataConfiguration) -> None:
    """Raises `DataError` unless configured weights are one array, and each configured dtype belongs to an array."""
    if isinstance(configuration.weights, str) and len(plan.weights) != 1:
        raise DataError(f"expected one array, found {len(plan.weights)}", where="data.weights", cure="name one")
    known = {name for kind in (*plan.x, *plan.y) for name in (kind.key, kind.name) if name} | {"features", "labels"}
    if unknown := [name for name in _dtypes(configuration) if name not in known]:
        raise DataError(
            f"there is no input or label {unknown[0]!r}",
            where="data.dtype",
            cure=f"the names are: {', '.join(kind.key or kind.name for kind in (*plan.x, *plan.y))}",
        )


def n_validation(n: int, fraction: float) -> int:
    """The number of samples in a fraction of `n`. Raises `DataError` if it leaves none on one side."""
    count = round(n * fraction)
    if not 0 < count < n:
        side = "validate" if count == 0 else "train"
        raise DataError(
            f"a fraction of {fraction} of {n} samples leaves none to {side} on",
            where="data.validation_fraction",
            cure="use more samples, or another fraction",
        )
    return count


def _promote_kinds(kinds: Sequence[tuple[ArrayKind, ...]]) -> tuple[ArrayKind, ...]:
    """The common kind of the arrays of all files, with the common dtype."""
    return tuple(replace(same[0], dtype=_promoted(same)) for same in zip(*kinds, strict=True))


def _promoted(kinds: Sequence[ArrayKind]) -> np.dtype:
    """The promoted dtype; int64 for integer labels that NumPy promotes to real numbers (int64 and uint64)."""
    promoted = np.result_type(*(kind.dtype for kind in kinds))
    is_integer = kinds[0].role == "labels" and all(kind.dtype.kind in "biu" for kind in kinds)
    return np.dtype(np.int64) if is_integer and promoted.kind == "f" else promoted


def _check_same(reader: Reader, first: Reader) -> None:
    shapes, expected = ([(kind.key, kind.shape) for kind in source.kinds] for source in (reader, first))
    if shapes != expected:
        raise reader.error(
            f"{_shapes_text(shapes)} here but {_shapes_text(expected)} in {first.source.place}",
            "; ".join(map(str, reader.requests)),
            cure="the shape of a sample must be the same in all files, of training and of validation",
        )


def _shapes_text(shapes: list[tuple[str, tuple[int, ...]]]) -> str:
    return "samples of shape " + ", ".join(f"{key} {shape}".strip() for key, shape in shapes)
