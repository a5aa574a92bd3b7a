"""From the names of a configuration to those of a file."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from mpi_learn.data.configuration import Names
from mpi_learn.errors import DataError
from mpi_learn.validation import nearest

N_LISTED = 12


@dataclass(frozen=True)
class Request:
    """One array that a model is to get.

    Args:
        names: What it is made of, as called in the file.
        is_stacked: Whether the names are columns, to be put side by side; else there is one name, taken as it is.
    """

    names: tuple[str, ...]
    is_stacked: bool

    def __str__(self) -> str:
        return ", ".join(self.names)


def look_up(names: Names, known: list[str], *, is_table: bool, is_label: bool) -> list[Request]:
    """The arrays that `names` asks for.

    In a table a plain list is one array, its columns side by side; else it is one array for each name. A list inside of
    the list is always one array. A single column is one number a sample as a label, and a row of one as a feature.

    Args:
        names: As in the configuration.
        known: All names in the file.

    Raises:
        DataError: A name is not there.
    """
    if isinstance(names, str):
        found = find(names, known)
        if not is_table:
            return [Request((name,), False) for name in found]
        return [Request(found, not is_label or len(found) > 1)]
    if is_table and all(isinstance(name, str) for name in names):
        return [_stacked(names, known)]
    requests: list[Request] = []
    for name in names:
        if isinstance(name, list):
            requests.append(_stacked(name, known))
        else:
            requests += look_up(name, known, is_table=is_table, is_label=is_label)
    return requests


def find(name: str, known: list[str]) -> tuple[str, ...]:
    """The names of the file that `name` means: itself, all in the group of that name, or what the glob fits."""
    name = name.strip("/")
    if name in known:
        return (name,)
    found = [one for one in known if one.startswith(f"{name}/")] or fnmatch.filter(known, name)
    if not found:
        raise DataError(f"there is no {name!r}", where=name, cure=_suggestion(name, known))
    return tuple(found)


def _stacked(names: list[str], known: list[str]) -> Request:
    return Request(tuple(one for name in names for one in find(name, known)), True)


def _suggestion(name: str, known: list[str]) -> str:
    if not known:
        return "there is nothing in it that could be read"
    near = nearest(name, known)
    more = f" and {len(known) - N_LISTED} more" if len(known) > N_LISTED else ""
    listed = f"there are: {', '.join(known[:N_LISTED])}{more}"
    return f"did you mean {near!r}? {listed}" if near else listed
