"""NPZ and NPY files. Pickled objects are never read."""

from __future__ import annotations

import zipfile
from functools import cached_property
from typing import IO, ClassVar

import numpy as np

from mpi_learn.data.source import Description, Source


class NPZ(Source):
    """The arrays of an NPZ file. The array read last stays in memory, as one cannot seek in a compressed one."""

    format: ClassVar[str] = "NPZ"
    is_table: ClassVar[bool] = False

    def names(self) -> list[str]:
        return list(self._descriptions)

    def describe(self, name: str) -> Description:
        return self._descriptions[name]

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        if self._last is None or self._last[0] != name:
            with np.load(self.path, allow_pickle=False) as file:
                self._last = name, file[name]
        return self._last[1][start:stop]

    _last: tuple[str, np.ndarray] | None = None

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

    def describe(self, name: str) -> Description:
        array = self._array(name)
        return Description(len(array), array.shape[1:], array.dtype)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        return np.array(self._array(name)[start:stop])

    def _array(self, name: str) -> np.ndarray:
        array = np.load(self.path.with_name(f"{name}.npy"), mmap_mode="r", allow_pickle=False)
        return array if array.ndim else array.reshape(1)


def _header(stream: IO[bytes]) -> Description | None:
    """What an NPY stream says of itself; None for a single number."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return Description(shape[0], shape[1:], dtype) if shape else None
