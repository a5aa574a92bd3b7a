"""The end of a rank: user code's threads, exit handlers and child processes end first, in a limited time.

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
