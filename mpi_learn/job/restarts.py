"""Starts a job again that has ended although its work is not done, for ``--restarts``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from mpi_learn.job.stop_request import StopRequest

MAX_WITHOUT_PROGRESS = 3
"""A job is given up after this number of restarts in a row without progress."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""The pause before a restart, which doubles with each restart without progress, in seconds."""

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
            a job of several hosts: before its start, and while rank 0 has given this host no sign of life.
        on_given_up: Called with the last message if the job is given up.
        rank_0_trains: Whether rank 0 runs user code also if there are other ranks.
    """

    most: int
    work_done: Callable[[], WorkDone | None]
    is_alive: Callable[[], bool | None] = lambda: None
    on_given_up: Callable[[str], None] = lambda text: None
    rank_0_trains: bool = False


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
        run: Runs the job once; receives the reason of the restart, empty for the first start.
        request: Receives the signals of this process. A request ends the job and the restarts.

    Returns:
        The exit status of the last run.
    """
    reasons: list[str] = []
    n_idle, before = 0, None
    while True:
        end = run(reasons[-1] if reasons else "")
        if not end.loss or request.signal_name is not None:
            break
        now = restarts.work_done()
        # the progress before the first start was not read: the first restart counts as one with progress
        has_progressed = not reasons or (now is not None and (before is None or now.measure > before.measure))
        n_idle = 0 if has_progressed else n_idle + 1
        before = now or before
        if len(reasons) >= restarts.most or n_idle >= MAX_WITHOUT_PROGRESS:
            reasons.append(end.loss)
            message = _surrender(reasons, is_idle=n_idle >= MAX_WITHOUT_PROGRESS)
            _say(program, message)
            restarts.on_given_up(message)
            return end.status
        pause_s = min(FIRST_PAUSE_S * 2.0**n_idle, LONGEST_PAUSE_S)
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
