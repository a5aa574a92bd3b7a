"""Finds datasets of HDF5 files whose values are missing: HDF5 returns fill values, usually zeros, in their place.

Values that were never written are accepted if the dataset was created with a fill value (``fillvalue=…`` in h5py): then
they are meant. Compact datasets, and parts of a contiguous dataset or a chunk, do not show whether they were written.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import h5py

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
