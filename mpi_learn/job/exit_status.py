"""Exit statuses, how they pass through ``mpirun``, and how a process ends that must not wait for other ranks.

Python joins threads that are not daemons, and then runs the exit handlers of `atexit` in the reverse order of their
registration. A rank that must not call ``MPI_Finalize`` (`mpi_learn.mpi.process_end`) leaves after the last handler.
Therefore this module registers its own handler when `mpi_learn` is imported, before those of user code.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from mpi_learn.errors import without_passwords
from mpi_learn.job import started_by

FINISHED = 0
FAILED = 1
INVALID = 2
UNFINISHED = 75
"""Ended early, in a consistent state: a time limit, SIGTERM, SIGUSR1 or a lost node. The same command continues.

The value is ``EX_TEMPFAIL`` of ``sysexits.h``.
"""
INTERRUPTED = 130
"""Interrupted by the user. The same command continues."""

CONFIRMED = 100
"""The status of rank 0 instead of `FINISHED` under `LaunchMode.CONFIRMED`."""

LOST = 101
"""The status of rank 0 of a job with restarts after a temporary error: a restart may help."""

ELSEWHERE = {FAILED: 102, UNFINISHED: 103}
"""The statuses of rank 0 on another host than `launch`, which cannot read them from `STATUS_FILE`: ``mpirun`` returns
the plain numbers for the loss of a rank, too."""

VARIABLE = "MPI_LEARN_LAUNCH"
"""The environment variable that holds the `LaunchMode`."""
STATUS_FILE = "MPI_LEARN_STATUS_FILE"
"""The environment variable that holds the path of the file to which rank 0 writes its status."""


class LaunchMode(StrEnum):
    """How this process was started, which determines the meaning of its signals and its status.

    ``mpirun --with-ft ulfm`` returns 0 also if one of its daemons or all ranks were killed. Where `launch` starts it,
    rank 0 confirms with `CONFIRMED` that it has finished. Rank 0 also writes its status to `STATUS_FILE`, because
    ``mpirun`` may lose the status of a rank, or fail itself while the ranks end.
    """

    DIRECT = "direct"
    """By the user, a batch script or ``mpirun``."""
    SHIELDED = "shielded"
    """By `mpi_learn.job.launch.launch`, which forwards requests to end as SIGUSR1."""
    CONFIRMED = "confirmed"
    """As `SHIELDED`, and rank 0 confirms."""

    @classmethod
    def from_environment(cls) -> LaunchMode:
        """Reads and removes the environment variables that `launch` sets: child processes must not inherit them."""
        started_by.take_from_environment()
        return cls(os.environ.pop(VARIABLE, cls.DIRECT))

    def report(self, status: int, rank: int) -> int:
        """Reports the end of this process to `launch`: returns its exit status; rank 0 also writes `STATUS_FILE`."""
        if rank == 0 and self is not LaunchMode.DIRECT and STATUS_FILE in os.environ:
            # `launch` has created the file; if it does not exist, this is another host
            try:
                with Path(os.environ[STATUS_FILE]).open("r+", encoding="utf-8", errors="replace") as file:
                    file.write(f"{status} {_loss}".rstrip())
            except OSError:
                status = ELSEWHERE.get(status, status)
        return CONFIRMED if self is LaunchMode.CONFIRMED and rank == 0 and status == FINISHED else status


_loss = ""


def lost(error: Exception) -> int:
    """`LOST`, with the first line of the error, which `LaunchMode.report` passes on to `launch` as the reason."""
    global _loss
    _loss = without_passwords(str(error).partition("\n")[0])
    return LOST


GRACE_S = 30.0
"""Time for threads of user code to end after the program, and again for its exit handlers, in seconds."""

leave: Callable[[], object] | None = None
"""Ends this process without ``MPI_Finalize``, after all exit handlers. None: the process ends as Python does."""

_process = os.getpid()
_status: int | None = None
_has_begun, _runs_handlers = threading.Event(), threading.Event()


def limit_end(rank: int, status: int) -> None:
    """Limits the time that the end of this rank may take. To be called last in the main thread, before `sys.exit`.

    A second thread watches the end, because the main one may be blocked. It starts now, because Python starts no thread
    while it ends.

    Args:
        rank: For messages.
        status: The exit status of the process.
    """
    global _status
    is_watched, _status = _status is not None, status
    if is_watched:
        return
    threading.Thread(target=_watch_end, args=(rank,), name="end of the process", daemon=True).start()
    threading._register_atexit(_has_begun.set)  # type: ignore[attr-defined] # runs before Python joins threads
    atexit.register(_runs_handlers.set)  # runs before the other handlers


def kill_children() -> None:
    """Ends the processes that user code has started with `multiprocessing`, at once."""
    if "multiprocessing" in sys.modules:
        for child in sys.modules["multiprocessing"].active_children():
            with suppress(OSError):
                child.kill()


def _watch_end(rank: int) -> None:
    _has_begun.wait()
    if not _runs_handlers.wait(GRACE_S):
        names = [one.name for one in threading.enumerate() if not (one.daemon or one is threading.main_thread())]
        _say(rank, f"threads of user code still run {GRACE_S:g} s after the program has ended: {', '.join(names)}")
        # the main thread waits for these threads; this one runs the handlers, and a thread in C limits its time
        faulthandler.dump_traceback_later(GRACE_S, exit=True, file=sys.__stderr__ or sys.stderr)
        atexit._run_exitfuncs()
        _end()
    threading.Event().wait(GRACE_S)  # Python ends this thread if the handlers have run by then
    _say(rank, f"exit handlers or child processes of user code take longer than {GRACE_S:g} s")
    _end()


def _say(rank: int, text: str) -> None:
    with suppress(OSError, ValueError):  # the disk is full, or user code has closed standard error
        print(f"rank {rank} ends: {text}", file=sys.stderr, flush=True)


def _end() -> None:
    kill_children()
    if leave is not None:
        leave()
    elif "mpi4py.MPI" in sys.modules:
        mpi = sys.modules["mpi4py.MPI"]
        if mpi.Is_initialized() and not mpi.Is_finalized():
            mpi.Finalize()
    os._exit(_status or 0)


def _last() -> None:
    """The exit handler that runs after those of user code."""
    if leave is None or os.getpid() != _process:  # user code has forked this process
        return
    # modules that were imported before this one have registered their handlers earlier, and Python would run them later
    weakref.finalize._exitfunc()  # type: ignore[attr-defined] # removes temporary folders
    if "multiprocessing.util" in sys.modules:
        sys.modules["multiprocessing.util"]._exit_function()  # ends child processes
    if "logging" in sys.modules:
        sys.modules["logging"].shutdown()
    leave()


atexit.register(_last)
