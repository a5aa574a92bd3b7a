"""Samples in memory: one copy for each host, whatever communicators its ranks are in."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pytest

from tests.mpirun import mpirun

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux says what memory is shared"),
]
N_RANKS, N_SAMPLES = 4, 40_000


@cache
def sharing() -> dict:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "a.h5"
        with h5py.File(file, "w") as opened:
            opened["X"] = np.ones((N_SAMPLES, 784), np.uint8)
            opened["y"] = np.arange(N_SAMPLES)
        done = mpirun(N_RANKS, "-m", "tests.mpi_learn.programs.sharing", str(file), timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", ["together", "each alone", "in pairs", "in folds", "in trials", "after a loss"])
def test_the_ranks_of_a_host_hold_one_copy_together(case):
    seen = sharing()[case]
    assert seen["sums"] == [N_SAMPLES * 784.0] * N_RANKS
    assert 0.9 < seen["copies"] < (2.3 if case == "in trials" else 1.3)


def test_a_rank_that_has_ended_holds_nobody_up(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as opened:
        opened["X"], opened["y"] = np.ones((5, 2)), np.arange(5)
    program = (
        "import time; from mpi4py import MPI; from mpi_learn.data import DataConfiguration, load\n"
        "time.sleep(2 * MPI.COMM_WORLD.rank)\n"
        "data = load(DataConfiguration(train='a.h5', features='X', labels='y'), MPI.COMM_SELF, 0)\n"
        "print(len(data.training), flush=True)\n"
    )
    for _ in range(3):
        done = mpirun(2, "-c", program, cwd=tmp_path, timeout=40)
        assert done.stdout.split() == ["5", "5"], done.stderr


def test_a_rank_that_ends_while_it_answers_another_holds_nobody_up(tmp_path):
    program = (
        "import time; from mpi4py import MPI; from mpi_learn import shared_memory\n"
        "MPI.COMM_WORLD.Barrier()\n"
        "is_first, known = MPI.COMM_WORLD.rank == 0, shared_memory._is_own_user\n"
        "if is_first: shared_memory._is_own_user = lambda other: (time.sleep(1.5), known(other))[1]\n"
        "else: time.sleep(1)\n"
        "memory = shared_memory.shared_by_host(MPI.COMM_SELF, 'a', 5, lambda memory: memory.fill(1))\n"
        "if is_first: time.sleep(1.5)\n"  # asked meanwhile, it has not answered yet
        "print(int(memory.sum()), flush=True)\n"
    )
    done = mpirun(2, "-c", program, cwd=tmp_path, timeout=40)
    assert done.stdout.split() == ["5", "5"], done.stderr


def test_the_memory_goes_with_the_last_that_uses_it():
    assert all(seen["left"] < 0.2 for seen in sharing().values())
