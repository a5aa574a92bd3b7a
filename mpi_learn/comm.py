"""The only import of mpi4py of this package: communicators, waiting without spinning, errors that all ranks agree on.

A rank that waits in ``recv`` or ``wait`` burns a whole core. Wherever ranks may wait long for one another they wait with
`receive`, which probes and sleeps, ever longer. Inside a training step a blocking collective is right: all arrive
together.
"""

from __future__ import annotations

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

    def __call__(self) -> None:
        """Sleeps once."""
        waited = time.monotonic() - self._since
        time.sleep(min(max(FIRST_PAUSE_S, PATIENCE * waited), self.longest_s))


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


def shared_array(comm: Communicator, shape: tuple[int, ...], dtype: np.dtype | str) -> tuple[np.ndarray, bool]:
    """An array that the ranks of one host hold together, once. Collective over `comm`.

    Returns:
        The array (uninitialised), and whether this rank is the one of its host that fills it; a barrier must follow.
    """
    dtype = np.dtype(dtype)
    if comm.size == 1:
        return np.empty(shape, dtype), True
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    window = MPI.Win.Allocate_shared(n_bytes if host.rank == 0 else 0, dtype.itemsize, comm=host)
    buffer, _ = window.Shared_query(0)
    array = np.frombuffer(buffer, dtype=np.uint8, count=n_bytes).view(dtype).reshape(shape)
    return array, host.rank == 0
