"""The known data sets as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from mpi_learn.known_data.data_set import DataSet, FileArray

WIDTH = 120
INDENT = " " * 4


def listing(data_sets: Iterable[DataSet]) -> str:
    """All data sets with source, licence and arrays."""
    head = "mpi-learn prepare NAME --to FILE.h5 [--from FOLDER or URL | --simulate N]"
    return "\n\n".join([head, *map(_described, data_sets)])


def _described(one: DataSet) -> str:
    lines = [f"{one.name}: {one.summary}", *_field("source", one.source), *_field("licence", one.licence)]
    files = ", ".join(original.name for original in one.originals)
    lines += [*_field("files", files or "none needed"), *_arrays(one.arrays)]
    if one.simulation is not None:
        options = " ".join(f"[--{option} …]" for option in one.simulation.options)
        lines += [f"  --simulate N {options}: {one.simulation.summary}", *_field("method", one.simulation.method)]
        lines += _arrays(one.simulation.arrays)
    return "\n".join(lines)


def _field(name: str, text: str) -> list[str]:
    return textwrap.wrap(f"{name}: {text}", WIDTH, initial_indent=INDENT, subsequent_indent=2 * INDENT)


def _arrays(arrays: tuple[FileArray, ...]) -> list[str]:
    return [line for one in arrays for line in _field(f"{one.name} {one.shape} {one.dtype} [{one.unit}]", one.meaning)]
