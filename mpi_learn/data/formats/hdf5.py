"""HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mpi_learn.data.formats.source import Description, Jagged, Source

if TYPE_CHECKING:
    import h5py

LOCKING = "best-effort"
"""Reading needs no locks, and many parallel file systems do not support them."""


class HDF5(Source):
    """The datasets of an HDF5 file, in groups as ``group/dataset``. Datasets of variable length are jagged.

    The fields of a dataset of compound type are named ``dataset/field``.
    """

    format: ClassVar[str] = "HDF5"
    is_table: ClassVar[bool] = False

    def names(self) -> list[str]:
        return list(self._descriptions)

    def describe(self, names: Sequence[str]) -> dict[str, Description]:
        return {name: self._descriptions[name] for name in names}

    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray | Jagged]:
        found: dict[str, np.ndarray | Jagged] = {}
        for record in dict.fromkeys(self._descriptions[name].record for name in names):
            inside = [name for name in names if self._descriptions[name].record == record]
            if record:  # all fields at once: each read covers whole records
                fields = [name.removeprefix(f"{record}/") for name in inside]
                rows = self._file[record].fields(fields)[start:stop]
                found |= {name: rows[field] for name, field in zip(inside, fields, strict=True)}
                continue
            for name in inside:
                array = self._file[name][start:stop]
                found[name] = _rows(array) if self._descriptions[name].is_jagged else array
        return found

    def n_together(self, names: Sequence[str]) -> int:
        chunks = [self._file[self._descriptions[name].record or name].chunks for name in names]
        return max((shape[0] for shape in chunks if shape), default=1)

    @cached_property
    def _descriptions(self) -> dict[str, Description]:
        return {
            place: description
            for name, dataset in _datasets(self._file)
            if dataset.shape
            for place, description in _described(name, dataset)
        }

    @cached_property
    def _file(self) -> h5py.File:
        """The open file. It stays open, since opening takes as long as reading some megabytes."""
        import h5py

        return h5py.File(self.path, locking=LOCKING)


def _datasets(
    group: h5py.Group, prefix: str = "", outer: tuple[h5py.Group, ...] = ()
) -> Iterator[tuple[str, h5py.Dataset]]:
    """The datasets in a group with their names. Links to the group itself or to `outer` groups are not followed."""
    import h5py

    outer = (*outer, group)
    for name, item in group.items():
        if isinstance(item, h5py.Group):
            if item not in outer:
                yield from _datasets(item, f"{prefix}{name}/", outer)
        elif isinstance(item, h5py.Dataset):
            yield prefix + name, item


def _described(name: str, dataset: h5py.Dataset) -> Iterator[tuple[str, Description]]:
    """The description of a dataset, or of each of its fields."""
    import h5py

    n, shape, dtype = dataset.shape[0], dataset.shape[1:], dataset.dtype
    for field, (kind, *_) in (dtype.fields or {}).items():
        yield f"{name}/{field}", Description(n, (*shape, *kind.shape), kind.base, record=name)
    if not dtype.fields:
        of_a_row = h5py.check_vlen_dtype(dtype)
        is_jagged = isinstance(of_a_row, np.dtype) and dataset.ndim == 1
        yield name, Description(n, shape, of_a_row if is_jagged else dtype, is_jagged)


def _rows(rows: np.ndarray) -> Jagged:
    lengths = np.array([len(row) for row in rows], np.int64)
    return Jagged(np.concatenate(rows) if len(rows) else np.zeros(0), lengths)
