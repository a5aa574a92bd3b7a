"""Searches that tests start, watch and end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mpi_learn.job.launch import launch_environment
from tests.mpirun import MPIRUN, PROTECTED, patient_s

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


def ranks_of(mpirun: int) -> dict[int, int]:
    """Rank -> process id, of the ranks of an ``mpirun`` of Open MPI on this host that are alive."""
    found = {}
    for pid in children(mpirun):
        with suppress(OSError):  # it has just ended
            words = Path(f"/proc/{pid}/environ").read_text().split("\0")
            found |= {int(word.partition("=")[2]): pid for word in words if word.startswith("OMPI_COMM_WORLD_RANK=")}
    return found


def children(pid: int) -> list[int]:
    """The process ids of the children of a process."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)  # 1: no child
    return list(map(int, found.stdout.split()))


def n_complete(query: Callable[[str], list[tuple]]) -> int:
    """The present number of complete trials."""
    try:
        return query("SELECT count(*) FROM trials WHERE state = 'complete'")[0][0]
    except Exception as error:  # noqa: BLE001 - the store is not there yet
        assert "no such table" in str(error) or "unable to open" in str(error)
        return 0


def await_trials(process: subprocess.Popen, query: Callable[[str], list[tuple]], n: int = 1) -> None:
    """Waits until at least `n` trials are complete; see `await_search`."""
    await_search(process, lambda: n_complete(query) >= n, f"{n} trials are not complete")


def await_search(process: subprocess.Popen, is_true: Callable[[], bool], why: str, every_s: float = 0.1) -> None:
    """Waits until `is_true` returns True.

    Raises:
        AssertionError: The search has ended before; the message has its output. Or it takes more than two minutes.
    """
    until = time.monotonic() + patient_s(60)
    while not is_true():
        if process.poll() is not None and not is_true():
            raise AssertionError(f"the search ended with status {process.returncode}: {process.communicate()}")
        assert time.monotonic() < until, why
        time.sleep(every_s)
