"""Checkpoints: one npz file with arrays and a JSON text, there whole or not at all, without pickle."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpi_learn.errors import ConfigurationError

FILE = "checkpoint.npz"
WORDS = "words"


@dataclass
class Checkpoint:
    """A training after some epoch.

    Attributes:
        words: Everything that JSON can hold: epoch, history, steps, stopping, configuration.
        arrays: Everything else, by name.
    """

    words: dict[str, Any]
    arrays: dict[str, np.ndarray]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Writes the checkpoint aside and renames it over the last one; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    text = np.frombuffer(json.dumps(checkpoint.words).encode(), np.uint8)
    aside, file = folder / f".{FILE}.{os.getpid()}", folder / FILE
    with aside.open("wb") as stream:
        np.savez(stream, **{WORDS: text}, **checkpoint.arrays)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(file)
    return file


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint in `folder`; None if there is none.

    Raises:
        ConfigurationError: The file is not one of ours.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        with np.load(file, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
        return Checkpoint(json.loads(arrays.pop(WORDS).tobytes()), arrays)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigurationError(
            f"this is no checkpoint: {error}", where=str(file), cure="remove it, or write another checkpoint.path"
        ) from error
