"""Identifies the content of files without reading it."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from mpi_learn.data.configuration import DataConfiguration, Transform
from mpi_learn.data.files.finding import find_files, is_url
from mpi_learn.settings.paths import is_file
from mpi_learn.settings.user_files import fixed_code

Version = tuple[str, int, int]
"""A file, its modification time (ns since 1970), and its size in bytes."""


def data_version(configuration: DataConfiguration) -> str:
    """A digest of configuration and files, which changes when they change. Remote files count as unchanged.

    Raises:
        DataError: A file does not exist.
    """
    places = [
        *find_files(configuration.train, "data.train"),
        *(find_files(configuration.validation, "data.validation") if configuration.validation else []),
    ]
    return digest(configuration.model_dump_json(), *versions(places, configuration))


def versions(places: Iterable[str], configuration: DataConfiguration) -> list[Version]:
    """The versions of the files at `places`, of all NPY files in the same folders, and of the user's Python files."""
    found = []
    for place in places:
        if is_url(place):
            found.append((place, 0, 0))
        else:
            path = Path(place)
            found += map(_version, sorted(path.parent.glob("*.npy")) if path.suffix == ".npy" else [path])
    for names in (configuration.features, configuration.labels):
        if isinstance(names, Transform) and is_file(file := Path(names.function.rpartition(":")[0])):
            found.append(_version(file))
    return found


def digest(*parts: object) -> str:
    """A digest of these values in 24 hexadecimal characters."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _version(file: Path) -> Version:
    if (content := fixed_code().files.get(os.path.realpath(file))) is not None:
        return str(file), zlib.crc32(content), len(content)
    try:
        known = file.stat()
    except OSError:  # reading the file raises a better error
        return str(file), 0, 0
    return str(file), known.st_mtime_ns, known.st_size
