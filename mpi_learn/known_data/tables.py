"""Reads tables and arrays from published files."""

from __future__ import annotations

import io
from collections.abc import Sequence

import h5py
import numpy as np

from mpi_learn.errors import DataError
from mpi_learn.known_data.data_set import Arrays


def hdf5_arrays(content: bytes, where: str, *names: str) -> Arrays:
    """Datasets of an HDF5 file by name.

    Raises:
        DataError: The file is damaged, or a dataset is missing.
    """
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            missing = [name for name in names if name not in file]
            if missing:
                raise DataError(f"there is no dataset {missing[0]}", where=where, cure="is it the published file?")
            return {name: file[name][()] for name in names}
    except OSError as error:
        raise DataError(f"not an HDF5 file, or damaged: {error}", where=where, cure="fetch it again") from error


def csv_columns(content: bytes, where: str, names: Sequence[str], dtype: type = float) -> np.ndarray:
    """Columns of a CSV file with a header line, shape (n_rows, n_names).

    Raises:
        DataError: A column is missing, or its values cannot be converted to `dtype`.
    """
    header = content.partition(b"\n")[0].decode("utf-8", "replace").strip().split(",")
    missing = [name for name in names if name not in header]
    if missing:
        raise DataError(f"there is no column {missing[0]}", where=where, cure="is it the published file?")
    places = [header.index(name) for name in names]
    try:
        table: np.ndarray = np.loadtxt(io.BytesIO(content), dtype, delimiter=",", skiprows=1, usecols=places, ndmin=2)
    except ValueError as error:
        raise DataError(f"the file is damaged: {error}", where=where, cure="fetch it again") from error
    return table


def standardised(table: np.ndarray, undefined: float | None = None) -> np.ndarray:
    """Scales each column to mean 0 and standard deviation 1, float32. Values equal to `undefined` become 0."""
    values = table.astype(np.float64)
    if undefined is not None:
        values[values == undefined] = np.nan
    spread = np.nanstd(values, axis=0)
    scaled = (values - np.nanmean(values, axis=0)) / np.where(spread > 0, spread, 1)
    return np.asarray(np.nan_to_num(scaled), np.float32)
