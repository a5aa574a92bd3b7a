"""Searches that tests start, watch and end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mpi_learn.cli.launch import launch_environment
from tests.mpirun import MPIRUN, PROTECTED

SEARCH = ("-m", "mpi_opt", "search")


def start(n: int, path: Path, cwd: Path, flags: list[str] | None = None) -> subprocess.Popen:
    """A search under ``mpirun`` in a session of its own; protected against lost ranks unless `flags` are given."""
    chosen = PROTECTED if flags is None else flags
    command = [MPIRUN, *chosen, "-np", str(n), sys.executable, *SEARCH, str(path)]
    return subprocess.Popen(
        command, cwd=cwd, env=launch_environment(), stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def start_with_n(n: int, path: Path, cwd: Path) -> subprocess.Popen:
    """A search that starts ``mpirun`` itself, in a session of its own."""
    command = [sys.executable, *SEARCH, str(path), "-n", str(n)]
    return subprocess.Popen(
        command, cwd=cwd, env=launch_environment(), stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def ranks_of(launcher: subprocess.Popen) -> list[int]:
    """The process ids of the ranks in order, because the launcher starts them one after the other."""
    return children(launcher.pid)


def children(pid: int) -> list[int]:
    """The process ids of the children of a process, in the order in which it started them."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return sorted(map(int, found.stdout.split()))


def n_complete(query: Callable[[str], list[tuple]]) -> int:
    """The present number of complete trials."""
    try:
        return query("SELECT count(*) FROM trials WHERE state = 'complete'")[0][0]
    except Exception as error:  # noqa: BLE001 - the store is not there yet
        assert "no such table" in str(error) or "unable to open" in str(error)
        return 0


def await_trials(process: subprocess.Popen, query: Callable[[str], list[tuple]], n: int = 1) -> None:
    """Waits until at least `n` trials are complete; fails at once if the search ends before, with its output."""
    while n_complete(query) < n:
        if process.poll() is not None and n_complete(query) < n:
            raise AssertionError(f"the search ended with status {process.returncode}: {process.communicate()}")
        time.sleep(0.1)
