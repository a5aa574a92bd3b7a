"""Names of files, output folders, and files that are replaced atomically."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpi_learn.errors import ConfigurationError

MAX_NAME_BYTES = 230
"""The longest name of a file, to which suffixes are added: file systems allow 255 bytes."""


def file_name(text: str) -> str:
    """`text` without characters that a file name must not contain, and without dots at the beginning.

    Is at most `MAX_NAME_BYTES` long in UTF-8: the end of a longer text is replaced by a hash of it.
    """
    name = re.sub(r"[/\0]|^\.+", "_", text)
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    short = name.encode()[: MAX_NAME_BYTES - 9].decode(errors="ignore")
    return f"{short}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


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
