"""Locations of data files: paths, globs and URLs."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from mpi_learn.settings.paths import expanded


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
