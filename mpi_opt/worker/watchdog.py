"""What keeps a rank within reach while user code runs on it.

A thread beside the main one listens for the coordinator's word, and minds the time that a trial may take. It ends hangs
in three steps, each for those that the step before did not reach: an exception in the main thread, which ends Python
code and sleeping; giving up the trial's communicator, which ends waiting for other ranks; the end of the process, which
the others notice as a lost rank. A last step needs no Python at all: `faulthandler` writes where the process hangs and
ends it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator

from mpi_learn.cli.exit_status import UNFINISHED
from mpi_learn.mpi import communicators as communication
from mpi_learn.mpi.communicators import Communicator, RankLost
from mpi_opt.messages.messages import TO_LIFELINE, Disband

LISTEN_S = 0.5
"""How often the thread looks, in seconds: two looks a second cost next to nothing, on hundreds of ranks, too."""

HALT_S = 3.0
"""How long running trials have to end when somebody wants the search to end, in seconds."""

GRACE_S = 5.0
"""How long after its time a trial has to end by an exception before its process is ended."""

NEVER = float("inf")

WAKE = getattr(signal, "SIGUSR2", None)


class TrialTimeout(Exception):
    """The trial took longer than ``trial.timeout``."""


class TrialGivenUp(Exception):
    """A rank of the trial was lost, or the search ends; it will be run again."""


class Lifeline:
    """The listening thread of one rank.

    Args:
        world: Where the coordinator is rank 0; None in a search of one process, which has nobody to listen to.

    Attributes:
        disbanded: The latest block of this rank's that is no more.
        must_end: Whether a search of one process is to end, which its own trial would keep it from.
    """

    def __init__(self, world: Communicator | None) -> None:
        self.world = world
        self.disbanded = -1
        self.must_end: Callable[[], bool] = lambda: False
        self._end_by = NEVER
        self._comm: Communicator | None = None
        self._deadline = NEVER
        self._timeout_s: float | None = None
        self._why: tuple[type[Exception], str] | None = None
        self._is_alarmed = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def open(self) -> None:
        """Starts listening. Must be called in the main thread, which alone can be interrupted."""
        if WAKE is not None and threading.current_thread() is threading.main_thread():
            signal.signal(WAKE, self._raise_why)
        self._thread = threading.Thread(target=self._listen, name="lifeline", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening; before MPI ends."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def has_given_up(self) -> bool:
        """Whether the code that was watched over last was ended because nobody wants its result any more."""
        return self._why is not None and self._why[0] is TrialGivenUp

    def guard(self, comm: Communicator, timeout_s: float | None) -> None:
        """Watches over user code from now on until `rest`.

        The main thread may get an exception meanwhile, anywhere, also in the `rest` of a ``finally``; but one only. Who
        catches it calls `rest` again.

        Args:
            comm: What to give up so that ranks waiting in it get free.
            timeout_s: How long the code may take; None: for ever.

        Raises:
            TrialTimeout: Later: it took longer, and could be interrupted.
            TrialGivenUp: Later: the rank shall leave its block.
        """
        with self._lock:
            self._comm, self._timeout_s, self._why = comm, timeout_s, None
            self._deadline = NEVER if timeout_s is None else time.monotonic() + timeout_s
        if timeout_s is not None:
            self._arm(timeout_s + 2 * GRACE_S)

    def rest(self) -> None:
        """The user code is over; calling it once more does no harm."""
        self._comm = None  # first of all: from now on no exception arrives
        with self._lock:
            self._deadline = NEVER
        faulthandler.cancel_dump_traceback_later()
        if self._is_alarmed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._is_alarmed = False

    def _arm(self, limit_s: float) -> None:
        """The last step: the process is ended even if the interpreter stands still.

        Other ranks notice the death by an alarm, not an exit with a status. The alarm is left to user code that has a
        use for it.
        """
        self._is_alarmed = self.world is not None and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        faulthandler.dump_traceback_later(limit_s, exit=not self._is_alarmed, file=sys.__stderr__)
        if self._is_alarmed:
            signal.setitimer(signal.ITIMER_REAL, limit_s + 1)

    def _listen(self) -> None:
        while not self._closed.wait(LISTEN_S):
            self._hear()
            late_s = time.monotonic() - self._deadline
            if late_s > 0:
                self._interrupt(TrialTimeout, f"the trial took longer than trial.timeout, {self._timeout_s:g} s")
            if late_s > GRACE_S and time.monotonic() - self._deadline > GRACE_S:
                end_process("the trial took too long and could not be interrupted")

    def _hear(self) -> None:
        if self.world is None:
            self._watch_for_the_end()
            return
        try:
            found = communication.poll(self.world, source=0, tag=TO_LIFELINE)
        except RankLost:
            end_unfinished("the coordinator was lost")
        if found is None:
            return
        if not isinstance(found[0], Disband):
            end_process("the search is over")
        self.disbanded = max(self.disbanded, found[0].block)
        self._interrupt(TrialGivenUp, "a rank of the trial's block was lost")

    def _watch_for_the_end(self) -> None:
        if self.must_end():
            self._end_by = min(self._end_by, time.monotonic() + HALT_S)
        if time.monotonic() >= self._end_by:
            self._interrupt(TrialGivenUp, "the search ends")

    def _interrupt(self, kind: type[Exception], why: str) -> None:
        """Ends the user code that runs, once."""
        with self._lock:
            comm = self._comm
            if comm is None or self._why is not None:
                return
            self._why = kind, why
            communication.release(comm)
        if WAKE is not None:
            signal.pthread_kill(threading.main_thread().ident, WAKE)

    def _raise_why(self, number: int, frame: object) -> None:
        if self._comm is not None and self._why is not None:
            kind, why = self._why
            raise kind(why)


def end_process(why: str) -> None:
    """Ends this process in the way that other ranks notice as a death; never returns."""
    _say(why)
    os.kill(os.getpid(), signal.SIGKILL)


def end_unfinished(why: str) -> None:
    """Ends this process after the loss of rank 0, with the status of an unfinished search; never returns.

    ``mpirun`` returns that status. If all ranks ended by signals, it would return 0 where lost ranks are survived.
    """
    _say(why)
    os._exit(UNFINISHED)


def _say(why: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a full disk, or a stream that user code has closed
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
