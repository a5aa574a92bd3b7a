"""Runs ``mpi-opt`` and ``mpi-learn`` in the process of the tests, where a process of its own would not differ."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch


def in_process(*arguments: str, cwd: Path, main: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs ``mpi-opt ARGUMENTS`` as its entry point does: exit status, standard output and standard error.

    Output of other libraries' C code is not seen, and signals reach pytest: use `tests.mpirun.run` for these.

    Args:
        arguments: Without the program's name.
        cwd: The working directory.
        main: Another entry point that reads ``sys.argv``.
    """
    from mpi_opt.cli.main import main as mpi_opt

    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch.object(sys, "argv", ["mpi-opt", *arguments]),
        patch.dict(os.environ),
    ):
        try:
            (main or mpi_opt)()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
    return subprocess.CompletedProcess(list(arguments), status, out.getvalue(), err.getvalue())
