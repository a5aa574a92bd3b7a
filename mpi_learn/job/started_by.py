"""How this job was started: the command of the user, and the reason of a restart. For the records of a study."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from mpi_learn.job.launchers import launched

COMMAND_VARIABLE = "MPI_LEARN_COMMAND"
"""The environment variable in which `launch` passes the command on to the ranks that it starts."""

REASON_VARIABLE = "MPI_LEARN_RESTART"
"""The environment variable in which a job with restarts receives the reason; empty in its first start."""

MAX_LENGTH = 500
"""The largest number of characters of a command: ``python -c`` may have a whole program."""

_of_launch = ""
_reason: str | None = None


def take_from_environment() -> None:
    """Reads and removes the two variables: child processes must not inherit them."""
    global _of_launch, _reason
    _of_launch = os.environ.pop(COMMAND_VARIABLE, _of_launch)
    _reason = os.environ.pop(REASON_VARIABLE, _reason)


def typed_command() -> str:
    """The command in the form of a shell, such as ``mpi-opt search jets.yaml -n 5`` or ``mpirun -np 3 python a.py``.

    Options of ``mpirun`` other than the number of ranks are not known. Empty in a notebook or an interactive session,
    where there is no such command.
    """
    take_from_environment()
    if _of_launch:
        return _of_launch
    interpreter, *arguments = getattr(sys, "orig_argv", [sys.executable, *sys.argv])
    if hasattr(sys, "ps1") or "ipykernel" in sys.modules or not arguments:
        return ""
    program = Path(arguments[0]).name
    words = [program, *arguments[1:]] if program in ("mpi-opt", "mpi-learn") else [Path(interpreter).name, *arguments]
    by = launched()
    prefix = (
        [by.by if " " not in by.by else "mpiexec", "-n" if by.by == "srun" else "-np", str(by.size)] if by.by else []
    )
    text = shlex.join([*prefix, *words])
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}…"


def restart_reason() -> str | None:
    """Why this job was started again; empty in its first start, None for a job without restarts."""
    take_from_environment()
    return _reason
