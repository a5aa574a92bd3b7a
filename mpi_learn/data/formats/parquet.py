"""Parquet files, read with pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np

from mpi_learn.data.formats.source import Description, Jagged, Source
from mpi_learn.errors import DataError
from mpi_learn.settings.optional_packages import imported


class Parquet(Source):
    """The columns of a Parquet file. Fixed-size lists are rows, lists of variable length are jagged."""

    format: ClassVar[str] = "Parquet"
    is_table: ClassVar[bool] = True

    def names(self) -> list[str]:
        return list(self._schema.names)

    def describe(self, names: Sequence[str]) -> dict[str, Description]:
        found = {name: _described(self._schema.field(name).type, self._first_rows[-1]) for name in names}
        for name, description in found.items():
            if description.shape:  # lists of fixed length
                self._check_rows(name, description.shape[0])
        return found

    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray | Jagged]:
        first_rows = self._first_rows
        groups = [i for i in range(len(first_rows) - 1) if first_rows[i] < stop and first_rows[i + 1] > start]
        with self._opened() as file:
            table = file.read_row_groups(groups, columns=list(names))
        table = table.slice(start - first_rows[groups[0]] if groups else 0, stop - start)
        return {name: _as_numpy(table.column(name)) for name in names}

    def n_together(self, names: Sequence[str]) -> int:
        return max((stop - start for start, stop in pairwise(self._first_rows)), default=1)

    def _check_rows(self, name: str, length: int) -> None:
        """Raises `DataError` if a column of lists of fixed `length` has null rows, which pyarrow cannot read.

        The metadata count a null row as one value. Therefore, null rows of lists of length 1 are not found.
        """
        metadata = self._metadata
        paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
        places = [index for index, path in enumerate(paths) if path.rpartition(".list.")[0] == name]
        for i, (start, stop) in enumerate(pairwise(self._first_rows)):
            n_values = sum(metadata.row_group(i).column(place).num_values for place in places)
            if 0 < n_values < (stop - start) * length:
                raise DataError(
                    f"one of the samples {start} to {stop - 1} has no row (null)",
                    where=f"{self.place}: {name}",
                    cure=f"remove such samples, or write a row of {length} numbers for each sample",
                )

    @cached_property
    def _schema(self) -> Any:
        with self._opened() as file:
            return file.schema_arrow

    @cached_property
    def _first_rows(self) -> list[int]:
        """The first row of each row group, followed by the number of rows."""
        metadata = self._metadata
        return [0, *accumulate(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))]

    @cached_property
    def _metadata(self) -> Any:
        with self._opened() as file:
            return file.metadata

    def _opened(self) -> Any:
        return imported("pyarrow.parquet", "parquet").ParquetFile(self.path)


def _described(kind: Any, n_samples: int) -> Description:
    types = imported("pyarrow.types", "parquet")
    shape: tuple[int, ...] = ()
    is_jagged = types.is_list(kind) or types.is_large_list(kind)
    if types.is_fixed_size_list(kind):
        shape = (kind.list_size,)
    if shape or is_jagged:
        kind = kind.value_type
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return Description(n_samples, shape, np.dtype(kind.to_pandas_dtype() if is_number else object), is_jagged)


def _as_numpy(column: Any) -> np.ndarray | Jagged:
    """A column's values; missing numbers are NaN."""
    types = imported("pyarrow.types", "parquet")
    array = column.combine_chunks()
    if types.is_fixed_size_list(array.type):
        return np.asarray(array.flatten().to_numpy(zero_copy_only=False)).reshape(-1, array.type.list_size)
    if types.is_list(array.type) or types.is_large_list(array.type):
        lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        return Jagged(array.flatten().to_numpy(zero_copy_only=False), lengths)
    if types.is_boolean(array.type) and array.null_count:
        array = array.cast("uint8")
    return np.asarray(array.to_numpy(zero_copy_only=False))
