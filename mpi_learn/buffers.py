"""Arrays on the wire: sums, broadcasts and messages in their own memory, without pickle and without spinning."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from mpi_learn.comm import Communicator, Pause

Request = MPI.Request


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
    status, pause = MPI.Status(), Pause()
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
    pause = Pause()
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


def maximum(comm: Communicator, value: int) -> int:
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
