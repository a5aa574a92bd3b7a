"""Matches the names in a configuration with those in a file."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpi_learn.data.configuration import Names
from mpi_learn.errors import DataError
from mpi_learn.settings.suggestions import suggestion


@dataclass(frozen=True)
class Column:
    """A column or dataset of a file.

    Args:
        name: Its name in the file.
        width: The number of values to take from each row of a jagged column.
    """

    name: str
    width: int | None = None

    def __str__(self) -> str:
        return self.name if self.width is None else f"{self.name}[{self.width}]"


@dataclass(frozen=True)
class Request:
    """One array for the model.

    Args:
        columns: The columns of the file that form the array.
        is_stacked: Whether the columns are stacked side by side; otherwise the array is a single column unchanged.
        key: The array's name for the model; empty without a name.
    """

    columns: tuple[Column, ...]
    is_stacked: bool
    key: str = ""

    def __str__(self) -> str:
        return ", ".join(map(str, self.columns))


def look_up(names: Names, known: list[str], *, is_table: bool, is_label: bool, labels: Sequence[str]) -> list[Request]:
    """The arrays that `names` requests.

    In a table, a plain list is one array with the columns side by side; otherwise it is one array for each name. A list
    inside the list is always one array. A single column has shape (n,) as a label and (n, 1) as a feature. A mapping
    gives each array a name. A group or glob of several arrays also gives names: the arrays have their names in the
    group and are matched by name.

    Args:
        names: Names as in the configuration.
        known: All names in the file.
        is_table: Whether the file is a table of columns.
        is_label: Whether the arrays are labels or weights.
        labels: The names of labels and weights in the configuration, which groups and globs of features leave out.

    Raises:
        DataError: The file has no array of a name.
    """
    if isinstance(names, dict):
        return [
            replace(_single_request(name, known, labels, is_table, is_label), key=key) for key, name in names.items()
        ]
    if isinstance(names, str):
        return _named(names, find(names, known, labels), is_table, is_label)
    plain = [name for name in names if isinstance(name, str)]
    if is_table and len(plain) == len(names):
        return [_stacked(plain, known, labels)]
    if len(names) == len(plain) == 1:
        return look_up(plain[0], known, is_table=is_table, is_label=is_label, labels=labels)
    return [_single_request(name, known, labels, is_table, is_label) for name in names]


def _named(name: str, found: tuple[Column, ...], is_table: bool, is_label: bool) -> list[Request]:
    """The arrays that a single name, group or glob requests: one of a table, otherwise one for each column found."""
    if is_table:
        return [Request(found, not is_label or len(found) > 1)]
    keys = _keys(name, found) if len(found) > 1 else [""]
    return [Request((column,), False, key) for column, key in zip(found, keys, strict=True)]


def names_in(names: Names | None) -> list[str]:
    """All names in the configuration's `names`, without nesting."""
    if names is None:
        return []
    parts = [names] if isinstance(names, str) else names.values() if isinstance(names, dict) else names
    return [name for part in parts for name in ([part] if isinstance(part, str) else part)]


def find(name: str, known: list[str], labels: Sequence[str]) -> tuple[Column, ...]:
    """The columns of a name, a group or a glob; ``name[4]``: four values of each row."""
    name = name.strip("/")
    if name in known:
        return (Column(name),)
    with_width = re.fullmatch(r"(.+)\[(\d+)\]", name)
    plain, width = (with_width[1], int(with_width[2])) if with_width else (name, None)
    found = _fitting(plain, known, labels)
    if not found:
        cure = suggestion(plain, known, "there are") if known else "the file contains no readable array"
        raise DataError(f"there is no {plain!r}", where=plain, cure=cure)
    return tuple(Column(column, width) for column in found)


def _fitting(name: str, known: list[str], labels: Sequence[str] = ()) -> list[str]:
    if name in known:
        return [name]
    in_group = [other for other in known if other.startswith(f"{name}/")]
    taken = {other for label in labels for other in _fitting(re.sub(r"\[\d+\]$", "", label.strip("/")), known)}
    rest = [other for other in in_group or fnmatch.filter(known, name) if other not in taken]
    return rest or in_group


def _single_request(
    name: str | list[str], known: list[str], labels: Sequence[str], is_table: bool, is_label: bool
) -> Request:
    """The single array that a name or a list of columns requests."""
    if isinstance(name, list):
        return _stacked(name, known, labels)
    found = look_up(name, known, is_table=is_table, is_label=is_label, labels=labels)
    if len(found) > 1:
        raise DataError(
            f"{name!r} matches {len(found)} arrays, which have names but no order",
            where=name,
            cure="write it without a list, or name each array",
        )
    return found[0]


def _keys(name: str, found: Sequence[Column]) -> list[str]:
    """The names of the arrays inside their group; for a glob, their names after the last slash."""
    group = f"{name.strip('/')}/"
    keys = [column.name.removeprefix(group) for column in found]
    return keys if keys[0] != found[0].name else [column.name.rpartition("/")[2] for column in found]


def _stacked(names: list[str], known: list[str], labels: Sequence[str]) -> Request:
    return Request(tuple(column for name in names for column in find(name, known, labels)), True)
