"""From the names of a configuration to those of a file."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    """One array that a model gets.

    Args:
        columns: The columns of the file from which it is made.
        is_stacked: Whether the columns are put side by side; else there is one, taken as it is.
        key: Its name for the model; empty if it has none.
    """

    columns: tuple[Column, ...]
    is_stacked: bool
    key: str = ""

    def __str__(self) -> str:
        return ", ".join(map(str, self.columns))


def look_up(
    names: Names, known: list[str], *, is_table: bool, is_label: bool, labels: Sequence[str] = ()
) -> list[Request]:
    """The arrays that `names` asks for.

    In a table a plain list is one array, its columns side by side; otherwise it is one array for each name. A list
    inside the list is always one array. A single column is one number per sample as a label, and a row of one as a
    feature. A mapping gives each array a name. So does a group or glob that stands for several arrays: they are called
    as in the group, and matched by name.

    Args:
        names: As in the configuration.
        known: All names in the file.
        labels: The names of labels and weights, as in the configuration: groups and globs for features leave them out.

    Raises:
        DataError: A name is not there.
    """
    if isinstance(names, dict):
        return [replace(_only(one, known, labels, is_table, is_label), key=key) for key, one in names.items()]
    if isinstance(names, str):
        found = find(names, known, labels)
        if is_table:
            return [Request(found, not is_label or len(found) > 1)]
        keys = _keys(names, found) if len(found) > 1 else [""]
        return [Request((column,), False, key) for column, key in zip(found, keys, strict=True)]
    if is_table and all(isinstance(name, str) for name in names):
        return [_stacked(names, known, labels)]
    if len(names) == 1 and isinstance(names[0], str):
        return look_up(names[0], known, is_table=is_table, is_label=is_label, labels=labels)
    return [_only(name, known, labels, is_table, is_label) for name in names]


def names_in(names: Names | None) -> list[str]:
    """All names in a request of the configuration, nested or not."""
    if names is None or isinstance(names, str):
        return [] if names is None else [names]
    if isinstance(names, dict):
        names = list(names.values())
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
    in_group = [one for one in known if one.startswith(f"{name}/")]
    taken = {one for label in labels for one in _fitting(re.sub(r"\[\d+\]$", "", label.strip("/")), known)}
    rest = [one for one in in_group or fnmatch.filter(known, name) if one not in taken]
    return rest or in_group


def _only(name: str | list[str], known: list[str], labels: Sequence[str], is_table: bool, is_label: bool) -> Request:
    """The one array that a name or a list of columns asks for."""
    if isinstance(name, list):
        return _stacked(name, known, labels)
    found = look_up(name, known, is_table=is_table, is_label=is_label, labels=labels)
    if len(found) > 1:
        raise DataError(
            f"{name!r} stands for {len(found)} arrays, which have names but no order",
            where=name,
            cure="name it alone, or each of its arrays",
        )
    return found[0]


def _keys(name: str, found: Sequence[Column]) -> list[str]:
    """What the arrays of a group are called in it; of a glob, their names after the last slash."""
    group = f"{name.strip('/')}/"
    keys = [one.name.removeprefix(group) for one in found]
    return keys if keys[0] != found[0].name else [one.name.rpartition("/")[2] for one in found]


def _stacked(names: list[str], known: list[str], labels: Sequence[str]) -> Request:
    return Request(tuple(column for name in names for column in find(name, known, labels)), True)


def _suggestion(name: str, known: list[str]) -> str:
    if not known:
        return "there is nothing in it that could be read"
    near = nearest(name, known)
    more = f" and {len(known) - N_LISTED} more" if len(known) > N_LISTED else ""
    listed = f"there are: {', '.join(known[:N_LISTED])}{more}"
    return f"did you mean {near!r}? {listed}" if near else listed
