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


def _described(data_set: DataSet) -> str:
    files = ", ".join(original.name for original in data_set.originals) or "none needed"
    lines = [f"{data_set.name}: {data_set.summary}", *_field("source", data_set.source)]
    lines += [*_field("licence", data_set.licence), *_field("files", files), *_arrays(data_set.arrays)]
    if (simulation := data_set.simulation) is not None:
        options = " ".join(f"[--{option} …]" for option in simulation.options)
        lines += [f"  --simulate N {options}: {simulation.summary}", *_field("method", simulation.method)]
        lines += _arrays(simulation.arrays)
    return "\n".join(lines)


def _field(name: str, text: str) -> list[str]:
    return textwrap.wrap(f"{name}: {text}", WIDTH, initial_indent=INDENT, subsequent_indent=2 * INDENT)


def _arrays(arrays: tuple[FileArray, ...]) -> list[str]:
    fields = {f"{array.name} {array.shape} {array.dtype} [{array.unit}]": array.meaning for array in arrays}
    return [line for name, meaning in fields.items() for line in _field(name, meaning)]
