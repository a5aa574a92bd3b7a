"""The interface of every file format, and the table of formats.

A new format is one file with one final class behind `Source` and one line in `SOURCES`. Third-party readers are
imported by the format that needs them, when it needs them.
"""

from __future__ import annotations

import importlib
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from mpi_learn.errors import DataError

SOURCES = {
    ".h5": "mpi_learn.data.formats.hdf5:HDF5",
    ".hdf5": "mpi_learn.data.formats.hdf5:HDF5",
    ".npz": "mpi_learn.data.formats.numpy_files:NPZ",
    ".npy": "mpi_learn.data.formats.numpy_files:NPY",
    ".root": "mpi_learn.data.formats.root:ROOT",
    ".parquet": "mpi_learn.data.formats.parquet:Parquet",
    ".csv": "mpi_learn.data.formats.csv:CSV",
    ".csv.gz": "mpi_learn.data.formats.csv:CSV",
}
"""Suffix -> class; the longest suffix that fits counts."""

MENDED = "the file is damaged, incomplete or of another format: write or copy it again"


@dataclass(frozen=True)
class Description:
    """One named array of a file.

    Args:
        n_samples: The length of the first axis.
        shape: The shape of one sample; of a jagged array the shape of one value, ().
        dtype: As stored.
        is_jagged: Whether a sample is a row of values, and rows differ in length.
        record: The array of compound type of which it is a field; empty if it is none.
    """

    n_samples: int
    shape: tuple[int, ...]
    dtype: np.dtype
    is_jagged: bool = False
    record: str = ""


@dataclass(frozen=True)
class Jagged:
    """Rows of different length.

    Args:
        values: Shape (n_values,), all rows one after the other.
        lengths: Shape (n_samples,), integers, of each row.
    """

    values: np.ndarray
    lengths: np.ndarray

    def padded(self, width: int) -> np.ndarray:
        """The first `width` values of each row, with zeros where it has less: shape (n_samples, width)."""
        column = np.arange(width)
        first = np.cumsum(self.lengths) - self.lengths
        is_there = column < self.lengths[:, np.newaxis]
        rows = np.zeros(is_there.shape, self.values.dtype)
        rows[is_there] = self.values[(first[:, np.newaxis] + column)[is_there]]
        return rows


class Source(ABC):
    """One file of samples. Concrete sources are final; made by `open_source`.

    What a source keeps open or in memory lives as long as the source, of which few live at a time. What it raises other
    than a `DataError` is turned into one by `reading`.

    Args:
        path: A local file.
        place: What the user calls it, if that is something else: the URL that it was copied from.
    """

    format: ClassVar[str]
    """What the format is called in messages."""

    is_table: ClassVar[bool]
    """Whether a list of names is the columns of one input (a table), or each an input of its own."""

    def __init__(self, path: Path, place: str = "") -> None:
        self.path, self.place = path, place or str(path)

    @abstractmethod
    def names(self) -> list[str]:
        """All names that can be read, in the file's order; ``a/b`` is b in the group a."""

    @abstractmethod
    def describe(self, names: Sequence[str]) -> dict[str, Description]:
        """What stands under each of `names`.

        Raises:
            DataError: One of them is no array of samples.
        """

    def n_together(self, names: Sequence[str]) -> int:
        """How many neighbouring samples the file stores as one piece: to read fewer takes as long."""
        return 1

    def obstacle(self, names: Sequence[str]) -> str:
        """Why some samples cannot be read without reading all; empty where they can."""
        return ""

    @abstractmethod
    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray | Jagged]:
        """Samples `start` to `stop` - 1 of each of `names`, as stored: shape (stop - start, …)."""


def open_source(path: Path, place: str = "") -> Source:
    """The source for a file, chosen by its suffix; arguments as of `Source`.

    Raises:
        DataError: The suffix is unknown, or there is no such file.
    """
    suffix = max((s for s in SOURCES if path.name.lower().endswith(s)), key=len, default=None)
    if suffix is None:
        raise DataError(
            "its suffix is none of a known format",
            where=place or str(path),
            cure=f"call it by what it holds, one of: {' '.join(SOURCES)}",
        )
    if not path.is_file():
        raise DataError("there is no such file", where=place or str(path), cure="check the path")
    module, _, name = SOURCES[suffix].partition(":")
    return getattr(importlib.import_module(module), name)(path, place)


@contextmanager
def reading(source: Source) -> Iterator[None]:
    """Whatever a reader raises inside about a broken file becomes a `DataError` that names it."""
    try:
        yield
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"cannot be read as {source.format}: {said[:200]}",
            where=source.place,
            cure="get the right to read it" if "ermission denied" in said else MENDED,
        ) from error
