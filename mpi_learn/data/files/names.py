"""From the names of a configuration to those of a file."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mpi_learn.data.configuration import Names
from mpi_learn.errors import DataError
from mpi_learn.settings.yaml_file import nearest

N_LISTED = 12


@dataclass(frozen=True)
class Column:
    """A name of a file.

    Args:
        name: As called in the file.
        width: How many values of each row of a jagged one are taken.
    """

    name: str
    width: int | None = None

    def __str__(self) -> str:
        return self.name if self.width is None else f"{self.name}[{self.width}]"


@dataclass(frozen=True)
class Request:
    """One array that a model is to get.

    Args:
        columns: What it is made of.
        is_stacked: Whether the columns are put side by side; else there is one, taken as it is.
    """

    columns: tuple[Column, ...]
    is_stacked: bool

    def __str__(self) -> str:
        return ", ".join(map(str, self.columns))


def look_up(
    names: Names, known: list[str], *, is_table: bool, is_label: bool, labels: Sequence[str] = ()
) -> list[Request]:
    """The arrays that `names` asks for.

    In a table a plain list is one array, its columns side by side; else it is one array for each name. A list inside of
    the list is always one array. A single column is one number a sample as a label, and a row of one as a feature.

    Args:
        names: As in the configuration.
        known: All names in the file.
        labels: The names of the labels, as in the configuration: globs for features leave them out.

    Raises:
        DataError: A name is not there.
    """
    if isinstance(names, str):
        found = find(names, known, labels)
        if not is_table:
            return [Request((column,), False) for column in found]
        return [Request(found, not is_label or len(found) > 1)]
    if is_table and all(isinstance(name, str) for name in names):
        return [_stacked(names, known, labels)]
    requests: list[Request] = []
    for name in names:
        if isinstance(name, list):
            requests.append(_stacked(name, known, labels))
        else:
            requests += look_up(name, known, is_table=is_table, is_label=is_label, labels=labels)
    return requests


def names_in(names: Names | None) -> list[str]:
    """All names in what a configuration asks for, nested or not."""
    if names is None or isinstance(names, str):
        return [] if names is None else [names]
    return [one for name in names for one in names_in(name)]


def find(name: str, known: list[str], labels: Sequence[str] = ()) -> tuple[Column, ...]:
    """What `name` means: itself, all in the group of that name, or what the glob fits; ``name[4]``: four values."""
    name = name.strip("/")
    if name in known:
        return (Column(name),)
    with_width = re.fullmatch(r"(.+)\[(\d+)\]", name)
    plain, width = (with_width[1], int(with_width[2])) if with_width else (name, None)
    found = _fitting(plain, known, labels)
    if not found:
        raise DataError(f"there is no {plain!r}", where=plain, cure=_suggestion(plain, known))
    return tuple(Column(one, width) for one in found)


def _fitting(name: str, known: list[str], labels: Sequence[str] = ()) -> list[str]:
    if name in known:
        return [name]
    if in_group := [one for one in known if one.startswith(f"{name}/")]:
        return in_group
    told = {one for label in labels for one in _fitting(re.sub(r"\[\d+\]$", "", label.strip("/")), known)}
    return [one for one in fnmatch.filter(known, name) if one not in told]


def _stacked(names: list[str], known: list[str], labels: Sequence[str]) -> Request:
    return Request(tuple(column for name in names for column in find(name, known, labels)), True)


def _suggestion(name: str, known: list[str]) -> str:
    if not known:
        return "there is nothing in it that could be read"
    near = nearest(name, known)
    more = f" and {len(known) - N_LISTED} more" if len(known) > N_LISTED else ""
    listed = f"there are: {', '.join(known[:N_LISTED])}{more}"
    return f"did you mean {near!r}? {listed}" if near else listed
