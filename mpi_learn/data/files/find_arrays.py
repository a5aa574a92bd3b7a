"""Finds the arrays of a configuration in a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from mpi_learn.data.configuration import DataConfiguration, Names, Transform
from mpi_learn.data.files.array_kind import ROLES, Role
from mpi_learn.data.files.names import Column, Lookup, Request, names_in
from mpi_learn.data.formats.source import Source, reading
from mpi_learn.errors import DataError

Requests = tuple[tuple[Request, ...], ...]
"""The arrays of features, labels and weights."""


def find_arrays(source: Source, configuration: DataConfiguration) -> Requests:
    """The arrays in a file that `configuration` requests.

    Raises:
        DataError: The file has no array of a name, or cannot be read.
    """
    x, y = map(_plain, (configuration.features, configuration.labels))
    weights = cast("Names | None", configuration.weights)
    with reading(source):
        known = source.names()
    return (
        _found(source, known, x, "features", [*names_in(y), *names_in(weights)]),
        _found(source, known, y, "labels"),
        _found(source, known, weights, "weights"),
    )


def check_same_arrays(found: Requests, source: Source, expected: Requests, first: Source) -> None:
    """Raises `DataError` unless groups and globs match the same names in `source` as in `first`, in any order."""
    for role, here, there in zip(ROLES, found, expected, strict=True):
        names, first_names = _columns(here), _columns(there)
        if names != first_names:
            only = [
                f"only {place.place} has {', '.join(sorted(map(str, more)))}"
                for place, more in ((first, first_names - names), (source, names - first_names))
                if more
            ]
            raise DataError(
                f"the names must match the same arrays in all files, but {'; '.join(only)}",
                where=f"data.{role}: {source.place}",
                cure="name the arrays that all files have",
            )


def _plain(wanted: Names | Transform | None) -> Names | None:
    """The names of the arrays to read, with or without a function."""
    return wanted.names if isinstance(wanted, Transform) else wanted


def _found(
    source: Source, known: list[str], names: Names | None, role: Role, left_out: Sequence[str] = ()
) -> tuple[Request, ...]:
    if names is None:
        return ()
    try:
        return tuple(Lookup(known, source.is_table, role != "features", left_out).requests(names))
    except DataError as error:
        raise DataError(
            f"{error.problem} in this {source.format} file",
            where=f"data.{role}: {source.place}: {error.where}",
            cure=error.cure,
        ) from None


def _columns(requests: tuple[Request, ...]) -> set[Column]:
    return {column for request in requests for column in request.columns}
