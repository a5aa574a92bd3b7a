"""Time limits of a job: of its start, between two signs of life, and those of Slurm."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mpi_learn.errors import UserError
from mpi_learn.job.exit_status import STATUS_FILE
from mpi_learn.job.restarts import give_signs_of_life
from mpi_learn.job.started_by import is_launched, launched_rank

START_S = 600.0
"""All ranks must start within this time in seconds after the first. ``MPI_LEARN_START_S`` overrides it."""
LONGEST_START_S = 1e9
MESSAGE_S = 2.0
"""Time in which rank 0 prints a message before the other ranks end; ``mpirun`` ends all ranks as soon as one does."""

SILENCE_S = 60.0
"""Time without a sign of life of rank 0 after which a job with restarts is started again, in seconds.

``MPI_LEARN_SILENCE_S`` overrides it.
"""
USER_CODE_SILENCE_S = 1800.0
"""The same where rank 0 runs user code, which may hold the interpreter lock: the default of ``blocks.silence``."""


def start_limit_s() -> float:
    """`START_S`, or the value of the environment."""
    return _seconds_of("MPI_LEARN_START_S", START_S)


def silence_s(*, runs_user_code: bool) -> float:
    """`SILENCE_S`, `USER_CODE_SILENCE_S` where rank 0 runs user code, or the value of the environment."""
    return _seconds_of("MPI_LEARN_SILENCE_S", USER_CODE_SILENCE_S if runs_user_code else SILENCE_S)


def _seconds_of(variable: str, default_s: float) -> float:
    """A time from the environment. Ends the process with a message unless that is a possible time."""
    text = os.environ.get(variable, str(default_s))
    with contextlib.suppress(ValueError):
        if 0 < float(text) < LONGEST_START_S:
            return float(text)
    if launched_rank() == 0:
        problem = f"expected a number of seconds above 0 and below {LONGEST_START_S:g}, found {text!r}"
        print(f"{variable}: {problem}\n  → unset the variable, or write for example 1800", file=sys.stderr)
    else:
        time.sleep(MESSAGE_S)
    sys.exit(UserError.exit_status)


@contextlib.contextmanager
def start_limit() -> Iterator[None]:
    """Limits the time in which MPI starts. The start needs all ranks, and would wait forever for a dead one.

    After the limit the process ends; ranks 0 and 1 print their stacks. A Python thread cannot enforce the limit, since
    MPI holds the interpreter lock while it starts. Rank 0 then begins to give signs of life.
    """
    if not is_launched():
        yield
        return
    limit_s = start_limit_s()
    stderr = sys.__stderr__ or sys.stderr  # has a descriptor, also where a program has replaced sys.stderr
    with open(os.devnull, "w") if launched_rank() > 1 else contextlib.nullcontext(stderr) as stacks:  # noqa: PTH123
        faulthandler.dump_traceback_later(limit_s, exit=True, file=stacks)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
    if launched_rank() == 0 and STATUS_FILE in os.environ:
        give_signs_of_life(Path(os.environ[STATUS_FILE]))


ASK_S = 20.0
"""Timeout of a request to Slurm's controller, in seconds."""

LEAST_MARGIN_S, MOST_MARGIN_S = 5.0, 30.0
"""Limits of the time between the end of a program and the end of its job, in seconds."""


def job_end_s(
    environment: Mapping[str, str] = os.environ, ask: Callable[[str], str] | None = None, now_s: float | None = None
) -> float | None:
    """The end of this Slurm job, in seconds since 1970; None outside of Slurm, without a time limit, or if unknown.

    Slurm 23.02 and later set ``SLURM_JOB_END_TIME``; for earlier versions ``squeue`` is called.

    Args:
        ask: Returns the remaining time of a job in the format of ``squeue``; default: runs ``squeue``.
        now_s: Seconds since 1970; default: the current time.
    """
    end = environment.get("SLURM_JOB_END_TIME", "")
    if end.isdigit():
        return float(end)
    job = environment.get("SLURM_JOB_ID", "")
    left_s = seconds_left((ask or _ask_squeue)(job)) if job else None
    return None if left_s is None else left_s + (time.time() if now_s is None else now_s)


def seconds_left(text: str) -> float | None:
    """Converts ``1-02:03:04``, ``02:03:04`` or ``3:04`` to seconds; None for anything else, such as ``UNLIMITED``."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(group or 0) for group in found.groups())
    return 86400.0 * days + 3600.0 * hours + 60.0 * minutes + seconds


def margin_s(left_s: float) -> float:
    """Seconds by which a program ends before its job: a tenth of the time left at its start, 5 to 30 s."""
    return min(max(left_s / 10, LEAST_MARGIN_S), MOST_MARGIN_S)


def _ask_squeue(job: str) -> str:
    command = ["squeue", "--noheader", "--format=%L", f"--jobs={job}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
