"""HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar

import h5py
import numpy as np

from mpi_learn.data.formats.source import Description, Jagged, Source

LOCKING = "best-effort"
"""Many parallel file systems know no locks, and reading needs none."""


class HDF5(Source):
    """The datasets of an HDF5 file, those in groups as ``group/dataset``; variable-length ones are jagged."""

    format: ClassVar[str] = "HDF5"
    is_table: ClassVar[bool] = False

    def names(self) -> list[str]:
        return list(self._descriptions)

    def describe(self, names: Sequence[str]) -> dict[str, Description]:
        return {name: self._descriptions[name] for name in names}

    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray | Jagged]:
        found = {name: self._file[name][start:stop] for name in names}
        return {name: _rows(found[name]) if self._descriptions[name].is_jagged else found[name] for name in names}

    def n_together(self, names: Sequence[str]) -> int:
        return max((self._file[name].chunks[0] for name in names if self._file[name].chunks), default=1)

    @cached_property
    def _descriptions(self) -> dict[str, Description]:
        return {name: _described(dataset) for name, dataset in _datasets(self._file) if dataset.shape}

    @cached_property
    def _file(self) -> h5py.File:
        """Stays open: to open a file takes as long as to read some megabytes of it."""
        return h5py.File(self.path, locking=LOCKING)


def _datasets(group: h5py.Group, prefix: str = "") -> Iterator[tuple[str, h5py.Dataset]]:
    for name, item in group.items():
        if isinstance(item, h5py.Group):
            yield from _datasets(item, f"{prefix}{name}/")
        elif isinstance(item, h5py.Dataset):
            yield prefix + name, item


def _described(dataset: h5py.Dataset) -> Description:
    of_a_row = h5py.check_vlen_dtype(dataset.dtype)
    is_jagged = isinstance(of_a_row, np.dtype) and dataset.ndim == 1
    return Description(dataset.shape[0], dataset.shape[1:], of_a_row if is_jagged else dataset.dtype, is_jagged)


def _rows(rows: np.ndarray) -> Jagged:
    lengths = np.array([len(row) for row in rows], np.int64)
    return Jagged(np.concatenate(rows) if len(rows) else np.zeros(0), lengths)
