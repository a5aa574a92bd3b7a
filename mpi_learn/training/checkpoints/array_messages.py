"""Messages with the arrays of checkpoints: a broadcast of all, and those of single ranks from and to rank 0."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mpi_learn.mpi.communicators import Communicator, broadcast_in_place, receive_into, send_from
from mpi_learn.training.checkpoints.checkpoint_file import NamedArrays, SavedTraining, load_rank_arrays

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
