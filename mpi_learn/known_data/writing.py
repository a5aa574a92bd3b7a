"""Writes data sets as HDF5 files, atomically."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mpi_learn.errors import DataError
from mpi_learn.known_data.data_set import FileArray, NamedArrays
from mpi_learn.settings.paths import replacing

CHUNK_BYTES = 2**20


def write(
    path: Path,
    n: int,
    blocks: Iterable[NamedArrays],
    arrays: tuple[FileArray, ...],
    attributes: Mapping[str, Any],
    *,
    compress: bool = False,
) -> None:
    """Writes `n` samples from blocks to a temporary file, and renames it when it is complete.

    Args:
        path: The HDF5 file. Its folder is created if it does not exist.
        n: The number of samples of all blocks together.
        blocks: Arrays by name, the same names in each block.
        arrays: Descriptions of the arrays, which are stored as attributes of the datasets.
        compress: Whether to compress; for arrays of mostly zeros, like padding or voxels without energy.

    Raises:
        DataError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as aside, h5py.File(aside, "w") as file:
            file.attrs.update(attributes)
            _fill(file, n, blocks, compress)
            for array in arrays:
                _describe(file[array.name], array)
    except OSError as error:
        raise DataError(
            f"cannot be written: {error}", where=str(path), cure="check the folder and its free space"
        ) from error


def _fill(file: h5py.File, n: int, blocks: Iterable[NamedArrays], compress: bool) -> None:
    first = 0
    for block in blocks:
        for name, values in block.items():
            if name not in file:
                _create(file, name, n, values, compress)
            file[name][first : first + len(values)] = values
        first += len(next(iter(block.values())))


def _create(file: h5py.File, name: str, n: int, values: np.ndarray, compress: bool) -> None:
    """Creates one dataset for all blocks."""
    shape = (n, *values.shape[1:])
    if not compress:
        file.create_dataset(name, shape, values.dtype)
        return
    rows = max(1, min(n, CHUNK_BYTES // max(1, values[0].nbytes)))
    chunks = (rows, *values.shape[1:])
    file.create_dataset(name, shape, values.dtype, chunks=chunks, compression="gzip", compression_opts=1, shuffle=True)


def _describe(dataset: h5py.Dataset, array: FileArray) -> None:
    dataset.attrs.update({"unit": array.unit, "meaning": array.meaning})
    if array.columns:
        dataset.attrs["columns"] = list(array.columns)
