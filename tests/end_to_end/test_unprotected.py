"""Searches that a lost process would end: Open MPI without its flags, and MPICH."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mpi_learn.job.launch import find_mpirun
from tests.end_to_end.searches import SEARCH
from tests.mpirun import run

ROOT = Path(__file__).parents[2]
MPICH = Path(sys.prefix) / "mpich" / "bin"
OPEN_MPI = [find_mpirun(), "--oversubscribe"]
LAUNCHERS = {
    "Open MPI": (OPEN_MPI, sys.executable),
    "MPICH": ([str(MPICH / "mpirun")], str(MPICH / "python")),
}
needs_mpich = pytest.mark.skipif(not (MPICH / "mpirun").exists(), reason="the MPICH wheel is not installed")

pytestmark = pytest.mark.mpi


def launch(name: str, n: int, *arguments: str, cwd: Path, timeout: float = 100):
    """``python ARGUMENTS`` on `n` ranks of a library that does not survive lost ranks."""
    launcher, python = LAUNCHERS[name]
    command = [*launcher, "-np", str(n), python, *arguments]
    return run(command, cwd=cwd, timeout=timeout, env={"PYTHONPATH": str(ROOT)})


@needs_mpich
def test_a_search_runs_under_mpich(space_file, query, tmp_path):
    path = space_file("parabola", blocks={"size": 2})
    done = launch("MPICH", 5, *SEARCH, str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "a lost rank would end this search" in done.stdout
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(12,)]


SCRIPT = """
import os
import mpi_opt
from mpi_opt.coordinator.trials import trial_queue
from mpi_opt.errors import MPILearnError

trial_queue.STRANDED_S = 3.0  # the rank that hangs takes a core meanwhile

def objective(trial):
    if trial.number == 1 and trial.comm.rank == 1:
        raise ValueError("this rank says no")
    trial.comm.Barrier()  # in trial 1 forever, in C code, and longer than the timeout
    return 1.0

settings = {
    "space": {"x": mpi_opt.Real(0, 1)}, "strategy": "random", "trials": 12, "block_size": 2, "timeout": 2,
    "store": "sqlite:///test.db",
}
study = mpi_opt.search(objective, study="test", **settings)
n_complete = sum(trial.state == "complete" for trial in study.trials)
os.write(1, f"{n_complete} are complete\\n".encode())  # at once: the lines of several ranks meet
try:
    mpi_opt.search(objective, study="second", **settings)
except MPILearnError as error:
    os.write(1, f"{error}\\n".encode())
"""


@pytest.mark.parametrize("library", ["Open MPI", pytest.param("MPICH", marks=needs_mpich)])
def test_a_rank_that_raises_costs_only_its_block(library, query, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = launch(library, 5, "script.py", cwd=tmp_path)
    assert "this rank says no" in query("SELECT error FROM trials WHERE number = 1")[0][0], done.stderr
    assert query("SELECT state, count(*) FROM trials GROUP BY state") == [("complete", 11), ("failed", 1)]
    assert query("SELECT kind FROM events") == [("block_lost",), ("study_finished",)]
    # of every rank but the one that hangs: each comes to its own end
    assert done.stdout.count("11 are complete") == 4
    assert done.stdout.count("a rank of this job is blocked") == 4
    assert done.returncode == 0 or library == "MPICH", done.stderr  # Hydra returns the status of a rank that it ends


MANY_FAILURES = """
import mpi_opt

def objective(trial):
    if trial.number > 0:
        raise ValueError("no")
    for _ in range(1950):
        trial.comm.Dup()
    return 1.0

if __name__ == "__main__":
    space = {"x": mpi_opt.Real(0, 1)}
    mpi_opt.search(objective, space=space, strategy="random", trials=5000, block_size=2, store="sqlite:///test.db")
"""


@pytest.mark.thorough  # it uses up thousands of communicators
@needs_mpich
def test_a_block_that_has_used_up_mpichs_communicators_ends_the_search_with_the_reason(query, tmp_path):
    (tmp_path / "failures.py").write_text(MANY_FAILURES)
    done = launch("MPICH", 3, "failures.py", cwd=tmp_path)
    assert "no block of ranks could be formed" in done.stderr
    assert "Too many communicators" in done.stderr
    assert done.returncode == 1
    assert query("SELECT count(*) FROM trials WHERE state = 'failed'")[0][0] > 50
