"""HDF5 files.

Values that were never written are accepted if the dataset was created with a fill value (``fillvalue=…`` in h5py): then
they are meant. Compact datasets, and parts of a contiguous dataset or a chunk, do not show whether they were written.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import ClassVar, NamedTuple

import h5py
import numpy as np

from mpi_learn.data.formats.source import Description, Jagged, Source
from mpi_learn.errors import DataError

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
        from mpi_learn.data.formats.hdf5 import missing_values

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


VDS_PREFIX, EXTERNAL_PREFIX = "HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX"
"""Variables of the environment in which HDF5 looks for folders of other files."""
THIS_FILE = "."
BLOCK_NUMBER = re.compile(r"(?<!%)%b")
N_NESTED = 16
"""Virtual datasets may have virtual sources. A longer chain is a circle."""


class Missing(NamedTuple):
    """Why values of a dataset are missing, and what to do."""

    problem: str
    cure: str


def missing_values(dataset: h5py.Dataset, n_nested: int = 0) -> Missing | None:
    """Why HDF5 would return fill values for a part of a dataset; None if all of it is stored, or its fill is meant."""
    if not dataset.size:
        return None
    if dataset.is_virtual:
        return _of_virtual(dataset, n_nested)
    if dataset.external:
        return _of_external(dataset)
    if _has_fill_value(dataset):
        return None
    cure = "write it, or create it with fillvalue=… if this value is meant"
    if dataset.chunks is not None:
        n_chunks = math.prod(-(-n // size) for n, size in zip(dataset.shape, dataset.chunks, strict=True))
        n_written = dataset.id.get_num_chunks()
        if 0 < n_written < n_chunks:
            return Missing(f"only {n_written:,} of its {n_chunks:,} chunks were written", cure)
    return Missing("it was never written", cure) if dataset.id.get_storage_size() == 0 else None


def _of_virtual(dataset: h5py.Dataset, n_nested: int) -> Missing | None:
    if n_nested > N_NESTED:
        return Missing("it is a virtual dataset that contains itself", "write its values to a dataset")
    n_covered = 0
    for source in dataset.virtual_sources():
        for file_name in _file_names(dataset, source):
            if missing := _of_source(dataset, source, file_name, n_nested):
                return missing
        n_covered += dataset.size if _is_unlimited(source.vspace) else source.vspace.get_select_npoints()
    if n_covered < dataset.size and not _has_fill_value(dataset):
        return Missing(
            f"its sources provide {n_covered:,} of its {dataset.size:,} values",
            "add the other sources, or create it with fillvalue=… if this value is meant",
        )
    return None


def _of_source(dataset: h5py.Dataset, source: h5py.VDSmap, file_name: str, n_nested: int) -> Missing | None:
    """Why a source of a virtual dataset provides no values."""
    name = source.dset_name
    if file_name == THIS_FILE:
        found = dataset.file.get(name)
        return _of_dataset(found, f"{name} in this file", source, n_nested)
    path = next((path for path in _places(file_name, dataset, VDS_PREFIX) if path.exists()), None)
    if path is None:
        return Missing(
            f"its source {file_name} is missing", "copy this file to the same place beside it, or write it again"
        )
    try:
        with h5py.File(path, locking="best-effort") as file:
            return _of_dataset(file.get(name), f"{name} in {path}", source, n_nested)
    except OSError as error:
        return Missing(f"its source {path} cannot be read: {error}", "write or copy it again")


def _of_dataset(
    found: h5py.Dataset | h5py.Group | None, shown: str, source: h5py.VDSmap, n_nested: int
) -> Missing | None:
    if not isinstance(found, h5py.Dataset):
        return Missing(f"its source {shown} does not exist", "write this dataset, or the virtual dataset again")
    if needed := _needed_shape(source, found):
        return Missing(
            f"its source {shown} has the shape {found.shape}, expected {needed}",
            "write this dataset, or the virtual dataset again",
        )
    missing = missing_values(found, n_nested + 1)
    if missing is None or n_nested:  # in a chain of sources, only the first one and the last problem are shown
        return missing
    return Missing(f"of its source {shown}: {missing.problem}", missing.cure)


def _needed_shape(source: h5py.VDSmap, found: h5py.Dataset) -> str:
    """The shape that a source needs, for a message; empty if it has this shape."""
    space, target = source.src_space, source.vspace
    if _is_unlimited(space) or _is_unlimited(target):
        return ""
    if space.get_select_type() == h5py.h5s.SEL_ALL:
        n = target.get_select_npoints()
        return "" if found.size == n else f"{n:,} values"
    if space.get_simple_extent_ndims() != found.ndim:
        return f"{space.get_simple_extent_ndims()} axes"
    _, last = space.get_select_bounds()
    is_inside = all(index < n for index, n in zip(last, found.shape, strict=True))
    return "" if is_inside else f"at least {tuple(index + 1 for index in last)}"


def _file_names(dataset: h5py.Dataset, source: h5py.VDSmap) -> Iterator[str]:
    """The file of a source, or one for each block if its name contains the number of a block, ``%b``."""
    if not BLOCK_NUMBER.search(source.file_name):
        yield source.file_name.replace("%%", "%")
        return
    start, stride, counts, _ = source.vspace.get_regular_hyperslab()
    axis = next((axis for axis, n in enumerate(counts) if n == h5py.h5s.UNLIMITED), 0)
    last = max(
        (block for place in _places(source.file_name, dataset, VDS_PREFIX) for block in _block_numbers(place)),
        default=0,
    )  # HDF5 ends the dataset before the first file that is missing
    for block in count():
        if start[axis] + block * stride[axis] >= dataset.shape[axis] and block > last:
            return
        yield BLOCK_NUMBER.sub(str(block), source.file_name).replace("%%", "%")


def _block_numbers(place: Path) -> Iterator[int]:
    """The numbers of the existing files whose name is `place` with a number for ``%b``."""
    before, _, after = place.name.partition("%b")
    pattern = re.compile(f"{re.escape(before)}(\\d+){re.escape(after)}")
    for file in place.parent.glob("*") if place.parent.is_dir() else ():
        if match := pattern.fullmatch(file.name):
            yield int(match[1])


def _of_external(dataset: h5py.Dataset) -> Missing | None:
    for name, offset, size in dataset.external:
        places = list(_places(os.fsdecode(name), dataset, EXTERNAL_PREFIX, in_folder=False))
        path = next((path for path in places if path.exists()), None)
        if path is None:
            return Missing(
                f"its values are in the file {os.fsdecode(name)}, which is missing",
                f"copy this file to its place, or set {EXTERNAL_PREFIX} to its folder",
            )
        wanted = dataset.nbytes if size == h5py.h5f.UNLIMITED else size
        if path.stat().st_size < offset + min(wanted, dataset.nbytes):
            return Missing(
                f"its values are in the file {path}, which has {path.stat().st_size:,} bytes, expected at least "
                f"{offset + min(wanted, dataset.nbytes):,}",
                "copy this file again",
            )
    return None


def _places(name: str, dataset: h5py.Dataset, prefix: str, *, in_folder: bool = True) -> Iterator[Path]:
    """The places at which HDF5 looks for another file."""
    folder = Path(os.fsdecode(dataset.file.filename)).parent
    if prefix in os.environ:
        for one in os.environ[prefix].split(":"):
            yield Path(one.replace("${ORIGIN}", str(folder.absolute())), name)
    if in_folder:
        yield folder / name
        if Path(name).is_absolute():
            yield folder / Path(name).name
    yield Path(name)


def _has_fill_value(dataset: h5py.Dataset) -> bool:
    """Whether the dataset was created with a fill value."""
    properties = dataset.id.get_create_plist()
    return bool(properties.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED)


def _is_unlimited(space: h5py.h5s.SpaceID) -> bool:
    """Whether a selection has blocks without end."""
    if space.get_select_type() != h5py.h5s.SEL_HYPERSLABS or not space.is_regular_hyperslab():
        return False
    _, _, counts, blocks = space.get_regular_hyperslab()
    return h5py.h5s.UNLIMITED in (*counts, *blocks)
