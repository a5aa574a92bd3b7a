"""The interface of every file format.

A new format is one file with one final subclass of `Source`, and one line in `SOURCES` of `open_source`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from mpi_learn.errors import DataError, UserError, reading_error

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

    A source keeps its file open until `close`, and its memory until it is deleted; only a few sources exist at a time.
    `reading` converts its exceptions to `DataError`.

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

    def check_complete(self, names: Sequence[str]) -> None:  # noqa: B027 - optional
        """Raises DataError if values of an array are missing that `read` would replace by other values."""

    def close(self) -> None:  # noqa: B027 - optional
        """Closes the file; the next access opens it again."""

    def n_together(self, names: Sequence[str]) -> int:
        """The number of consecutive samples that the file stores as one piece; reading fewer is not faster."""
        return 1

    def why_not_streamable(self, names: Sequence[str]) -> str:
        """Why a part of the samples cannot be read on its own; empty if it can."""
        return ""

    @abstractmethod
    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray | Jagged]:
        """Samples `start` to `stop` - 1 of each of `names` in their stored dtype, shape (stop - start, …)."""


@contextmanager
def reading(source: Source) -> Iterator[None]:
    """Converts exceptions inside the block to a `DataError` that names the file.

    For a damaged file, the libraries that read it raise exceptions of any type, `AssertionError` and `TypeError`
    included.
    """
    try:
        yield
    except (UserError, MemoryError):
        raise
    except ImportError as error:  # for example a package that decompresses
        raise DataError(str(error), where=source.place, cure="install this package") from error
    except Exception as error:
        message = reading_error(error)
        raise DataError(
            f"cannot be read as {source.format}: {message[:200]}",
            where=source.place,
            cure="get read permission" if "ermission denied" in message else WRITE_AGAIN,
        ) from error
