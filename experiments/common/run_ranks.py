"""Runs a Python program on MPI ranks of this machine. Scripts find this file through ``sys.path``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from mpi_learn.job.launch import find_mpirun, launch_environment, launch_flags

ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def run_ranks(n_ranks: int, *arguments: str | Path, folder: Path, variables: Mapping[str, str] = ONE_THREAD) -> None:
    """Runs ``mpirun -np N_RANKS python ARGUMENTS`` to its end.

    Args:
        n_ranks: The number of ranks.
        arguments: A script, or ``-m`` and a module, and its arguments.
        folder: The working directory.
        variables: Further environment variables of the ranks.

    Raises:
        SystemExit: The program failed; the message is its output.
    """
    mpirun = find_mpirun()
    command = [mpirun, *launch_flags(mpirun), "-np", str(n_ranks), sys.executable, *map(str, arguments)]
    environment = launch_environment() | dict(variables)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
