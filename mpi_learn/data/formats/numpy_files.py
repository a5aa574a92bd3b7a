"""NPZ and NPY files. Pickled objects are never read."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from functools import cached_property
from typing import IO, ClassVar

import numpy as np

from mpi_learn.data.formats.source import Description, Jagged, Source

N_BEFORE_LENGTHS = 26
"""The offset in bytes, in a member's local header, of the two lengths: of the file name and of the extra field."""


class NPZ(Source):
    """The arrays of an NPZ file. The last compressed arrays stay in memory, since they have no random access."""

    format: ClassVar[str] = "NPZ"
    is_table: ClassVar[bool] = False

    def names(self) -> list[str]:
        return list(self._descriptions)

    def describe(self, names: Sequence[str]) -> dict[str, Description]:
        return {name: self._descriptions[name] for name in names}

    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray | Jagged]:
        compressed = [name for name in names if name in self._compressed]
        if not set(compressed) <= set(self._held):
            with np.load(self.path, allow_pickle=False) as file:
                self._held = {name: file[name] for name in compressed}
        return {
            name: self._held[name][start:stop] if name in compressed else np.array(self._mapped(name)[start:stop])
            for name in names
        }

    def why_not_streamable(self, names: Sequence[str]) -> str:
        compressed = set(names) & self._compressed
        return f"compressed arrays have no random access ({', '.join(sorted(compressed))})" if compressed else ""

    @cached_property
    def _held(self) -> dict[str, np.ndarray]:
        return {}

    @cached_property
    def _members(self) -> dict[str, zipfile.ZipInfo]:
        with zipfile.ZipFile(self.path) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
        return {member.filename.removesuffix(".npy"): member for member in members}

    @property
    def _compressed(self) -> set[str]:
        return {name for name, member in self._members.items() if member.compress_type != zipfile.ZIP_STORED}

    @cached_property
    def _descriptions(self) -> dict[str, Description]:
        with zipfile.ZipFile(self.path) as archive:
            found = {name: _header(archive.open(member)) for name, member in self._members.items()}
        return {name: description for name, description in found.items() if description is not None}

    def _mapped(self, name: str) -> np.ndarray:
        """A memory map of an uncompressed member, which is stored like an NPY file."""
        with self.path.open("rb") as stream:
            stream.seek(self._members[name].header_offset + N_BEFORE_LENGTHS)
            lengths = struct.unpack("<HH", stream.read(4))
            stream.seek(sum(lengths), 1)
            shape, is_by_columns, dtype = _read_header(stream)
            if 0 in shape:
                return np.zeros(shape)
            return np.memmap(self.path, dtype, "r", stream.tell(), shape, "F" if is_by_columns else "C")


class NPY(Source):
    """The NPY files of one folder, each an array with the name of its file without suffix. `path` is any of them."""

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
        array: np.ndarray = np.load(self.path.with_name(f"{name}.npy"), mmap_mode="r", allow_pickle=False)
        return array if array.ndim else array.reshape(1)


def _header(stream: IO[bytes]) -> Description | None:
    """The description in the header of an NPY stream; None for a single number."""
    shape, _, dtype = _read_header(stream)
    return Description(shape[0], shape[1:], dtype) if shape else None


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether the order is Fortran's, and dtype. The stream is left at the first value."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(stream)
