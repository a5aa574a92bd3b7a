"""The interface of every file format, and the table of formats.

A new format is one file with one final class behind `Source` and one line in `SOURCES`. Third-party readers are
imported by the format that needs them, when it needs them.
"""

from __future__ import annotations

import importlib
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from mpi_learn.errors import DataError

SOURCES = {
    ".h5": "mpi_learn.data.hdf5:HDF5",
    ".hdf5": "mpi_learn.data.hdf5:HDF5",
    ".npz": "mpi_learn.data.numpy_files:NPZ",
    ".npy": "mpi_learn.data.numpy_files:NPY",
}
"""Suffix -> class; the longest suffix that fits counts."""


@dataclass(frozen=True)
class Description:
    """What stands in a file under one name.

    Args:
        n_samples: The length of the first axis.
        shape: The shape of one sample.
        dtype: As stored.
    """

    n_samples: int
    shape: tuple[int, ...]
    dtype: np.dtype


class Source(ABC):
    """One file of samples. Concrete sources are final; made by `open_source`.

    No file stays open between two calls, so that a training may have any number of them. What a source raises other
    than a `DataError` is turned into one by `reading`.

    Args:
        path: A local file.
    """

    format: ClassVar[str]
    """What the format is called in messages."""

    is_table: ClassVar[bool]
    """Whether a list of names is the columns of one input (a table), or each an input of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def names(self) -> list[str]:
        """All names that can be read, in the file's order; ``a/b`` is b in the group a."""

    @abstractmethod
    def describe(self, name: str) -> Description:
        """What stands under one of `names`.

        Raises:
            DataError: It is no array of samples.
        """

    @abstractmethod
    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Samples `start` to `stop` - 1 of one of `names`, as stored: shape (stop - start, …)."""


def open_source(path: Path) -> Source:
    """The source for a file, chosen by its suffix.

    Raises:
        DataError: The suffix is unknown, or there is no such file.
    """
    suffix = max((s for s in SOURCES if path.name.lower().endswith(s)), key=len, default=None)
    if suffix is None:
        raise DataError(
            f"the suffix of {path.name!r} says no known format", where=str(path), cure=f"known are: {' '.join(SOURCES)}"
        )
    if not path.is_file():
        raise DataError("there is no such file", where=str(path), cure="check the path")
    module, _, name = SOURCES[suffix].partition(":")
    return getattr(importlib.import_module(module), name)(path)


@contextmanager
def reading(source: Source) -> Iterator[None]:
    """Whatever a reader raises inside about a broken file becomes a `DataError` that names it."""
    try:
        yield
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"cannot be read as {source.format}: {said[:200]}",
            where=str(source.path),
            cure="the file is damaged, incomplete or of another format: write or copy it again",
        ) from error
