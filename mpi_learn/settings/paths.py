"""Names of files, output folders, and files that are replaced atomically."""

from __future__ import annotations

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
def replaced_whole(path: Path) -> Iterator[Path]:
    """A temporary file that is renamed to `path` at the end, so that readers never see an incomplete file.

    It has the suffix of `path`, and is removed if the block raises.
    """
    temporary = path.with_name(f".{path.stem}.writing{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Writes a text file; readers never see an incomplete one."""
    with replaced_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
