"""Time limits of a job that the environment may change: of its start, and between two signs of life."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from mpi_learn.errors import UserError
from mpi_learn.job.exit_status import STATUS_FILE
from mpi_learn.job.launchers import is_launched, launched_rank
from mpi_learn.job.signs_of_life import give_signs_of_life

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
