"""The watchdog of a rank: receives messages and ends trials that take too long, while user code runs.

A second thread polls for messages from the coordinator and measures the duration of the trial. It ends a trial that
hangs in three steps; each one ends code that the previous one cannot interrupt:

1. An exception in user code ends Python code and sleeping.
2. Revoking the communicator of the trial ends waiting for other ranks.
3. The end of the process; the other ranks detect a lost rank. This step needs no Python instruction: `faulthandler`
   writes the traceback and ends the process.

Some steps are not always possible:

- The process does not end without protection against lost ranks, or if it belongs to the user (a notebook, or a thread
  of a program). The coordinator gives the block up instead.
- In a thread other than the main thread, no signal can interrupt user code. The exception is raised at the next Python
  instruction; a call of C code, or a sleep, is not interrupted.
- While numba compiles or loads a function, the exception of a signal is postponed: it would leave numba unable to load
  any other function in this process, so that all further trainings on the rank would fail.
- If MPI does not allow calls from several threads (`MPI_THREAD_MULTIPLE`), messages are received only while the rank
  waits, and the communicator is revoked only after the exception.
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
from types import FrameType
from typing import Any, NoReturn

from mpi_learn.job import exit_status
from mpi_learn.job.exit_status import UNFINISHED
from mpi_learn.mpi import communicators, messaging, process_end
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.mpi.messaging import RankLost
from mpi_opt.messages.messages import TO_WATCHDOG, Alive, Disband, EndProcess, WorkerLink

LISTEN_S = 0.5
"""The interval at which the thread checks for messages and for an overdue trial, in seconds."""

GRACE_S = 5.0
"""Time that an overdue trial has to end by an exception before its process is ended, in seconds."""

NEVER = float("inf")


class TrialTimeout(Exception):
    """The trial has taken longer than ``trial.timeout``."""


class TrialGivenUp(Exception):
    """The block of the trial was disbanded: it lost a rank or did not answer, or the search ends."""


class Disbanded(Exception):
    """This rank's block has been disbanded."""


