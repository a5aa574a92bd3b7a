"""Arrays on the wire: sums, broadcasts and messages in their own memory, without pickle and without spinning."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from mpi_learn.mpi.communicators import Communicator, Pause, on_this_host
from mpi_learn.mpi.host_memory import memory_of_host
from mpi_learn.mpi.library import MPI

Request = MPI.Request
Number = TypeVar("Number", int, float)

YIELD_S = 1e-3
"""For so long whoever waits for a message only gives way to others, without sleeping: a sleep takes 60 µs at least, a
swap with a master on the same host less. `experiments/training_speed/master.py` measures what it brings."""
ROW_BYTES = 4096
"""Rows of memory that ranks share begin at a multiple of this, so that no two of them lie on one page."""


def sum_in_place(comm: Communicator, vector: np.ndarray) -> None:
    """Replaces `vector` by its sum over all ranks, in its own memory. Collective over `comm`."""
    if comm.size > 1:
        comm.Allreduce(MPI.IN_PLACE, vector)


def sum_later(comm: Communicator, vector: np.ndarray) -> Request:
    """Begins to replace `vector` by its sum over all ranks; it must stay untouched until that is done. Collective."""
    return comm.Iallreduce(MPI.IN_PLACE, vector)


def is_done(request: Request) -> bool:
    """Whether a request is done; to ask helps it on. Never waits."""
    return request.Test()


def wait_for_all(requests: list[Request]) -> None:
    """Waits for several requests at once, as in a blocking collective."""
    MPI.Request.Waitall(requests)


def broadcast_in_place(comm: Communicator, vector: np.ndarray, root: int = 0) -> None:
    """Replaces `vector` by that of the rank `root`. Collective over `comm`."""
    if comm.size > 1:
        comm.Bcast(vector, root=root)


def receive_into(comm: Communicator, buffer: np.ndarray, source: int = MPI.ANY_SOURCE) -> tuple[int, int]:
    """Waits, without spinning, for a message and writes it over the first elements of `buffer`.

    Returns:
        The rank that sent it, and its tag.
    """
    status, pause = MPI.Status(), Pause(yield_s=YIELD_S)
    while (message := comm.Improbe(source=source, tag=MPI.ANY_TAG, status=status)) is None:
        pause()
    n = status.Get_count(MPI.BYTE) // buffer.itemsize
    message.Recv(buffer[:n])
    return status.Get_source(), status.Get_tag()


def send_from(comm: Communicator, buffer: np.ndarray, to: int, tag: int) -> None:
    """Sends `buffer`; waits without spinning until it may be changed again."""
    wait(comm.Isend(buffer, dest=to, tag=tag))


def wait(request: MPI.Request) -> None:
    """Waits for `request` without spinning."""
    pause = Pause(yield_s=YIELD_S)
    while not request.Test():
        pause()


def part_of(comm: Communicator, color: int | None) -> Communicator | None:
    """The communicator of the ranks with the same `color`; None for those without one. Collective over `comm`."""
    part = comm.Split(MPI.UNDEFINED if color is None else color, comm.rank)
    if color is None:
        return None
    part.Set_errhandler(MPI.ERRORS_RETURN)
    return part


def send_later(comm: Communicator, buffer: np.ndarray, to: int, tag: int) -> Request:
    """Begins to send `buffer`, which must stay as it is until the request is done."""
    return comm.Isend(buffer, dest=to, tag=tag)


def receive_later(comm: Communicator, buffer: np.ndarray, source: int, tag: int) -> Request:
    """Begins to receive into `buffer`."""
    return comm.Irecv(buffer, source=source, tag=tag)


def is_message_waiting(comm: Communicator, tag: int) -> bool:
    """Whether somebody's message with this tag has arrived. Never waits."""
    return comm.Iprobe(source=MPI.ANY_SOURCE, tag=tag)


def maximum(comm: Communicator, value: Number) -> Number:
    """The largest `value` of all ranks. Collective over `comm`."""
    return comm.allreduce(value, op=MPI.MAX)


def gathered(comm: Communicator, vector: np.ndarray) -> np.ndarray:
    """Every rank's `vector`, shape (ranks, n). Collective over `comm`."""
    found = np.empty((comm.size, vector.size), vector.dtype)
    comm.Allgather(np.ascontiguousarray(vector), found)
    return found


def scattered(comm: Communicator, vector: np.ndarray) -> np.ndarray:
    """From every rank that part of its `vector` that is this rank's, one behind the other. Collective over `comm`.

    Args:
        vector: Of a length that the number of ranks divides.
    """
    found = np.empty_like(vector)
    comm.Alltoall(vector, found)
    return found


def rows_of_host(comm: Communicator, n: int) -> dict[int, np.ndarray]:
    """A row of `n` float32 for every rank of this host, in memory that they hold together. Collective over `comm`.

    Rows that nobody touches take no memory.

    Returns:
        Rank in `comm` -> its row, uninitialised; empty where the host has no such memory, on all its ranks alike.
    """
    host = on_this_host(comm)
    ranks = host.allgather(comm.rank)
    n_bytes = 4 * n
    stride = -(-n_bytes // ROW_BYTES) * ROW_BYTES
    memory = memory_of_host(host, stride * len(ranks))
    host.Free()
    if memory is None:
        return {}
    whole = np.frombuffer(memory, np.uint8)
    return {rank: whole[place * stride : place * stride + n_bytes].view(np.float32) for place, rank in enumerate(ranks)}
