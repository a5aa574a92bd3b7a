"""Locations of data files: paths, globs and URLs."""

from __future__ import annotations

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