class Watchdog:
    """Interrupts user code on one rank.

    Args:
        link: The link to the coordinator.
        may_end_process: Whether to end the process if a trial takes too long and cannot be interrupted.
        alive_s: The interval at which the coordinator receives a sign of life, in seconds; None for no sign.

    Attributes:
        disbanded: The index of the latest disbanded block of this rank; -1 if there is none.
    """

    def __init__(self, link: WorkerLink, *, may_end_process: bool, alive_s: float | None = None) -> None:
        self.link, self.may_end_process = link, may_end_process
        self._alive_s, self._next_alive_s = alive_s, 0.0
        self.disbanded = -1
        self._comm: Communicator | None = None
        self._deadline_s = NEVER
        self._timeout_s: float | None = None
        self._why: tuple[type[Exception], str] | None = None
        self._is_alarmed = self._is_postponed = False
        self._lock = threading.Lock()
        self._listener: threading.Thread | None = None
        self._closed = threading.Event()
        self._watched = 0
        self._signal: signal.Signals | None = None
        self._previous_handler: Any = None

    def open(self) -> None:
        """Starts the second thread. The calling thread must be the one that will run user code."""
        self._watched = threading.get_ident()
        self._signal = signal.SIGUSR2 if is_main_thread() else None
        if self._signal is not None:
            self._previous_handler = signal.signal(self._signal, self._raise_why)
        self._listener = threading.Thread(target=self._listen, name="watchdog", daemon=True)
        self._listener.start()

    def close(self) -> None:
        """Stops the second thread and restores the signal handler. To be called before ``MPI_Finalize``."""
        self._closed.set()
        if self._listener is not None:
            self._listener.join()
        if self._signal is not None:
            signal.signal(self._signal, signal.SIG_DFL if self._previous_handler is None else self._previous_handler)

    def check(self, block: int) -> None:
        """Raises `Disbanded` if the coordinator has disbanded `block`; called while the rank waits."""
        if not self.link.has_thread:
            self._receive()
        if self.disbanded >= block:
            raise Disbanded

    def guard(self, comm: Communicator, timeout_s: float | None, spent_s: float = 0.0) -> None:
        """Starts to watch user code, until `stop_guarding` is called.

        Until that call has returned, one exception may be raised in the watched thread at any instruction. If it is
        raised inside of `stop_guarding`, for example in a ``finally`` clause, `stop_guarding` must be called again.

        Args:
            comm: The communicator to revoke, so that ranks that wait in it are freed.
            timeout_s: The time limit of the trial, in seconds; None for no limit.
            spent_s: Time that the trial has taken so far, in its earlier folds.

        Raises:
            TrialTimeout: Raised later, if the code exceeds its time limit and can be interrupted.
            TrialGivenUp: Raised later, if the rank must leave its block.
        """
        left_s = NEVER if timeout_s is None else max(timeout_s - spent_s, 0.0)
        # the second thread must not combine the new communicator with the reason or the deadline of an earlier trial
        with self._lock:
            self._comm, self._timeout_s, self._why, self._is_postponed = comm, timeout_s, None, False
            self._deadline_s = time.monotonic() + left_s
        if timeout_s is not None:
            self._arm(left_s + 2 * GRACE_S)  # later than the exception, and than the end of the process by `_listen`

    def stop_guarding(self) -> None:
        """Ends the watch after user code. May be called more than once."""
        self._comm = None  # first, because no exception is raised from now on
        with self._lock:  # an interruption that the second thread has begun ends here, and is then cancelled
            self._deadline_s = NEVER
        if self._signal is None and self._why is not None:
            _raise_in(self._watched, None)
        faulthandler.cancel_dump_traceback_later()
        if self._is_alarmed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._is_alarmed = False

    def raise_late(self) -> None:
        """Raises the interruption again that user code has caught, or that came too late to be raised in it.

        The trial must count as failed: it was too long, and its communicator may have been revoked.
        """
        if self._why is not None:
            kind, why = self._why
            raise kind(why)

    def cause(self, error: BaseException) -> BaseException:
        """The interruption by which this watchdog has caused `error` of user code; else `error` itself.

        Before the exception of an interruption is raised, the communicator is revoked. Code that communicates may end
        with an error of the communicator first.
        """
        if self._why is None or not (messaging.is_communication_error(error) or messaging.is_consequence(error)):
            return error
        kind, why = self._why
        interruption = kind(why)
        interruption.__cause__ = error
        return interruption

    def _arm(self, limit_s: float) -> None:
        """Prepares the last step, which writes the traceback and ends the process even if the interpreter is blocked.

        Other ranks detect a death by an alarm signal, but not an exit with a status. The alarm is not set if user code
        handles the signal.
        """
        has_others = self.link.rank > 0
        is_free = signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        self._is_alarmed = self.may_end_process and has_others and is_free
        if sys.__stderr__ is not None:
            is_exit = self.may_end_process and not self._is_alarmed
            faulthandler.dump_traceback_later(limit_s, exit=is_exit, file=sys.__stderr__)
        if self._is_alarmed:
            signal.setitimer(signal.ITIMER_REAL, limit_s + 1)  # when the traceback is written

    def _listen(self) -> None:
        while not self._closed.wait(LISTEN_S):
            if self.link.has_thread:
                with communicators.no_creation():  # Open MPI could lose messages of the new communicator
                    self._receive()
                    self._give_sign_of_life()
            if self._is_postponed and self._signal is not None:
                self._is_postponed = False
                signal.pthread_kill(self._watched, self._signal)
            late_s = time.monotonic() - self._deadline_s
            if late_s > 0:
                self._interrupt(TrialTimeout, f"the trial took longer than trial.timeout, {self._timeout_s:g} s")
            had_grace = late_s > GRACE_S  # measured before `_interrupt`, which may take seconds
            is_still_late = time.monotonic() - self._deadline_s > GRACE_S  # the trial may have ended meanwhile
            if had_grace and is_still_late and self.may_end_process:
                why = "the trial took too long and could not be interrupted"
                if self.link.rank == 0:  # the only process of the search
                    end_unfinished(why)
                end_process(why)

    def _give_sign_of_life(self) -> None:
        if self._alive_s is not None and time.monotonic() >= self._next_alive_s:
            self._next_alive_s = time.monotonic() + self._alive_s
            with contextlib.suppress(*messaging.FAILURES):  # `_receive` notices a lost coordinator
                self.link.send(Alive())

    def _receive(self) -> None:
        try:
            message = self.link.poll(TO_WATCHDOG)
        except RankLost:
            end_unfinished("the coordinator was lost")
        if isinstance(message, EndProcess):
            end_process("the coordinator has asked for it, because the search is over or this rank did not answer")
        if isinstance(message, Disband):
            # indices of blocks only grow: a late message about an earlier block does not hide that of a later one
            self.disbanded = max(self.disbanded, message.block)
            self._interrupt(TrialGivenUp, "the trial's block was given up")

    def _interrupt(self, kind: type[Exception], why: str) -> None:
        """Interrupts user code, at most once per `guard`."""
        with self._lock:  # `stop_guarding` waits here: an interruption that comes later would hit the worker's own code
            comm = self._comm
            if comm is None or self._why is not None:
                return
            self._why = kind, why
            if self.link.has_thread:  # otherwise the block revokes it, after the exception
                messaging.revoke_if_protected(comm)
            if self._signal is None:
                _raise_in(self._watched, _with_text(kind, why))
        if self._signal is not None:
            signal.pthread_kill(self._watched, self._signal)

    def _raise_why(self, number: int, frame: FrameType | None) -> None:
        if self._comm is None or self._why is None:
            return
        if is_compiling(frame):
            self._is_postponed = True  # `_listen` sends the signal again
            return
        kind, why = self._why
        raise kind(why)


def is_compiling(frame: FrameType | None) -> bool:
    """Whether numba compiles or loads a function in this frame or one of its callers."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("numba.core."):
            return True
        frame = frame.f_back
    return False


def is_main_thread() -> bool:
    """Whether the caller runs in the main thread, the only one that can handle signals."""
    return threading.current_thread() is threading.main_thread()


def is_interactive() -> bool:
    """Whether this process is a notebook or an interactive interpreter."""
    return hasattr(sys, "ps1")


def _raise_in(thread: int, kind: type[Exception] | None) -> None:
    """Raises an exception in another thread at its next Python instruction; None cancels a pending one."""
    raised = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


def _with_text(kind: type[Exception], why: str) -> type[Exception]:
    """A subclass of `kind` with the message `why`. Only a class, not an instance, can be raised in another thread."""
    return type(kind.__name__, (kind,), {"__init__": lambda self: kind.__init__(self, why)})


def end_process(why: str) -> NoReturn:
    """Ends this process by a signal, which the other ranks detect as a death; its child processes end first."""
    _print_reason(why)
    exit_status.kill_children()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process is still alive after SIGKILL")


def end_unfinished(why: str) -> NoReturn:
    """Ends this process, which is the only one or has lost rank 0, with the exit status of an unfinished search.

    ``mpirun`` returns that status. With protection, it would return 0 if all ranks ended by signals.
    """
    _print_reason(why)
    exit_status.kill_children()
    os._exit(UNFINISHED)


def _print_reason(why: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the disk is full, or user code has closed standard error
        print(f"rank ends: {why}", file=sys.stderr, flush=True)
    process_end.flush()
