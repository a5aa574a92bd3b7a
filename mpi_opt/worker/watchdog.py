"""What keeps a rank within reach while user code runs on it.

A thread beside the one that runs user code listens to the coordinator and measures how long a trial takes. It ends a
trial that hangs in three steps, each for what the step before cannot reach: an exception in user code, which ends
Python code and sleeping; giving up the trial's communicator, which ends waiting for other ranks; the end of the
process, which the other ranks notice as a lost rank. The last step needs no Python at all: `faulthandler` writes where
the process hangs and ends it.

Some steps are not always possible:

- Without protection against lost ranks, and where the process is the user's own (a notebook, a thread of a program),
  the process is not ended. The coordinator gives the block up instead.
- In a thread other than the main one no signal can interrupt user code. The exception is raised at its next Python
  instruction; a call of C code, or a sleep, is not interrupted.
- Where MPI does not allow calls from several threads (`MPI_THREAD_MULTIPLE`), the coordinator is heard only while the
  rank waits, and the communicator is given up only after the exception.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

from mpi_learn.cli.exit_status import UNFINISHED
from mpi_learn.mpi import communicators as communication
from mpi_learn.mpi.communicators import Communicator, RankLost
from mpi_opt.messages.link import WorkerLink
from mpi_opt.messages.messages import TO_WATCHDOG, Disband, End

LISTEN_S = 0.5
"""How often the thread looks for a message or an overdue trial, in seconds; the cost is negligible."""

STOPPING_S = 3.0
"""How long running trials have to end when the search is to end, in seconds."""

GRACE_S = 5.0
"""How long after its time a trial has to end by an exception before its process is ended, in seconds."""

NEVER = float("inf")

WAKE = getattr(signal, "SIGUSR2", None)


class TrialTimeout(Exception):
    """The trial took longer than ``trial.timeout``."""


class TrialGivenUp(Exception):
    """A rank of the trial was lost, or the search ends; it will be run again."""


class Watchdog:
    """Watches over the user code of one rank.

    Args:
        link: The way to the coordinator.
        may_end_process: Whether the process is ended where a trial takes too long and cannot be interrupted.

    Attributes:
        disbanded: The latest block of this rank that has been disbanded.
    """

    def __init__(self, link: WorkerLink, *, may_end_process: bool) -> None:
        self.link, self.may_end_process = link, may_end_process
        self.disbanded = -1
        self._comm: Communicator | None = None
        self._deadline = NEVER
        self._timeout_s: float | None = None
        self._why: tuple[type[Exception], str] | None = None
        self._is_alarmed = False
        self._lock = threading.Lock()
        self._listener: threading.Thread | None = None
        self._closed = threading.Event()
        self._watched = 0
        self._uses_signal = False
        self._previous_handler: Any = None

    def open(self) -> None:
        """Starts to watch over the calling thread, which is the one that will run user code."""
        self._watched = threading.get_ident()
        self._uses_signal = WAKE is not None and is_main_thread()
        if self._uses_signal:
            self._previous_handler = signal.signal(WAKE, self._raise_why)
        self._listener = threading.Thread(target=self._listen, name="watchdog", daemon=True)
        self._listener.start()

    def close(self) -> None:
        """Stops, before MPI ends; the signal's handler is again the one before `open`."""
        self._closed.set()
        if self._listener is not None:
            self._listener.join()
        if self._uses_signal:
            signal.signal(WAKE, signal.SIG_DFL if self._previous_handler is None else self._previous_handler)

    def has_to_leave(self, block: int) -> bool:
        """Whether this rank has to leave a block."""
        if not self.link.has_thread:
            self._hear()
        return self.disbanded >= block

    def guard(self, comm: Communicator, timeout_s: float | None) -> None:
        """Watches over user code from now on until `rest`.

        The watched thread may get one exception meanwhile, anywhere, also in the `rest` of a ``finally``. After it,
        `rest` must be called again.

        Args:
            comm: The communicator to give up, so that ranks that wait in it are freed.
            timeout_s: How long the code may take, in seconds; None: no limit.

        Raises:
            TrialTimeout: Later: it took longer, and could be interrupted.
            TrialGivenUp: Later: the rank has to leave its block.
        """
        with self._lock:
            self._comm, self._timeout_s, self._why = comm, timeout_s, None
            self._deadline = NEVER if timeout_s is None else time.monotonic() + timeout_s
        if timeout_s is not None:
            self._arm(timeout_s + 2 * GRACE_S)

    def rest(self) -> None:
        """The user code has ended; may be called more than once."""
        self._comm = None  # first of all: from now on no exception is raised
        with self._lock:
            self._deadline = NEVER
        if not self._uses_signal and self._why is not None:
            _raise_in(self._watched, None)
        faulthandler.cancel_dump_traceback_later()
        if self._is_alarmed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._is_alarmed = False

    def _arm(self, limit_s: float) -> None:
        """The last step: writes where the process hangs and ends it, even if the interpreter is blocked.

        Other ranks notice the death by an alarm, not an exit with a status. The alarm is left to user code that uses
        it.
        """
        has_others = self.link.rank > 0
        is_free = signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        self._is_alarmed = self.may_end_process and has_others and is_free
        if sys.__stderr__ is not None:
            is_exit = self.may_end_process and not self._is_alarmed
            faulthandler.dump_traceback_later(limit_s, exit=is_exit, file=sys.__stderr__)
        if self._is_alarmed:
            signal.setitimer(signal.ITIMER_REAL, limit_s + 1)

    def _listen(self) -> None:
        while not self._closed.wait(LISTEN_S):
            if self.link.has_thread:
                self._hear()
            late_s = time.monotonic() - self._deadline
            if late_s > 0:
                self._interrupt(TrialTimeout, f"the trial took longer than trial.timeout, {self._timeout_s:g} s")
            is_overdue = late_s > GRACE_S and time.monotonic() - self._deadline > GRACE_S
            if is_overdue and self.may_end_process:
                end_process("the trial took too long and could not be interrupted")

    def _hear(self) -> None:
        try:
            message = self.link.poll(TO_WATCHDOG)
        except RankLost:
            end_unfinished("the coordinator was lost")
        if isinstance(message, End):
            end_process("the search is over")
        if isinstance(message, Disband):
            self.disbanded = max(self.disbanded, message.block)
            self._interrupt(TrialGivenUp, "the trial's block was given up")

    def _interrupt(self, kind: type[Exception], why: str) -> None:
        """Ends the user code that runs, once."""
        with self._lock:
            comm = self._comm
            if comm is None or self._why is not None:
                return
            self._why = kind, why
            if self.link.has_thread:
                communication.release(comm)
            if not self._uses_signal:
                _raise_in(self._watched, _with_text(kind, why))
        if self._uses_signal:
            signal.pthread_kill(self._watched, WAKE)

    def _raise_why(self, number: int, frame: object) -> None:
        if self._comm is not None and self._why is not None:
            kind, why = self._why
            raise kind(why)


