"""Every file format: suffix -> class. Each format imports its third-party reader on first use."""

from __future__ import annotations

import importlib
from pathlib import Path

from mpi_learn.data.formats.source import Source
from mpi_learn.errors import DataError

SOURCES = {
    ".h5": "mpi_learn.data.formats.hdf5:HDF5",
    ".hdf5": "mpi_learn.data.formats.hdf5:HDF5",
    ".npz": "mpi_learn.data.formats.numpy_files:NPZ",
    ".npy": "mpi_learn.data.formats.numpy_files:NPY",
    ".root": "mpi_learn.data.formats.root:ROOT",
    ".parquet": "mpi_learn.data.formats.parquet:Parquet",
    ".csv": "mpi_learn.data.formats.csv:CSV",
    ".csv.gz": "mpi_learn.data.formats.csv:CSV",
}
"""Suffix -> class; the longest matching suffix is used."""


def open_source(path: Path, place: str = "") -> Source:
    """The source of a file, selected by its suffix. The arguments are those of `Source`.

    Raises:
        DataError: The suffix is unknown, or the file does not exist.
    """
    suffix = max((s for s in SOURCES if path.name.lower().endswith(s)), key=len, default=None)
    if suffix is None:
        raise DataError(
            "the suffix belongs to no known format",
            where=place or str(path),
            cure=f"use the suffix of its format, one of: {' '.join(SOURCES)}",
        )
    if not path.is_file():
        raise DataError("there is no such file", where=place or str(path), cure="check the path")
    module, _, name = SOURCES[suffix].partition(":")
    source: Source = getattr(importlib.import_module(module), name)(path, place)
    return source
