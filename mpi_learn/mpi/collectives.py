"""Sums, broadcasts and messages of arrays in place, without pickle and without busy waiting."""

from __future__ import annotations

import numpy as np

from mpi_learn.mpi.communicators import Communicator
from mpi_learn.mpi.library import MPI
from mpi_learn.mpi.messaging import Pause

Request = MPI.Request

LONGEST_IN_STEP_S = 1e-3
"""The longest sleep of a rank that waits for a message of the same step."""

YIELD_S = 1e-3
"""A rank that waits for a message yields the processor for this time before it sleeps. A sleep takes at least 60 µs, an
exchange with a parameter server on the same host takes less. `experiments/training_speed/master.py` measures it."""


def sum_in_place(comm: Communicator, vector: np.ndarray) -> None:
    """Replaces `vector` by its sum over all ranks, in place. Collective over `comm`."""
    if comm.size > 1:
        comm.Allreduce(MPI.IN_PLACE, vector)


def broadcast_in_place(comm: Communicator, vector: np.ndarray, root: int = 0) -> None:
    """Replaces `vector` by the vector of the rank `root`. Collective over `comm`."""
    if comm.size > 1:
        comm.Bcast(vector, root=root)


def receive_into(comm: Communicator, buffer: np.ndarray, source: int = MPI.ANY_SOURCE) -> tuple[int, int]:
    """Waits for a message without busy waiting and writes it over the first elements of `buffer`.

    Returns:
        The rank that sent it, and its tag.
    """
    status, pause = MPI.Status(), Pause(yield_s=YIELD_S)
    while (message := comm.Improbe(source=source, tag=MPI.ANY_TAG, status=status)) is None:
        pause()
    message.Recv(buffer[: n_bytes(status) // buffer.itemsize])
    return status.Get_source(), status.Get_tag()


def n_bytes(status: MPI.Status) -> int:
    """The length of a message in bytes. `MPI.Status.Get_count` of Open MPI 5 is wrong from 2 GiB on."""
    return status.Get_elements(MPI.BYTE)


def send_from(comm: Communicator, buffer: np.ndarray, to: int, tag: int) -> None:
    """Sends `buffer`, and waits without busy waiting until it may be modified."""
    wait(comm.Isend(buffer, dest=to, tag=tag))


def wait(request: MPI.Request) -> None:
    """Waits for `request` without busy waiting."""
    pause = Pause(yield_s=YIELD_S)
    while not request.Test():
        pause()


def tag_of(request: MPI.Request) -> int:
    """Waits for the message of a receive without busy waiting; returns its tag."""
    status, pause = MPI.Status(), _pause_in_step()
    while not request.Test(status):
        pause()
    return status.Get_tag()


def patient_sum_in_place(comm: Communicator, vector: np.ndarray) -> None:
    """As `sum_in_place`, without busy waiting for ranks that arrive late. Collective over `comm`."""
    request, pause = comm.Iallreduce(MPI.IN_PLACE, vector), _pause_in_step()
    while not request.Test():
        pause()


def _pause_in_step() -> Pause:
    """For messages on which the time of a step depends: those between stages wait for one another many times."""
    return Pause(LONGEST_IN_STEP_S, yield_s=YIELD_S)


def gathered(comm: Communicator, vector: np.ndarray) -> np.ndarray:
    """Every rank's `vector`, shape (ranks, n). Collective over `comm`."""
    found = np.empty((comm.size, vector.size), vector.dtype)
    comm.Allgather(np.ascontiguousarray(vector), found)
    return found


def all_to_all(comm: Communicator, vector: np.ndarray) -> np.ndarray:
    """This rank's part of every rank's `vector`, concatenated in the order of ranks. Collective over `comm`.

    Args:
        vector: Its length is a multiple of the number of ranks.
    """
    found = np.empty_like(vector)
    comm.Alltoall(vector, found)
    return found
