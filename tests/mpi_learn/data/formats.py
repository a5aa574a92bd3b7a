"""The table of all formats: how to write the same samples in each of them.

A new format is one function and one line in `FORMATS`.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.optional_packages import needs

Columns = dict[str, np.ndarray]
Rows = list[list[float]]


@dataclass(frozen=True)
class Format:
    """One line of the table.

    Args:
        suffix: Of its files.
        write: Writes named arrays, all of the same length.
        write_jagged: Writes rows of different length under one name; None if the format knows none.
        has_text: Whether a column may hold text.
        package: The optional package that reads it, if any.
    """

    suffix: str
    write: Callable[[Path, Columns], None]
    write_jagged: Callable[[Path, str, Rows], None] | None = None
    has_text: bool = True
    package: str = ""


def _write_hdf5(path: Path, columns: Columns) -> None:
    with h5py.File(path, "w") as file:
        for name, column in columns.items():
            file[name] = [str(cell) for cell in column] if column.dtype.kind == "U" else column


def _write_jagged_hdf5(path: Path, name: str, rows: Rows) -> None:
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset(name, (len(rows),), dtype=h5py.vlen_dtype(np.float32))
        for i, row in enumerate(rows):
            dataset[i] = row


def _write_npz(path: Path, columns: Columns) -> None:
    np.savez_compressed(path, **columns)


def _write_npy(path: Path, columns: Columns) -> None:
    """One file for each column in a folder; `path` is the first of them."""
    for name, column in columns.items():
        np.save(path.with_name(f"{name}.npy"), column)


def _write_root(path: Path, columns: Columns) -> None:
    import uproot

    with uproot.recreate(path) as file:
        numbers = {name: column for name, column in columns.items() if column.dtype.kind != "U"}
        texts = {name: column.tolist() for name, column in columns.items() if column.dtype.kind == "U"}
        file.mktree("events", {k: v.dtype for k, v in numbers.items()} | dict.fromkeys(texts, "string"))
        file["events"].extend(numbers | texts)


def _write_jagged_root(path: Path, name: str, rows: Rows) -> None:
    import awkward
    import uproot

    with uproot.recreate(path) as file:
        array = awkward.values_astype(awkward.Array(rows), np.float32)
        file.mktree("events", {name: array.type.content})
        file["events"].extend({name: array})


def _write_parquet(path: Path, columns: Columns) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(
        pyarrow.table({k: pyarrow.array(v) for k, v in columns.items()}), path, row_group_size=5
    )


def _write_jagged_parquet(path: Path, name: str, rows: Rows) -> None:
    import pyarrow
    import pyarrow.parquet

    array = pyarrow.array(rows, pyarrow.list_(pyarrow.float32()))
    pyarrow.parquet.write_table(pyarrow.table({name: array}), path, row_group_size=2)


def _write_csv(path: Path, columns: Columns) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


FORMATS = {
    "hdf5": Format(".h5", _write_hdf5, _write_jagged_hdf5),
    "npz": Format(".npz", _write_npz),
    "npy": Format(".npy", _write_npy),
    "root": Format(".root", _write_root, _write_jagged_root, package="uproot"),
    "parquet": Format(".parquet", _write_parquet, _write_jagged_parquet, package="pyarrow"),
    "csv": Format(".csv", _write_csv, package="pyarrow"),
    "csv.gz": Format(".csv.gz", _write_csv, package="pyarrow"),
}


def marked(names: Iterable[str]) -> list[Any]:
    """Parameters of a test: names of formats, each with the mark of the package that reads it."""
    packages = {name: FORMATS[name].package for name in names}
    return [pytest.param(name, marks=needs(package)) if package else name for name, package in packages.items()]
