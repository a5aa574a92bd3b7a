"""CSV files, also compressed with gzip, read with pyarrow."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mpi_learn.data.formats.source import Description, Jagged, Source
from mpi_learn.settings.optional_packages import imported

BLOCK_BYTES = 2**24
"""The file is parsed in blocks of this size; no line may be longer."""


class CSV(Source):
    """The columns of a CSV file, separated by commas. A column of whole numbers has an integer dtype.

    The first line contains the names, unless it has numbers (see `_are_names`): then the columns are named 0, 1, 2, …
    An empty cell is NaN. Columns stay in memory after reading, since text files have no random access.
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

    def why_not_streamable(self, names: Sequence[str]) -> str:
        return "text files have no random access"

    def _columns(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        missing = [name for name in names if name not in self._held]
        if missing:
            positions = [str(self.names().index(name)) for name in missing]
            table = self._read(positions)
            self._held |= {name: _as_numpy(table[key]) for name, key in zip(missing, positions, strict=True)}
        return {name: self._held[name] for name in names}

    def _read(self, positions: list[str]) -> Any:
        """The columns at `positions` as a table of pyarrow."""
        reader = imported("pyarrow.csv", "parquet")
        return reader.read_csv(
            self.path,
            reader.ReadOptions(
                block_size=BLOCK_BYTES,
                use_threads=False,  # errors then contain the row; the other cores belong to other ranks
                column_names=[str(position) for position in range(len(self._first_line))],
                skip_rows=int(self._has_names),
            ),
            reader.ParseOptions(newlines_in_values=True),
            reader.ConvertOptions(
                include_columns=positions, null_values=[""], true_values=[], false_values=[], timestamp_parsers=[]
            ),
        )

    @cached_property
    def _held(self) -> dict[str, np.ndarray]:
        return {}

    @cached_property
    def _first_line(self) -> list[str]:
        opened = gzip.open if self.path.suffix == ".gz" else open
        with opened(self.path, "rt", encoding="utf-8-sig", newline="") as lines:
            return next(csv.reader(lines), [])

    @property
    def _has_names(self) -> bool:
        return _are_names(self._first_line)


def _are_names(cells: list[str]) -> bool:
    """Whether the first line of a file contains names: it has no numbers, or only those that pandas uses as names.

    Pandas names columns by their positions 0, 1, … if they have no other names. Its index, the first column, has an
    empty name.
    """
    if len(cells) == 1:
        return not _is_number(cells[0])
    names = cells[1:] if cells[:1] == [""] else cells
    if not any(map(_is_finite, names)):
        return True  # nan and inf may be names
    return all(names) and all(cell == str(position) for position, cell in enumerate(names) if _is_number(cell))


def _is_finite(cell: str) -> bool:
    return _is_number(cell) and math.isfinite(float(cell))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _as_numpy(column: Any) -> np.ndarray:
    """A column as numbers, with NaN for empty cells, or as text."""
    types = imported("pyarrow.types", "parquet")
    if types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy())
    if types.is_integer(column.type) or types.is_floating(column.type) or types.is_null(column.type):
        return _as_integers(column.cast("float64").to_numpy())
    return np.asarray(column.cast("string").to_numpy().astype(str))


def _as_integers(column: np.ndarray) -> np.ndarray:
    is_whole = np.isfinite(column).all() and (column == np.floor(column)).all() and (np.abs(column) < 2**53).all()
    return column.astype(np.int64) if is_whole and len(column) else column