def is_main_thread() -> bool:
    """Whether the caller is the main thread, the only one that can handle signals."""
    return threading.current_thread() is threading.main_thread()


def is_interactive() -> bool:
    """Whether this process is a notebook or an interpreter that a user types into."""
    return hasattr(sys, "ps1")


def _raise_in(thread: int, kind: type[Exception] | None) -> None:
    """Raises an exception in another thread at its next Python instruction; None takes back what was not yet raised."""
    raised = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


def _with_text(kind: type[Exception], why: str) -> type[Exception]:
    """A class like `kind` whose instances say `why`: only classes can be raised in another thread."""
    return type(kind.__name__, (kind,), {"__init__": lambda self: kind.__init__(self, why)})


def end_process(why: str) -> NoReturn:
    """Ends this process in the way that other ranks notice as a death."""
    _say(why)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")


def end_unfinished(why: str) -> NoReturn:
    """Ends this process after the loss of rank 0, with the status of an unfinished search.

    ``mpirun`` returns that status. If all ranks ended by signals, it would return 0 where lost ranks are survived.
    """
    _say(why)
    os._exit(UNFINISHED)


def _say(why: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a full disk, or user code that has closed standard error
        print(f"rank ends: {why}", file=sys.stderr, flush=True)
    communication.flush()


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """A process that user code forks inside, and that comes out here, ends: the search goes on in this one alone."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            error = sys.exc_info()[1]
            status = int(error is not None)
            if isinstance(error, SystemExit) and isinstance(error.code, int | None):
                status = error.code or 0
            elif error is not None:
                traceback.print_exception(error)
            communication.flush()
            os._exit(status)
