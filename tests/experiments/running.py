"""Runs the programs in ``experiments/`` without starting processes for them: the frameworks are loaded once."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mpi_learn.job.launch import find_mpirun
from tests.in_process import in_process
from tests.world import in_world

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def run_experiment(script: str, *arguments: str, cwd: Path) -> str:
    """The output of a script; what it starts with ``mpirun`` runs on ranks that stay for the next program.

    Commands of MPI Opt run in this process.

    Args:
        script: Its path below ``experiments/``.
        arguments: Of the script.
        cwd: The working directory.

    Raises:
        AssertionError: The exit status is not 0.
    """
    path = EXPERIMENTS / script
    modules = set(sys.modules)
    with patch.object(sys, "path", [str(path.parent), *sys.path]), patch.object(subprocess, "run", _run):
        done = in_process(*arguments, cwd=cwd, main=lambda: runpy.run_path(str(path), run_name="__main__"))
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(EXPERIMENTS)):
            del sys.modules[name]  # experiments have modules of the same names
    assert done.returncode == 0, done.stderr
    return done.stdout


_original = subprocess.run


def _run(command: list[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    if command[:3] == [sys.executable, "-m", "mpi_opt"]:
        return in_process(*command[3:], cwd=options["cwd"])
    if command[0] != find_mpirun() or "-np" not in command:
        return _original(command, **options)
    place = command.index("-np")
    n_ranks, _, *arguments = map(str, command[place + 1 :])
    return in_world(int(n_ranks), *arguments, cwd=options["cwd"], timeout=400)
