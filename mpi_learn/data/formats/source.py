"""The interface of every file format, and the table of formats.

A new format is one file with one final subclass of `Source`, and one line in `SOURCES`. Each format imports its
third-party reader on first use.
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
"""Suffix -> class; the longest matching suffix is used."""

WRITE_AGAIN = "the file is damaged, incomplete or of another format: write or copy it again"


@dataclass(frozen=True)
class Description:
    """One named array of a file.

    Args:
        n_samples: The length of the first axis.
        shape: The shape of one sample; () for a jagged array.
        dtype: The stored dtype.
        is_jagged: Whether each sample is a row of values, and rows differ in length.
        record: The array of compound type that contains it as a field; empty otherwise.
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
        values: All rows concatenated, shape (n_values,).
        lengths: The length of each row, shape (n_samples,), integers.
    """

    values: np.ndarray
    lengths: np.ndarray

    def padded(self, width: int) -> np.ndarray:
        """The first `width` values of each row, padded with zeros, shape (n_samples, width)."""
        column = np.arange(width)
        first = np.cumsum(self.lengths) - self.lengths
        is_there = column < self.lengths[:, np.newaxis]
        rows = np.zeros(is_there.shape, self.values.dtype)
        rows[is_there] = self.values[(first[:, np.newaxis] + column)[is_there]]
        return rows


class Source(ABC):
    """One file of samples. Concrete sources are final; `open_source` creates them.

    A source keeps its open file and its memory until it is deleted; only few sources exist at a time. `reading`
    converts its exceptions to `DataError`.

    Args:
        path: A local file.
        place: The user's name of the file if it differs, such as the URL from which it was copied.
    """

    format: ClassVar[str]
    """The name of the format in messages."""

    is_table: ClassVar[bool]
    """Whether a list of names gives the columns of one input (a table) rather than several inputs."""

    def __init__(self, path: Path, place: str = "") -> None:
        self.path, self.place = path, place or str(path)

    @abstractmethod
    def names(self) -> list[str]:
        """All readable names, in the file's order; ``a/b`` is b in the group a."""

    @abstractmethod
    def describe(self, names: Sequence[str]) -> dict[str, Description]:
        """Name -> description of the array.

        Raises:
            DataError: One of `names` is not an array of samples.
        """

    def n_together(self, names: Sequence[str]) -> int:
        """The number of consecutive samples that the file stores as one piece; reading fewer is not faster."""
        return 1

    def obstacle(self, names: Sequence[str]) -> str:
        """Why a part of the samples cannot be read on its own; empty if it can."""
        return ""

    @abstractmethod
    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray | Jagged]:
        """Samples `start` to `stop` - 1 of each of `names` in their stored dtype, shape (stop - start, …)."""


def open_source(path: Path, place: str = "") -> Source:
    """The source of a file, selected by its suffix. The arguments are those of `Source`.

    Raises:
        DataError: The suffix is unknown, or the file does not exist.
    """
    suffix = max((s for s in SOURCES if path.name.lower().endswith(s)), key=len, default=None)
    if suffix is None:
        raise DataError(
            "the suffix belongs to no known format",
            where=place or str(path),
            cure=f"use the suffix of its format, one of: {' '.join(SOURCES)}",
        )
    if not path.is_file():
        raise DataError("there is no such file", where=place or str(path), cure="check the path")
    module, _, name = SOURCES[suffix].partition(":")
    source: Source = getattr(importlib.import_module(module), name)(path, place)
    return source


@contextmanager
def reading(source: Source) -> Iterator[None]:
    """Converts exceptions about a damaged file inside the block to a `DataError` that names the file."""
    try:
        yield
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"cannot be read as {source.format}: {message[:200]}",
            where=source.place,
            cure="get permission to read it" if "ermission denied" in message else WRITE_AGAIN,
        ) from error
