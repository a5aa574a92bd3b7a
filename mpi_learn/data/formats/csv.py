"""Text files of columns, also compressed with gzip, read with pyarrow."""

from __future__ import annotations

import codecs
import csv
import gzip
import math
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mpi_learn.data.formats.source import Description, Jagged, Source
from mpi_learn.settings.optional_packages import imported

BLOCK_BYTES = 2**24
"""The file is parsed in blocks of this size; no line may be longer."""


SEPARATORS = (",", "\t", ";", "|")
N_SNIFFED = 2**20
"""The first bytes of a file, which determine its encoding."""


class Dialect(NamedTuple):
    """How a text file is written.

    Attributes:
        encoding: UTF-8, UTF-16 with a byte order mark, or Latin-1.
        separator: Between the columns.
        decimal: The decimal point: a comma in tables of some languages, which separate columns by semicolons.
    """

    encoding: str
    separator: str
    decimal: str


class CSV(Source):
    """The columns of a text file, separated by commas, tabs, semicolons or ``|``, as its first two lines show.

    A column of whole numbers has an integer dtype.

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
                encoding=self._dialect.encoding,
            ),
            reader.ParseOptions(delimiter=self._dialect.separator, newlines_in_values=True),
            reader.ConvertOptions(
                include_columns=positions,
                null_values=[""],
                true_values=[],
                false_values=[],
                timestamp_parsers=[],
                decimal_point=self._dialect.decimal,
            ),
        )

    @cached_property
    def _held(self) -> dict[str, np.ndarray]:
        return {}

    @cached_property
    def _dialect(self) -> Dialect:
        with self._opened("rb") as file:
            start = file.read(N_SNIFFED)
        encoding = _encoding(start)
        lines = start.decode(encoding, errors="replace").splitlines()[:2]
        separator = _separator(lines)
        last = lines[-1] if lines else ""
        has_comma = separator != "," and "." not in last and re.search(r"\d,\d", last) is not None
        return Dialect(encoding, separator, "," if has_comma else ".")

    @cached_property
    def _first_line(self) -> list[str]:
        encoding = self._dialect.encoding.replace("utf-8", "utf-8-sig")  # without a byte order mark
        with self._opened("rt", encoding=encoding, newline="") as lines:
            return next(csv.reader(lines, delimiter=self._dialect.separator), [])

    def _opened(self, mode: str, **options: Any) -> Any:
        return (gzip.open if self.path.suffix == ".gz" else open)(self.path, mode, **options)

    @property
    def _has_names(self) -> bool:
        decimal = self._dialect.decimal
        return _are_names([cell.replace(decimal, ".") for cell in self._first_line])


def _encoding(start: bytes) -> str:
    """The encoding of a file that begins with these bytes: Latin-1 if they are not UTF-8."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)  # the last character may be cut
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def _separator(lines: list[str]) -> str:
    """The separator that divides both lines into the same number of columns, which is the largest."""
    counts = {one: {len(row) for row in csv.reader(lines, delimiter=one)} for one in SEPARATORS}
    possible = {one: max(found) for one, found in counts.items() if len(found) == 1}
    return max(possible, key=lambda one: possible[one]) if possible else ","


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
