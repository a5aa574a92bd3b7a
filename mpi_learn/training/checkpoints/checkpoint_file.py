"""Checkpoint files: one npz file with arrays and a JSON text, without pickle, replaced as a whole."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpi_learn.errors import ConfigurationError, SavingError, reading_error
from mpi_learn.settings.paths import remove_abandoned, replacing
from mpi_learn.training.sections import Checkpoint

FILE = "checkpoint.npz"
METADATA = "metadata"
OF_RANK = "rank."
"""Prefix of the arrays that one rank alone holds: ``rank.3.energy``."""

NamedArrays = dict[str, np.ndarray]


class UnusableCheckpoint(ConfigurationError):
    """A checkpoint belongs to another training or model, or to another version."""


class DamagedCheckpoint(UnusableCheckpoint):
    """A checkpoint cannot be read, or does not exist where one is expected."""


@dataclass
class SavedTraining:
    """A training after some epoch.

    Attributes:
        metadata: The values that are stored as JSON: epoch, history, early stopping, configuration.
        arrays: Name -> array.
    """

    metadata: dict[str, Any]
    arrays: NamedArrays


def save_checkpoint(folder: Path, checkpoint: SavedTraining, rank_arrays: Iterable[tuple[int, NamedArrays]]) -> Path:
    """Writes a checkpoint, which replaces the last one when it is complete.

    Args:
        folder: Created if missing.
        checkpoint: The values that all ranks share.
        rank_arrays: Each rank with its own arrays, requested one at a time, so that only one pair is in memory.

    Returns:
        The file.

    Raises:
        SavingError: The file cannot be written, for example because the disk is full.
    """
    text = np.frombuffer(json.dumps(checkpoint.metadata).encode(), np.uint8)
    file = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_abandoned(file)  # each is as large as a checkpoint
        with replacing(file) as temporary, temporary.open("wb") as stream:
            with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
                _write(archive, "", {METADATA: text} | checkpoint.arrays)
                for rank, arrays in rank_arrays:
                    _write(archive, f"{OF_RANK}{rank}.", arrays)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        kept = "\nthe same command continues from the last checkpoint" if file.exists() else ""
        raise SavingError(f"{file}: the checkpoint cannot be written: {error.strerror or error}{kept}") from error
    return file


def load_checkpoint(folder: Path) -> SavedTraining | None:
    """The checkpoint in `folder`; None if there is none.

    Raises:
        DamagedCheckpoint: The file is not a checkpoint.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    with _errors_of(file), np.load(file, allow_pickle=False) as content:
        arrays = {name: np.asarray(content[name], order="C") for name in content.files if not name.startswith(OF_RANK)}
        return SavedTraining(json.loads(arrays.pop(METADATA).tobytes()), arrays)


def load_metadata(folder: Path) -> dict[str, Any] | None:
    """The values of `SavedTraining.metadata`, without reading the arrays; None if there is no checkpoint.

    Raises:
        DamagedCheckpoint: The file is not a checkpoint.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    with _errors_of(file), np.load(file, allow_pickle=False) as content:
        found: dict[str, Any] = json.loads(content[METADATA].tobytes())
        return found


def saved_layers_of_stages(section: Checkpoint | None) -> Sequence[int]:
    """`Model.layers_of_stages` of the checkpoint from which a training begins; empty without one, or if it is damaged.

    Reads the metadata alone: the model is not built yet.
    """
    folders = () if section is None else (section.path if section.resume else None, section.start_from)
    for folder in folders:
        with suppress(DamagedCheckpoint):
            if folder is not None and (found := load_metadata(folder)) is not None:
                return tuple(found.get("layers_of_stages", ()))
    return ()


def load_rank_arrays(folder: Path, rank: int) -> NamedArrays:
    """The arrays of one rank in the checkpoint in `folder`.

    Raises:
        DamagedCheckpoint: The file is damaged.
    """
    file, prefix = folder / FILE, f"{OF_RANK}{rank}."
    with _errors_of(file), np.load(file, allow_pickle=False) as content:
        return {name.removeprefix(prefix): content[name] for name in content.files if name.startswith(prefix)}


@contextmanager
def _errors_of(file: Path) -> Iterator[None]:
    """Converts the exceptions of reading a file that is no checkpoint, or a damaged one."""
    try:
        yield
    except (OSError, EOFError, ValueError, TypeError, KeyError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise DamagedCheckpoint(
            f"this is not a checkpoint, or it is damaged: {reading_error(error)}",
            where=str(file),
            cure="remove it, or write another checkpoint.path",
        ) from error


def _write(archive: zipfile.ZipFile, prefix: str, arrays: NamedArrays) -> None:
    """Adds arrays in the format of `numpy.savez`."""
    for name, array in arrays.items():
        with archive.open(f"{prefix}{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
