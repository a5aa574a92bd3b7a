"""Reads tables and arrays from published files."""

from __future__ import annotations

import io
from collections.abc import Mapping

import h5py
import numpy as np

from mpi_learn.errors import DataError
from mpi_learn.known_data.data_set import NamedArrays
from mpi_learn.settings.optional_packages import imported


def hdf5_arrays(content: bytes, where: str, *names: str) -> NamedArrays:
    """Datasets of an HDF5 file by name.

    Raises:
        DataError: The file is damaged, or a dataset is missing.
    """
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            missing = [name for name in names if not isinstance(file.get(name), h5py.Dataset)]
            if missing:
                raise DataError(f"there is no dataset {missing[0]}", where=where, cure="use the published file")
            return {name: file[name][()] for name in names}
    except OSError as error:
        raise DataError(f"not an HDF5 file, or damaged: {error}", where=where, cure="download it again") from error


def csv_columns(content: bytes, where: str, types: Mapping[str, str]) -> NamedArrays:
    """Columns of a CSV file with a header line.

    Args:
        types: Name of the column -> name of its type for pyarrow.

    Raises:
        DataError: A column is missing, or its values are not of its type.
    """
    reader = imported("pyarrow.csv", "parquet")
    options = reader.ConvertOptions(column_types=types, include_columns=list(types))
    try:
        table = reader.read_csv(io.BytesIO(content), convert_options=options)
    except KeyError as error:
        raise DataError(str(error.args[0]), where=where, cure="use the published file") from error
    except ValueError as error:
        raise DataError(f"the file is damaged: {error}", where=where, cure="download it again") from error
    return {name: table[name].to_numpy() for name in types}


def standardised(table: np.ndarray, undefined: float | None = None) -> np.ndarray:
    """Scales each column to mean 0 and standard deviation 1, float32. Values equal to `undefined` become 0."""
    values = table.astype(np.float64)
    if undefined is not None:
        values[values == undefined] = np.nan
    spread = np.nanstd(values, axis=0)
    scaled = (values - np.nanmean(values, axis=0)) / np.where(spread > 0, spread, 1)
    return np.asarray(np.nan_to_num(scaled), np.float32)
