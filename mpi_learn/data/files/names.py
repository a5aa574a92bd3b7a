"""Matches the names in a configuration with those in a file."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpi_learn.data.configuration import Names
from mpi_learn.errors import DataError
from mpi_learn.settings.suggestions import suggestion

INDEX_OF_PANDAS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
"""The names of the index of a table that pandas has written. Globs leave it out: in a file that is sorted by class, the
numbers of rows reveal the labels."""


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


@dataclass(frozen=True)
class Lookup:
    """Finds the arrays that a configuration requests in one file.

    In a table, a plain list is one array with the columns side by side; otherwise it is one array for each name. A list
    inside the list is always one array. A single column of a table has shape (n,) as a label and (n, 1) as a feature.

    For the model, the arrays of a mapping are named by its keys. Those of a group or glob of several arrays, outside of
    a table, have their names inside the group. Other arrays have no names.

    Attributes:
        known: All names in the file.
        is_table: Whether the file is a table of columns.
        is_label: Whether the arrays are labels or weights.
        left_out: Names that groups and globs leave out: of labels and weights, if features are requested.
    """

    known: list[str]
    is_table: bool
    is_label: bool
    left_out: Sequence[str] = ()

    def requests(self, names: Names) -> list[Request]:
        """The arrays that `names` of a configuration request.

        Raises:
            DataError: The file has no array of a name.
        """
        if isinstance(names, dict):
            return [replace(self._single(name), key=key) for key, name in names.items()]
        if isinstance(names, str):
            return self._named(names)
        plain = [name for name in names if isinstance(name, str)]
        if self.is_table and len(plain) == len(names):
            return [self._stacked(plain)]
        return self._named(plain[0]) if len(names) == len(plain) == 1 else [self._single(name) for name in names]

    def _named(self, name: str) -> list[Request]:
        """The arrays of a name, group or glob: one of a table, otherwise one for each column found."""
        found = self._columns(name)
        if self.is_table:
            return [Request(found, not self.is_label or len(found) > 1)]
        keys = _keys(name, found) if len(found) > 1 else [""]
        return [Request((column,), False, key) for column, key in zip(found, keys, strict=True)]

    def _single(self, name: str | list[str]) -> Request:
        """The single array that a name or a list of columns requests."""
        if isinstance(name, list):
            return self._stacked(name)
        found = self._named(name)
        if len(found) > 1:
            raise DataError(
                f"{name!r} matches {len(found)} arrays, which have names but no order",
                where=name,
                cure="write it without a list, or name each array",
            )
        return found[0]

    def _stacked(self, names: list[str]) -> Request:
        return Request(tuple(column for name in names for column in self._columns(name)), True)

    def _columns(self, name: str) -> tuple[Column, ...]:
        """The columns of a name, a group or a glob; ``name[4]``: four values of each row."""
        name = name.strip("/")
        if name in self.known:
            return (Column(name),)
        with_width = re.fullmatch(r"(.+)\[(\d+)\]", name)
        plain, width = (with_width[1], int(with_width[2])) if with_width else (name, None)
        found = self._matching(plain, self.left_out)
        if not found:
            cure = suggestion(plain, self.known, "there are") if self.known else "the file contains no readable array"
            raise DataError(f"there is no {plain!r}", where=plain, cure=cure)
        return tuple(Column(column, width) for column in found)

    def _matching(self, name: str, left_out: Sequence[str] = ()) -> list[str]:
        """The array `name`, or those in a group or glob; without `left_out`, unless a group has no others.

        A glob also leaves out the index that pandas writes.
        """
        if name in self.known:
            return [name]
        in_group = [other for other in self.known if other.startswith(f"{name}/")]
        taken = {other for label in left_out for other in self._matching(re.sub(r"\[\d+\]$", "", label.strip("/")))}
        matching = [other for other in fnmatch.filter(self.known, name) if not INDEX_OF_PANDAS.fullmatch(other)]
        rest = [other for other in in_group or matching if other not in taken]
        return rest or in_group


def names_in(names: Names | None) -> list[str]:
    """All names in the configuration's `names`, without nesting."""
    if names is None:
        return []
    parts = [names] if isinstance(names, str) else names.values() if isinstance(names, dict) else names
    return [name for part in parts for name in ([part] if isinstance(part, str) else part)]


def _keys(name: str, found: Sequence[Column]) -> list[str]:
    """The names of the arrays inside their group; for a glob, their names after the last slash.

    Raises:
        DataError: Two arrays would have the same name.
    """
    group = f"{name.strip('/')}/"
    keys = [column.name.removeprefix(group) for column in found]
    if keys[0] == found[0].name:
        keys = [column.name.rpartition("/")[2] for column in found]
    if repeated := next((key for key in keys if keys.count(key) > 1), ""):
        same = [column for column, key in zip(found, keys, strict=True) if key == repeated]
        raise DataError(
            f"{' and '.join(map(str, same))} would have the same name {repeated}",
            where=name,
            cure=f"name each array: {{{same[0].name.replace('/', '_')}: {same[0]}, …}}",
        )
    return keys
