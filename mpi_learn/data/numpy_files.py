"""NPZ and NPY files. Pickled objects are never read."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from functools import cached_property
from typing import IO, ClassVar

import numpy as np

from mpi_learn.data.source import Description, Jagged, Source


class NPZ(Source):
    """The arrays of an NPZ file. The arrays read last stay in memory, as one cannot seek in compressed ones."""

    format: ClassVar[str] = "NPZ"
    is_table: ClassVar[bool] = False

    def names(self) -> list[str]:
        return list(self._descriptions)

    def describe(self, names: Sequence[str]) -> dict[str, Description]:
        return {name: self._descriptions[name] for name in names}

    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray | Jagged]:
        if not set(names) <= set(self._held):
            with np.load(self.path, allow_pickle=False) as file:
                self._held = {name: file[name] for name in names}
        return {name: self._held[name][start:stop] for name in names}

    @cached_property
    def _held(self) -> dict[str, np.ndarray]:
        return {}

    @cached_property
    def _descriptions(self) -> dict[str, Description]:
        found = {}
        with zipfile.ZipFile(self.path) as archive:
            for member in archive.namelist():
                with archive.open(member) as stream:
                    found[member.removesuffix(".npy")] = _header(stream)
        return {name: description for name, description in found.items() if description is not None}


class NPY(Source):
    """The NPY files of one folder, one array each, called as its file without the suffix. `path` is any of them."""

    format: ClassVar[str] = "NPY"
    is_table: ClassVar[bool] = False

    def names(self) -> list[str]:
        return sorted(file.stem for file in self.path.parent.glob("*.npy"))

    def describe(self, names: Sequence[str]) -> dict[str, Description]:
        arrays = {name: self._array(name) for name in names}
        return {name: Description(len(array), array.shape[1:], array.dtype) for name, array in arrays.items()}

    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray | Jagged]:
        return {name: np.array(self._array(name)[start:stop]) for name in names}

    def _array(self, name: str) -> np.ndarray:
        array = np.load(self.path.with_name(f"{name}.npy"), mmap_mode="r", allow_pickle=False)
        return array if array.ndim else array.reshape(1)


def _header(stream: IO[bytes]) -> Description | None:
    """What an NPY stream says of itself; None for a single number."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return Description(shape[0], shape[1:], dtype) if shape else None
