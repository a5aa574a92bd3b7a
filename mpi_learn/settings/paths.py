"""Folders and files that are written whole or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mpi_learn.errors import ConfigurationError


def make_folder(folder: Path, key: str) -> None:
    """Makes a folder and tries to write there: said before a training, not after it.

    Raises:
        ConfigurationError: It cannot be made or written to; names `key`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"nothing can be written there: {error.strerror or error}",
            where=f"{key}: {folder}",
            cure="name a folder where you may write",
        ) from error


def write_whole(path: Path, text: str) -> None:
    """Writes aside and renames, so that the file is there whole or not at all."""
    aside = path.with_name(f".{path.name}.writing")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
