"""CSV files, also compressed with gzip."""

from __future__ import annotations

import csv
import gzip
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import ClassVar

import numpy as np

from mpi_learn.data.formats.source import Description, Jagged, Source


class CSV(Source):
    """The columns of a CSV file, separated by commas. A column of whole numbers has an integer dtype.

    The first line contains the names. If it contains a number, the columns are named 0, 1, 2, … An empty cell is NaN.
    Columns stay in memory after reading, since text files have no random access.
    """

    format: ClassVar[str] = "CSV"
    is_table: ClassVar[bool] = True

    def names(self) -> list[str]:
        if self._has_names:
            return [cell.strip() for cell in self._first_line]
        return [str(position) for position in range(len(self._first_line))]

    def describe(self, names: Sequence[str]) -> dict[str, Description]:
        columns = self._columns(names)
        return {name: Description(len(column), (), column.dtype) for name, column in columns.items()}

    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray | Jagged]:
        return {name: column[start:stop] for name, column in self._columns(names).items()}

    def obstacle(self, names: Sequence[str]) -> str:
        return "text files have no random access: write the samples as Parquet or HDF5"

    def _columns(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        missing = [name for name in names if name not in self._held]
        if missing:
            positions = [self.names().index(name) for name in missing]
            self._held |= dict(zip(missing, self._parsed(positions), strict=True))
        return {name: self._held[name] for name in names}

    def _parsed(self, positions: list[int]) -> list[np.ndarray]:
        """The columns at `positions`; cells are parsed one by one only if some are not numbers."""
        try:
            with self._opened() as lines, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # NumPy warns about a table without rows
                table = np.loadtxt(
                    lines,
                    delimiter=",",
                    quotechar='"',
                    comments=None,
                    usecols=positions,
                    ndmin=2,
                    skiprows=int(self._has_names),
                )
            return (
                [_whole(table[:, i]) for i in range(len(positions))] if len(table) else [np.zeros(0)] * len(positions)
            )
        except ValueError:
            with self._opened() as lines:
                rows = self._rows(lines)
                return [_numbers(cells) for cells in zip(*([row[i] for i in positions] for row in rows), strict=True)]

    def _rows(self, lines: Iterator[str]) -> Iterator[list[str]]:
        reader = csv.reader(lines)
        for number, row in enumerate(reader, start=1):
            if (number == 1 and self._has_names) or not row:
                continue
            if len(row) != len(self._first_line):
                raise ValueError(f"line {number} has {len(row)} cells, the first one has {len(self._first_line)}")
            yield row

    @contextmanager
    def _opened(self) -> Iterator[Iterator[str]]:
        opened = gzip.open if self.path.suffix == ".gz" else open
        with opened(self.path, "rt", encoding="utf-8-sig", newline="") as lines:
            yield lines

    @cached_property
    def _held(self) -> dict[str, np.ndarray]:
        return {}

    @cached_property
    def _first_line(self) -> list[str]:
        with self._opened() as lines:
            return next(csv.reader(lines), [])

    @property
    def _has_names(self) -> bool:
        return not any(_is_number(cell) for cell in self._first_line)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: tuple[str, ...]) -> np.ndarray:
    """The cells as numbers, or as text if one is not a number."""
    try:
        return _whole(np.array([float(cell) if cell.strip() else np.nan for cell in cells]))
    except ValueError:
        return np.array(cells)


def _whole(column: np.ndarray) -> np.ndarray:
    is_whole = np.isfinite(column).all() and (column == np.floor(column)).all() and (np.abs(column) < 2**53).all()
    return column.astype(np.int64) if is_whole else column.copy()
