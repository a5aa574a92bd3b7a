"""Finds the files of paths, globs and URLs."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from mpi_learn.data.files.remote import find_urls
from mpi_learn.errors import DataError
from mpi_learn.settings.paths import expanded, is_file
from mpi_learn.settings.suggestions import nearest_file


def find_files(places: list[str], key: str) -> list[str]:
    """The files of paths, globs and URLs, without repetition. The files of a glob are sorted.

    Raises:
        DataError: One of the places has no file, or is an NPY file at a URL.
        UserError: As for `find_urls`.
    """
    found: dict[str, str] = {}
    for place in places:
        files = find_urls(place) if is_url(place) else _matching(place)
        if not files:
            raise _no_file(place, key)
        if is_url(place) and (npy := [file for file in files if file.endswith(".npy")]):
            raise DataError(
                "NPY files cannot be read from a URL", where=f"{key}: {npy[0]}", cure="pack them into one .npz file"
            )
        for file in files:
            found.setdefault(_source_of(file), file)
    return list(found.values())


def _matching(place: str) -> list[str]:
    matches = [place] if is_file(Path(place), DataError) else sorted(glob.glob(place, recursive=True))  # noqa: PTH207
    return [match for match in matches if is_file(Path(match), DataError)]


def _source_of(file: str) -> str:
    """The same text for all paths of one file, and for all NPY files of one folder, which are one source."""
    if is_url(file):
        return file
    if file.endswith(".npy"):
        return str(Path(os.path.realpath(Path(file).parent), "*.npy"))
    return os.path.realpath(file)


def _no_file(place: str, key: str) -> DataError:
    path = Path(place)
    if is_url(place) or glob.has_magic(place):
        shown = place.replace("[[]", "[")  # see `absolute_pattern`
        return DataError("no file matches this pattern", where=f"{key}: {shown}", cure="check the path and the suffix")
    if path.is_dir():
        return DataError("this is a folder", where=f"{key}: {place}", cure=f"name its files: {place}/*.h5")
    if not path.parent.is_dir():
        return DataError("there is no such folder", where=f"{key}: {path.parent}", cure="check the path")
    near = nearest_file(path, f"*{path.suffix}")
    cure = f"did you mean {near!r}?" if near else f"{path.parent} has no file with a similar name"
    return DataError("there is no such file", where=f"{key}: {place}", cure=cure)


def is_url(place: str) -> bool:
    """Whether `place` is a URL (``s3://…``, ``root://…``), not a path."""
    return "://" in place


def absolute(place: str, directory: Path) -> str:
    """`place` as an absolute path, relative to `directory`; ``~`` is the home directory. URLs do not change.

    Raises:
        ConfigurationError: As for `expanded`.
    """
    if is_url(place):
        return place
    return str((directory / expanded(place)).absolute())


def absolute_pattern(place: str, directory: Path) -> str:
    """`absolute` for a path or glob of files. A glob matches in `directory` whatever characters its name has."""
    path = absolute(place, directory)
    if is_url(place) or not glob.has_magic(place) or os.path.isfile(path):  # noqa: PTH113 - False for any error
        return path
    return absolute(place, Path(glob.escape(str(directory.absolute()))))
