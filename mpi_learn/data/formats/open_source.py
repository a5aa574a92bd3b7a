"""Every file format: suffix -> class. Each format imports its third-party reader on first use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mpi_learn.data.formats.csv import CSV
from mpi_learn.data.formats.hdf5 import HDF5
from mpi_learn.data.formats.numpy_files import NPY, NPZ
from mpi_learn.data.formats.parquet import Parquet
from mpi_learn.data.formats.root import ROOT
from mpi_learn.data.formats.source import Source
from mpi_learn.errors import DataError
from mpi_learn.settings.paths import is_file

SOURCES: Mapping[str, type[Source]] = {
    ".h5": HDF5,
    ".hdf5": HDF5,
    ".npz": NPZ,
    ".npy": NPY,
    ".root": ROOT,
    ".parquet": Parquet,
    ".csv": CSV,
    ".csv.gz": CSV,
    ".tsv": CSV,
    ".tsv.gz": CSV,
}
"""The longest matching suffix is used."""


def open_source(path: Path, place: str = "") -> Source:
    """The source of a file, selected by its suffix. The arguments are those of `Source`.

    Raises:
        DataError: The suffix is unknown, or the file does not exist or is not accessible.
    """
    suffix = max((s for s in SOURCES if path.name.lower().endswith(s)), key=len, default=None)
    if suffix is None:
        raise DataError(
            "the suffix belongs to no known format",
            where=place or str(path),
            cure=f"use the suffix of its format, one of: {' '.join(SOURCES)}",
        )
    if not is_file(path, DataError):
        raise DataError("there is no such file", where=place or str(path), cure="check the path")
    return SOURCES[suffix](path, place)
