"""HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mpi_learn.data.formats.source import Description, Jagged, Source
from mpi_learn.errors import DataError

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
        return [*self._descriptions, *self._broken_links]

    def describe(self, names: Sequence[str]) -> dict[str, Description]:
        for name in names:
            if name in self._broken_links:
                raise DataError(
                    f"it is a link to {self._broken_links[name]}, which is missing",
                    where=f"{self.place}: {name}",
                    cure="copy the linked file to its place, or write the dataset again",
                )
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

    def check_complete(self, names: Sequence[str]) -> None:
        from mpi_learn.data.formats.hdf5_storage import missing_values

        for name in dict.fromkeys(self._descriptions[name].record or name for name in names):
            if missing := missing_values(self._file[name]):
                raise DataError(missing.problem, where=f"{self.place}: {name}", cure=missing.cure)

    def close(self) -> None:
        if (file := vars(self).pop("_file", None)) is not None:
            file.close()

    def n_together(self, names: Sequence[str]) -> int:
        chunks = [self._file[self._descriptions[name].record or name].chunks for name in names]
        return max((shape[0] for shape in chunks if shape), default=1)

    @cached_property
    def _descriptions(self) -> dict[str, Description]:
        return {
            place: description
            for name, dataset in _datasets(self._file)
            if dataset is not None and dataset.shape
            for place, description in _described(name, dataset)
        }

    @cached_property
    def _broken_links(self) -> dict[str, str]:
        """Name -> place to which a link without a target refers."""
        return {
            name: _target(self._file.get(name, getlink=True)) for name, item in _datasets(self._file) if item is None
        }

    @cached_property
    def _file(self) -> h5py.File:
        """The open file. It stays open until `close`, since opening takes as long as reading some megabytes."""
        import h5py

        return h5py.File(self.path, locking=LOCKING)


def _datasets(
    group: h5py.Group, prefix: str = "", outer: tuple[h5py.Group, ...] = ()
) -> Iterator[tuple[str, h5py.Dataset | None]]:
    """The datasets in a group with their names; None for a link without a target.

    Links to the group itself or to `outer` groups are not followed.
    """
    import h5py

    outer = (*outer, group)
    for name, item in group.items():
        if isinstance(item, h5py.Group):
            if item not in outer:
                yield from _datasets(item, f"{prefix}{name}/", outer)
        elif item is None or isinstance(item, h5py.Dataset):
            yield prefix + name, item


def _target(link: h5py.ExternalLink | h5py.SoftLink) -> str:
    return f"{link.path} in {link.filename}" if hasattr(link, "filename") else str(link.path)


def _described(name: str, dataset: h5py.Dataset) -> Iterator[tuple[str, Description]]:
    """The description of a dataset, or of each of its fields."""
    import h5py

    n, shape, dtype = dataset.shape[0], dataset.shape[1:], dataset.dtype
    for field, (kind, *_) in (dtype.fields or {}).items():
        yield f"{name}/{field}", Description(n, (*shape, *kind.shape), kind.base, record=name)
    if not dtype.fields:
        if h5py.check_string_dtype(dtype) is not None:
            dtype = np.dtype("S8")  # text of any length, which h5py reads as objects
        of_a_row = h5py.check_vlen_dtype(dtype)
        is_jagged = isinstance(of_a_row, np.dtype) and dataset.ndim == 1
        yield name, Description(n, shape, of_a_row if is_jagged else dtype, is_jagged)


def _rows(rows: np.ndarray) -> Jagged:
    lengths = np.array([len(row) for row in rows], np.int64)
    return Jagged(np.concatenate(rows) if len(rows) else np.zeros(0), lengths)
