"""The only import of mpi4py of this package: communicators, waiting without spinning, errors that all ranks agree on.

A rank that waits in ``recv`` or ``wait`` burns a whole core. Wherever ranks may wait long for one another they wait with
`receive`, which probes and sleeps, ever longer. Inside a training step a blocking collective is right: all arrive
together.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI

from mpi_learn.errors import TrainingError, UserError

Communicator = MPI.Comm

FIRST_PAUSE_S = 10e-6
LONGEST_PAUSE_S = 0.05
YIELD_S = 50e-6
"""For so long a waiting rank only gives way to others: most answers that come at once come within it."""

PATIENCE = 0.05
"""A waiting rank sleeps this fraction of the time that it has waited so far: so it answers late by 5 % at the most."""


class Pause:
    """Sleeps between two looks, ever longer: a fixed fraction of the time waited, between 10 µs and `longest_s`.

    Args:
        longest_s: The longest single sleep, in seconds: what an answer may come late by.
    """

    def __init__(self, longest_s: float = LONGEST_PAUSE_S) -> None:
        self.longest_s = longest_s
        self.reset()

    def reset(self) -> None:
        """Something happened: look often again."""
        self._since = time.monotonic()

    @property
    def waited_s(self) -> float:
        """Seconds since something last happened."""
        return time.monotonic() - self._since

    def __call__(self) -> None:
        """Sleeps once."""
        if self.waited_s < YIELD_S:
            os.sched_yield()
            return
        time.sleep(min(max(FIRST_PAUSE_S, PATIENCE * self.waited_s), self.longest_s))


def receive(
    comm: Communicator,
    source: int = MPI.ANY_SOURCE,
    tag: int = MPI.ANY_TAG,
    *,
    longest_s: float = LONGEST_PAUSE_S,
    meanwhile: Callable[[], None] | None = None,
) -> tuple[Any, int, int]:
    """Waits for a message without spinning.

    Args:
        meanwhile: Called between two looks, for whoever has something else to watch; it may raise.

    Returns:
        The object, the rank that sent it, its tag.
    """
    pause = Pause(longest_s)
    while (found := poll(comm, source, tag)) is None:
        if meanwhile is not None:
            meanwhile()
        pause()
    return found


def poll(comm: Communicator, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG) -> tuple[Any, int, int] | None:
    """A message that has arrived, as (object, source, tag); None if there is none. Never waits."""
    status = MPI.Status()
    message = comm.improbe(source=source, tag=tag, status=status)
    if message is None:
        return None
    return message.recv(), status.Get_source(), status.Get_tag()


def split(comm: Communicator, color: int, key: int = 0) -> Communicator:
    """The communicator of all ranks with the same `color`. Collective over `comm`."""
    part = comm.Split(color, key)
    part.Set_errhandler(MPI.ERRORS_RETURN)
    return part


def duplicate(comm: Communicator) -> Communicator:
    """The same ranks with messages of their own, which no user code can take away. Collective over `comm`."""
    twin = comm.Dup()
    twin.Set_errhandler(MPI.ERRORS_RETURN)
    return twin


def host_name() -> str:
    """This machine's name."""
    return socket.gethostname()


@contextmanager
def agreed_errors(comm: Communicator) -> Iterator[None]:
    """What is raised inside on one rank is raised after it on all. Collective over `comm` at the end of the block.

    Nothing inside may communicate over `comm` in a way that needs a rank which may already have raised. A `UserError`
    stays what it is; anything else becomes a `TrainingError` with the rank's traceback. The lowest rank's error wins.
    """
    mine: Exception | None = None
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks must learn of it
        mine = error if isinstance(error, UserError | TrainingError) else described(error, comm.rank)
    first = comm.allreduce(comm.rank if mine is not None else comm.size, op=MPI.MIN)
    if first < comm.size:
        raise comm.bcast(mine, root=first)


def described(error: BaseException, rank: int) -> TrainingError:
    """`error` as a value that travels: with this rank, host and the traceback as text."""
    text = "".join(traceback.format_exception(error))
    return TrainingError(f"{type(error).__name__}: {error}", rank=rank, host=host_name(), traceback=text)


def is_protected() -> bool:
    """Whether this world survives lost ranks: Open MPI 5 started with ``--with-ft ulfm``."""
    return os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"


def is_communication_error(error: BaseException) -> bool:
    """Whether `error` is MPI's own word that a communicator no longer works."""
    return isinstance(error, MPI.Exception)


def release(comm: Communicator) -> None:
    """Frees ranks that wait in `comm` for this one, which will not come: their calls end with an error.

    Without protection (`is_protected`) nothing can be done for them.
    """
    if comm.size > 1 and is_protected():
        comm.Revoke()


def shared_array(comm: Communicator, shape: tuple[int, ...], dtype: np.dtype | str) -> tuple[np.ndarray, bool]:
    """An array that the ranks of one host hold together, once. Collective over `comm`.

    The memory is an anonymous file that goes away with the last rank that uses it, however that one dies. MPI's own
    shared windows are not made for lost ranks. Where the system has no such files each rank gets memory of its own.

    Returns:
        The array (uninitialised), and whether this rank is to fill it; a barrier must follow.
    """
    dtype = np.dtype(dtype)
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    host = comm.Split_type(MPI.COMM_TYPE_SHARED) if comm.size > 1 else None
    memory = None if host is None else _host_memory(host, n_bytes)
    fills = memory is None or host.rank == 0
    if host is not None:
        host.Free()
    if memory is None:
        return np.empty(shape, dtype), True
    return np.frombuffer(memory, np.uint8, n_bytes).view(dtype).reshape(shape), fills


def _host_memory(host: Communicator, n_bytes: int) -> mmap.mmap | None:
    """The same `n_bytes` in every rank of `host`; None if one of them cannot have it. Collective over `host`."""
    if host.size == 1:
        return None
    file = _anonymous_file(n_bytes) if host.rank == 0 else -1
    place = host.bcast(f"/proc/{os.getpid()}/fd/{file}" if file >= 0 else "", root=0)
    memory = None
    try:
        with open(place, "r+b") as opened:  # noqa: PTH123 - no path to do anything else with
            memory = mmap.mmap(opened.fileno(), max(n_bytes, 1))
    except OSError:
        pass
    everyone_has_it = host.allreduce(memory is not None, op=MPI.LAND)
    if file >= 0:
        os.close(file)
    return memory if everyone_has_it else None


def _anonymous_file(n_bytes: int) -> int:
    """The descriptor of a file of `n_bytes` that lives in memory alone; -1 where the system has none."""
    if not hasattr(os, "memfd_create"):
        return -1
    file = os.memfd_create("mpi_learn")
    os.ftruncate(file, max(n_bytes, 1))
    return file


def sum_in_place(comm: Communicator, vector: np.ndarray) -> None:
    """Replaces `vector` by its sum over all ranks, in its own memory. Collective over `comm`."""
    if comm.size > 1:
        comm.Allreduce(MPI.IN_PLACE, vector)


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
