"""Checkpoints: one npz file with arrays and a JSON text, there whole or not at all, without pickle."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpi_learn.errors import ConfigurationError

FILE = "checkpoint.npz"
WORDS = "words"
OF_RANK = "rank."
"""What the names of arrays begin with that only one rank has: ``rank.3.energy``."""


Arrays = dict[str, np.ndarray]


@dataclass
class Checkpoint:
    """A training after some epoch.

    Attributes:
        words: Everything that JSON can hold: epoch, history, steps, stopping, configuration.
        arrays: Everything else, by name.
    """

    words: dict[str, Any]
    arrays: Arrays


def save_checkpoint(folder: Path, checkpoint: Checkpoint, own: Iterable[tuple[int, Arrays]] = ()) -> Path:
    """Writes the checkpoint aside and renames it over the last one.

    Args:
        own: Rank and what only that rank has; taken one after the other, so that never all of it is in memory.

    Returns:
        The file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = np.frombuffer(json.dumps(checkpoint.words).encode(), np.uint8)
    aside, file = folder / f".{FILE}.{os.getpid()}", folder / FILE
    with aside.open("wb") as stream:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            _write(archive, "", {WORDS: text} | checkpoint.arrays)
            for rank, arrays in own:
                _write(archive, f"{OF_RANK}{rank}.", arrays)
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
            arrays = {name: content[name] for name in content.files if not name.startswith(OF_RANK)}
        return Checkpoint(json.loads(arrays.pop(WORDS).tobytes()), arrays)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigurationError(
            f"this is no checkpoint: {error}", where=str(file), cure="remove it, or write another checkpoint.path"
        ) from error


def load_own(folder: Path, rank: int) -> Arrays:
    """What the checkpoint in `folder` holds of one rank alone."""
    prefix = f"{OF_RANK}{rank}."
    with np.load(folder / FILE, allow_pickle=False) as content:
        return {name.removeprefix(prefix): content[name] for name in content.files if name.startswith(prefix)}


def _write(archive: zipfile.ZipFile, prefix: str, arrays: Arrays) -> None:
    """Adds arrays as `numpy.savez` would."""
    for name, array in arrays.items():
        with archive.open(f"{prefix}{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
