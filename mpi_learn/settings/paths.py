"""Names of files, output folders, and files that are replaced atomically."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpi_learn.errors import ConfigurationError


def file_name(text: str) -> str:
    """`text` without characters that a file name must not contain, and without dots at the beginning."""
    return re.sub(r"[/\0]|^\.+", "_", text)


def make_folder(folder: Path, key: str) -> None:
    """Creates a folder and checks that it is writable, so that an error appears before the training starts.

    Raises:
        ConfigurationError: The folder cannot be created or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"the folder is not writable: {error.strerror or error}",
            where=f"{key}: {folder}",
            cure="name a folder that you may write to",
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file that replaces the file at `path` when the block ends without an error.

    Readers never see an incomplete file. The temporary file has the suffix of `path`.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Writes a text file; readers never see an incomplete one."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
