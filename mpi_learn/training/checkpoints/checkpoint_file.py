"""Checkpoint files: one npz file without pickle, whether it belongs to a training, and arrays gathered from ranks."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpi_learn.errors import ConfigurationError, SavingError, reading_error
from mpi_learn.mpi.communicators import Communicator, broadcast_in_place, receive_into, send_from
from mpi_learn.settings.paths import remove_abandoned, replacing
from mpi_learn.training.configuration import TrainingConfiguration
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


MAY_DIFFER = (
    *("epochs", "checkpoint", "early_stopping", "target", "validation", "trace", "monitor", "xla", "callbacks"),
    *("framework", "gradient_checkpointing", "device"),
)
"""Keys of the configuration that may change between an interruption and its continuation."""
NEEDED_ARRAYS = {"weights", "batch_statistics", "counters"}
NEEDED_METADATA = {"epoch", "history", "shapes", "stopping", "training"}
"""The parts that every checkpoint has."""


def check_format(checkpoint: SavedTraining, where: str) -> None:
    """Raises ConfigurationError if a checkpoint lacks what every checkpoint of this version has."""
    if not (checkpoint.arrays.keys() >= NEEDED_ARRAYS and checkpoint.metadata.keys() >= NEEDED_METADATA):
        raise ConfigurationError(
            "another version of MPI Learn has written this checkpoint",
            where=where,
            cure="give the path of an empty folder",
        )


def check_stages(checkpoint: SavedTraining, n_stages: int, where: str) -> None:
    """Raises ConfigurationError if the model of a checkpoint was in another number of stages."""
    if (n := checkpoint.metadata.get("n_stages", 1)) != n_stages:
        raise ConfigurationError(
            f"it belongs to a model in {n} stages, now there are {n_stages}",
            where=where,
            cure="write the same pipeline.stages, with a multiple of as many ranks, or the path of an empty folder",
        )


def check_complete(needed: NamedArrays, saved: NamedArrays, where: str) -> None:
    """Raises ConfigurationError if a checkpoint of the same training lacks an array of its algorithm.

    Args:
        needed: Arrays with the names, shapes and dtypes of those that the checkpoint must have.
    """
    for name, array in needed.items():
        found = saved.get(name)
        if found is None or (found.shape, found.dtype) != (array.shape, array.dtype):
            raise ConfigurationError(
                f"another version of MPI Learn has written it: it has no {name}"
                + ("" if found is None else f" of shape {array.shape} and dtype {array.dtype}"),
                where=where,
                cure="write another checkpoint.path, and this one as checkpoint.start_from: the weights continue, and "
                "the optimizer starts without the missing state",
            )


def check_same(then: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Raises ConfigurationError if two configurations differ in a key that must not change."""
    with suppress(ValueError):  # options that are new since then have their default values
        then = TrainingConfiguration.model_validate(then).model_dump(mode="json")
    for key in now:
        if key not in MAY_DIFFER and then.get(key) != now[key]:
            name, before, after = first_difference(key, then.get(key), now[key])
            raise ConfigurationError(
                f"it belongs to a training with another {name}: {before!r}, now {after!r}",
                where=where,
                cure="give another checkpoint.path, and this one as checkpoint.start_from to begin with its weights, "
                "or write `resume: false` to start again",
            )


