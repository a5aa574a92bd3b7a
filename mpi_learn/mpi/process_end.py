"""Ends a process without ``MPI_Finalize``, which would wait forever for lost or blocked ranks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from mpi_learn.job import exit_status as job_status
from mpi_learn.mpi.library import MPI
from mpi_learn.mpi.messaging import is_protected, receive

AT_END = 32_101
"""The tag of a rank's exit status: large, because the messages of user code have small tags."""

skips_finalize = False
"""Whether a rank of this job is lost or blocked, so that no call may require all ranks."""

exit_status: int | None = None
"""The exit status of a process that skips ``MPI_Finalize``. None: 1 after an uncaught exception, otherwise 0. A program
that calls ``sys.exit`` must set it, because that status cannot be read here."""


def skip_finalize(world: MPI.Comm, reachable: Sequence[int] = ()) -> None:
    """Makes this process end without ``MPI_Finalize``, which would wait forever for lost or blocked ranks.

    Without protection (`is_protected`), ``mpirun`` counts such a process as failed. Rank 0 therefore waits until the
    other ranks have reached their end, and ends the job with ``MPI_Abort``, which returns its status.

    Exit handlers and child processes of user code end first (`mpi_learn.job.exit_status`).

    Args:
        reachable: On rank 0: the ranks that call this function as well.
    """
    global skips_finalize
    skips_finalize = True
    job_status.leave = partial(_leave, world, reachable)


def _leave(world: MPI.Comm, reachable: Sequence[int]) -> None:
    flush()
    status = exit_status if exit_status is not None else int(hasattr(sys, "last_type"))
    if is_protected() or world.size == 1:
        os._exit(status)
    if world.rank > 0:
        world.send(status, dest=0, tag=AT_END)
        while True:  # until rank 0 ends the job
            time.sleep(1.0)
    for rank in reachable:
        status = max(status, receive(world, source=rank, tag=AT_END)[0])
    print("some ranks are busy or wait for one that has failed: MPI_Abort ends them", file=sys.stderr, flush=True)
    world.Abort(status)


def flush() -> None:
    """Flushes standard output and error. Errors are ignored: user code may have closed the streams."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
