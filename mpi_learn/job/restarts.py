"""Starts a job again that has lost a process or a host, and the signs of life by which it is known to run.

As a sign of life, rank 0 touches the file to which it will write its status. A process that is stopped, that waits
forever for its host, or that has never begun does not. The process that has started the job then ends it.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mpi_learn.job.stop_request import StopRequest

MAX_WITHOUT_PROGRESS = 5
"""A job is given up after this number of restarts in a row without progress."""

FIRST_PAUSE_S, PAUSE_FACTOR = 1.0, 4.0
"""The pause before a restart, in seconds, and its growth with each restart without progress. A network or a file system
that does not answer for five minutes therefore ends no job."""

POLL_S = 0.1
"""The interval at which a pause checks whether this process was asked to end, in seconds."""


@dataclass(frozen=True)
class WorkDone:
    """The work that a job has done and that a restart keeps.

    Attributes:
        measure: A number that increases with the work, for comparisons only.
        text: The same for people, such as ``12 trials ended so far``.
    """

    measure: int
    text: str


@dataclass(frozen=True)
class Restarts:
    """How often a job may be started again.

    Attributes:
        most: The largest number of restarts.
        work_done: Reads what the job has done; None if it is unknown.
        is_alive: Whether rank 0 has given a sign of life since the last call; None if that is unknown. Called only in
            a job of several hosts: before its start, and every `ASK_S` while rank 0 has given none to this host.
        n_recorded: The number of restarts that the job has recorded, also of earlier commands; None if it is unknown.
        on_given_up: Called with the last message if the job is given up.
        rank_0_trains: Whether rank 0 runs user code also if there are other ranks.
        progresses_after_s: A start that was lost after a longer time, in seconds, has made progress, whatever
            `work_done` says.
    """

    most: int
    work_done: Callable[[], WorkDone | None]
    is_alive: Callable[[], bool | None] = lambda: None
    on_given_up: Callable[[str], None] = lambda text: None
    n_recorded: Callable[[], int | None] = lambda: None
    rank_0_trains: bool = False
    progresses_after_s: float = math.inf


@dataclass(frozen=True)
class JobEnd:
    """How a job has ended.

    Attributes:
        status: One of the statuses in `mpi_learn.job.exit_status`.
        loss: Why the job has ended early, if the same command may continue it at once: a process, a host or the network
            was lost. Empty if the job is finished, has failed for another reason, or was asked to end.
    """

    status: int
    loss: str = ""


def run_with_restarts(restarts: Restarts, program: str, run: Callable[[str], JobEnd], request: StopRequest) -> int:
    """Runs a job until its work is done, it fails, or too many restarts were needed.

    Args:
        restarts: The limit, and the progress of the job.
        program: The name of the program, for messages.
        run: Runs the job once; receives the reasons of the restarts that are not recorded yet, one per line, the
            latest one last; empty for the first start.
        request: Receives the signals of this process. A request ends the job and the restarts.

    Returns:
        The exit status of the last run.
    """
    reasons: list[str] = []
    n_idle, before = 0, None
    n_earlier = n_recorded = 0
    while True:
        began_s = time.monotonic()
        if reasons:  # a start that was lost before it could open the store has recorded nothing
            n_recorded = restarts.n_recorded() or n_recorded
            if len(reasons) == 1:  # the first start had no reason to record; until then, nothing needs to be read
                n_earlier = n_recorded
        first = min(n_recorded - n_earlier, len(reasons) - 1)
        end = run("\n".join(reasons[max(first, 0) :]))
        is_long = time.monotonic() - began_s > restarts.progresses_after_s
        if not end.loss or request.signal_name is not None:
            break
        now = restarts.work_done()
        # the progress before the first start was not read: the first restart counts as one with progress
        is_more = not reasons or (now is not None and (before is None or now.measure > before.measure))
        has_progressed = is_more or is_long
        n_idle = 0 if has_progressed else n_idle + 1
        before = now or before
        if len(reasons) >= restarts.most or n_idle >= MAX_WITHOUT_PROGRESS:
            reasons.append(end.loss)
            message = _surrender(reasons, is_idle=n_idle >= MAX_WITHOUT_PROGRESS)
            _say(program, message)
            restarts.on_given_up(message)
            return end.status
        pause_s = FIRST_PAUSE_S * PAUSE_FACTOR**n_idle
        reasons.append(end.loss)
        done = f"; {before.text}" if before is not None else ""
        _say(program, f"{end.loss}{done}; restart {len(reasons)} of {restarts.most} in {pause_s:g} s")
        _pause(pause_s, request)
        if request.signal_name is not None:
            return request.status
    if reasons:
        _say(program, f"{_times(len(reasons))}:\n{_list(reasons)}")
    return end.status


def _surrender(reasons: list[str], *, is_idle: bool) -> str:
    """The last message of a job that is given up; its last reason was not followed by a restart."""
    why = f"{MAX_WITHOUT_PROGRESS} restarts in a row without progress" if is_idle else "no restart is left"
    cure = "read the messages above; the same command continues"
    return f"given up after {_times(len(reasons) - 1)}: {why}\n{_list(reasons)}\n  → {cure}"


def _list(reasons: list[str]) -> str:
    return "\n".join(f"  {number}. {reason}" for number, reason in enumerate(reasons, 1))


def _times(n: int) -> str:
    return "1 restart" if n == 1 else f"{n} restarts"


def _pause(seconds: float, request: StopRequest) -> None:
    until = time.monotonic() + seconds
    while request.signal_name is None and time.monotonic() < until:
        time.sleep(POLL_S)


def _say(program: str, text: str) -> None:
    print(f"{program}: {text}", file=sys.stderr, flush=True)


INTERVAL_S = 1.0
"""The interval between two signs of life, in seconds."""

END_S = 75.0
"""``mpirun`` must end within this time after the end of rank 0, in seconds. Other ranks need up to 60 s for their exit
handlers; a stopped one would keep ``mpirun`` forever."""

ASK_S = 3.0
"""The interval at which a job whose rank 0 is on another host is asked for signs of life, in seconds."""

ELSEWHERE_S = 10.0
"""Such a rank 0 may be silent for at least this time, in seconds: a search renews the lease of its study every 3 s."""

STOPPED_S = 10.0
"""If the job is not checked for this time, in seconds, this process was stopped, probably together with the job: by a
batch system that suspends jobs, or from a terminal."""

LEFTOVERS_S = 5.0
"""Processes that were killed must be gone after this time, in seconds."""


def give_signs_of_life(path: Path) -> None:
    """Touches `path` from a second thread until this process ends."""

    def touch() -> None:
        while True:
            with suppress(OSError):  # the file is on another host, or no longer needed
                os.utime(path)
            time.sleep(INTERVAL_S)

    threading.Thread(target=touch, name="signs of life", daemon=True).start()


class LifeWatch:
    """Decides whether a job is still alive; times are measured with the clock of this process.

    Args:
        path: The file that rank 0 touches; rank 0 writes its status to it when it ends.
        start_s: Time for rank 0 to begin, in seconds.
        silence_s: The longest time between two signs of life, in seconds.
        is_alive: As `Restarts.is_alive`.
    """

    def __init__(
        self, path: Path, start_s: float, silence_s: float, is_alive: Callable[[], bool | None] = lambda: False
    ) -> None:
        self._path, self._start_s, self._silence_s, self._is_alive = path, start_s, silence_s, is_alive
        self._seen = self._first = path.stat().st_mtime_ns
        self._since_s = self._asked_s = self._checked_s = time.monotonic()
        self._is_elsewhere = False
        is_alive()  # the next call is then not about an earlier job

    @property
    def has_begun(self) -> bool:
        """Whether rank 0 has touched the file before the last call of `trouble`."""
        return self._seen != self._first

    def trouble(self) -> str:
        """Why the job must be ended; empty if it is alive. To be called at least every `STOPPED_S`."""
        now_s = time.monotonic()
        if (stopped_s := now_s - self._checked_s) > STOPPED_S:
            self._since_s += stopped_s
        trouble = self._trouble(now_s)
        self._checked_s = time.monotonic()  # a slow store is no reason to give the job more time
        return trouble

    def _trouble(self, now_s: float) -> str:
        try:
            found = self._path.stat()
        except OSError:  # another program has removed the file: nothing is known
            return ""
        if found.st_mtime_ns != self._seen:
            self._seen, self._since_s = found.st_mtime_ns, now_s
        silent_s = now_s - self._since_s
        if found.st_size > 0:
            return "mpirun did not end after its rank 0" if silent_s > END_S else ""
        if self.has_begun:
            return f"rank 0 gave no sign of life for {self._silence_s:g} s" if silent_s > self._silence_s else ""
        return self._trouble_elsewhere(now_s)

    def _trouble_elsewhere(self, now_s: float) -> str:
        """The same if rank 0 has not touched the file: it has not begun, or runs on another host."""
        if now_s - self._asked_s >= ASK_S:
            self._asked_s, is_alive = now_s, self._is_alive()
            self._is_elsewhere |= is_alive is True
            if is_alive is not False:
                self._since_s = now_s
        limit_s = max(self._silence_s, ELSEWHERE_S) if self._is_elsewhere else self._start_s
        if now_s - self._since_s <= limit_s:
            return ""
        if self._is_elsewhere:
            return f"rank 0 gave no sign of life for {limit_s:g} s"
        return f"the job did not begin within {limit_s:g} s"


def kill_all_with(variable: str, value: str) -> None:
    """Kills the processes of this host that have `variable` with `value` in their environment, except this one.

    Only processes of this user are found, and only on Linux. A process of a job that survives, such as a stopped rank,
    could otherwise continue next to the new job.
    """
    wanted, until = f"{variable}={value}".encode(), time.monotonic() + LEFTOVERS_S
    while (found := _with_entry(wanted)) and time.monotonic() < until:
        for process in found:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(INTERVAL_S / 20)


def _with_entry(wanted: bytes) -> list[int]:
    """The living processes, except this one, with this entry in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or belongs to another user; a zombie has no environment
            process = int(path.parent.name)
            if process != os.getpid() and wanted in path.read_bytes().split(b"\0"):
                found.append(process)
    return found
