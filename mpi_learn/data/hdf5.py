"""HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

import h5py
import numpy as np

from mpi_learn.data.source import Description, Source


class HDF5(Source):
    """The datasets of an HDF5 file, those in groups as ``group/dataset``."""

    format: ClassVar[str] = "HDF5"
    is_table: ClassVar[bool] = False

    def names(self) -> list[str]:
        return list(self._descriptions)

    def describe(self, name: str) -> Description:
        return self._descriptions[name]

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        with h5py.File(self.path) as file:
            return file[name][start:stop]

    @cached_property
    def _descriptions(self) -> dict[str, Description]:
        with h5py.File(self.path) as file:
            return {name: _described(dataset) for name, dataset in _datasets(file) if dataset.shape}


def _datasets(group: h5py.Group, prefix: str = "") -> Iterator[tuple[str, h5py.Dataset]]:
    for name, item in group.items():
        if isinstance(item, h5py.Group):
            yield from _datasets(item, f"{prefix}{name}/")
        elif isinstance(item, h5py.Dataset):
            yield prefix + name, item


def _described(dataset: h5py.Dataset) -> Description:
    return Description(dataset.shape[0], dataset.shape[1:], dataset.dtype)
