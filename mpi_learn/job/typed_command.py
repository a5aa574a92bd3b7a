"""The command with which the user has started this program, for the records of a study."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from mpi_learn.job.launchers import launched

VARIABLE = "MPI_LEARN_COMMAND"
"""The environment variable in which `launch` passes the command on to the ranks that it starts."""

MAX_LENGTH = 500
"""The largest number of characters of a command: ``python -c`` may have a whole program."""

_of_launch = ""


def take_from_environment() -> None:
    """Reads and removes `VARIABLE`: child processes must not inherit it."""
    global _of_launch
    _of_launch = os.environ.pop(VARIABLE, _of_launch)


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