def first_difference(name: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    """The first part in which two different values of a key differ: its name, such as ``data.train[0]``, and both."""
    parts: Iterable[tuple[str, Any, Any]] = ()
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(other | one, key=lambda key: key != "name")  # a section with another name has other keys
        parts = ((f"{name}.{key}", one.get(key), other.get(key)) for key in keys)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        parts = ((f"{name}[{index}]", *pair) for index, pair in enumerate(zip(one, other, strict=True)))
    different = next((part for part in parts if part[1] != part[2]), None)
    return (name, one, other) if different is None else first_difference(*different)


RANK_ARRAYS = 21
"""Tag of the messages with the arrays of one rank."""
Kinds = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Name of an array -> its shape and dtype."""


def broadcast_checkpoint(comm: Communicator, checkpoint: SavedTraining | None, root: int = 0) -> SavedTraining | None:
    """The `checkpoint` of the rank `root`, on every rank. Collective over `comm`.

    The arrays are separate messages, because MPI does not send a Python object of 2 GiB or more.
    """
    outline = None if checkpoint is None else (checkpoint.metadata, _kinds(checkpoint.arrays))
    outline = comm.bcast(outline, root=root)
    if outline is None:
        return None
    metadata, kinds = outline
    if checkpoint is None:
        checkpoint = SavedTraining(metadata, _uninitialised(kinds))
    for array in checkpoint.arrays.values():
        broadcast_in_place(comm, array, root)
    return checkpoint


def send_arrays(comm: Communicator, arrays: NamedArrays, to: int) -> None:
    """Sends the arrays of one rank, each as a message, unless `to` answers that it cannot take them.

    See `broadcast_checkpoint`.
    """
    comm.send(_kinds(arrays), to, RANK_ARRAYS)
    if comm.recv(source=to, tag=RANK_ARRAYS):
        for array in arrays.values():
            send_from(comm, np.ascontiguousarray(array).reshape(-1), to, RANK_ARRAYS)


def receive_arrays(comm: Communicator, source: int) -> NamedArrays:
    """Receives what `source` sends with `send_arrays`."""
    kinds, arrays = comm.recv(source=source, tag=RANK_ARRAYS), None
    try:
        arrays = _uninitialised(kinds)
    finally:  # there may be too little memory
        comm.send(arrays is not None, source, RANK_ARRAYS)
    for array in arrays.values():
        receive_into(comm, array.reshape(-1), source)
    return arrays


def _kinds(arrays: NamedArrays) -> Kinds:
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def _uninitialised(kinds: Kinds) -> NamedArrays:
    return {name: np.empty(shape, dtype) for name, (shape, dtype) in kinds.items()}


@contextmanager
def gather_arrays(comm: Communicator, own: NamedArrays) -> Iterator[Iterator[tuple[int, NamedArrays]]]:
    """An iterator over (rank, arrays `own` of that rank) on rank 0; an empty iterator on the other ranks.

    Collective over `comm`.

    At the end rank 0 declines the arrays that it has not received, so that no rank waits for it.
    """
    if comm.rank != 0:
        send_arrays(comm, own, 0)
        yield iter(())
        return
    waiting = deque(range(1, comm.size))

    def parts() -> Iterator[tuple[int, NamedArrays]]:
        yield 0, own
        while waiting:
            rank = waiting.popleft()
            yield rank, receive_arrays(comm, rank)

    try:
        yield parts()
    finally:
        for rank in waiting:
            comm.recv(source=rank, tag=RANK_ARRAYS)
            comm.send(False, rank, RANK_ARRAYS)


def scatter_arrays(comm: Communicator, folder: Path, wanted: Container[int]) -> NamedArrays:
    """This rank's own arrays in the checkpoint in `folder`; empty for a rank that is not `wanted`.

    Collective over `comm`.
    """
    if comm.rank != 0:
        return receive_arrays(comm, 0)
    waiting = deque(range(1, comm.size))
    try:
        mine = load_rank_arrays(folder, 0) if 0 in wanted else {}
        while waiting:
            theirs = load_rank_arrays(folder, waiting[0]) if waiting[0] in wanted else {}
            send_arrays(comm, theirs, waiting.popleft())
    finally:
        for rank in waiting:
            send_arrays(comm, {}, rank)
    return mine


class KeptEpoch:
    """The last finished epoch of a training. Each rank of the training has one, and changes it after each epoch.

    If a rank dies, the others keep theirs, and a training on another communicator that receives them continues from the
    newest. Only what a total batch determines is kept: what is the same on all ranks.

    Attributes:
        saved: The training after that epoch; None before the end of the first one.
        is_left: Whether the training ends after the present epoch, to continue on another communicator. `on_epoch` of
            `train` sets it, the same on all ranks.
        is_bound: Whether the training must not get more ranks, because its result depends on them; on rank 0.
    """

    def __init__(self) -> None:
        self.saved: SavedTraining | None = None
        self.is_left = self.is_bound = False

    @property
    def n_epochs(self) -> int:
        """Number of finished epochs."""
        return 0 if self.saved is None else int(self.saved.metadata["epoch"])

    @property
    def began(self) -> int:
        """Number of those epochs that are of another training, with whose checkpoint this one began."""
        return 0 if self.saved is None else int(self.saved.metadata["began"])

    @property
    def history(self) -> dict[str, list[float]]:
        """Metric name -> one value for each of these epochs; NaN for epochs without it."""
        return {} if self.saved is None else self.saved.metadata["history"]

    def keep(self, training: SavedTraining) -> None:
        """Replaces the epoch by a copy of `training`, whose arrays change in the next step."""
        self.saved = deepcopy(training)
