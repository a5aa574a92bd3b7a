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


def test_a_rank_that_has_ended_blocks_no_other_rank(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as opened:
        opened["X"], opened["y"] = np.ones((5, 2)), np.arange(5)
    program = (
        "import time; from mpi4py import MPI; from mpi_learn.data.loading import load\n"
        "from mpi_learn.data.configuration import DataConfiguration\n"
        "time.sleep(MPI.COMM_WORLD.rank)\n"
        "data = load(DataConfiguration(train='a.h5', features='X', labels='y'), MPI.COMM_SELF, 0)\n"
        "print(len(data.training), flush=True)\n"
    )
    for _ in range(3):
        done = mpirun(2, "-c", program, cwd=tmp_path, timeout=40)
        assert done.stdout.split() == ["5", "5"], done.stderr


def test_a_rank_that_ends_while_it_answers_blocks_no_other_rank(tmp_path):
    program = (
        "import time; from mpi4py import MPI; from mpi_learn.mpi import host_memory as shared_memory\n"
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


def test_a_process_that_user_code_forked_does_not_keep_the_memorys_address(tmp_path):
    program = (
        "import os, time; from mpi4py import MPI; from mpi_learn.mpi import host_memory as shared_memory\n"
        "take = lambda: shared_memory.shared_by_host(MPI.COMM_SELF, 'a', 5, lambda memory: memory.fill(1))\n"
        "memory = take()\n"
        "if (child := os.fork()) == 0:\n"
        "    del memory\n"  # it is not the child's to withdraw
        "    time.sleep(60)\n"
        "time.sleep(0.5)\n"
        "again = take()\n"
        "again[0] = 3\n"
        "print(memory[0], flush=True)\n"  # offered still: the same memory
        "del memory, again\n"
        "print(take()[0], flush=True)\n"
        "os.kill(child, 9)\n"
    )
    done = mpirun(1, "-c", program, cwd=tmp_path, timeout=20)
    assert done.stdout.split() == ["3", "1"], done.stderr


def test_no_rank_uses_rows_that_another_rank_of_the_host_cannot_reach(tmp_path):
    """Processes with network namespaces of their own do not find each other's sockets."""
    program = (
        "from mpi4py import MPI; from mpi_learn.mpi import host_memory\n"
        "found = [host_memory.rows_of_host(MPI.COMM_WORLD, 5)]\n"
        "if MPI.COMM_WORLD.rank == 1: host_memory._received = lambda address, n_bytes: None\n"
        "found.append(host_memory.rows_of_host(MPI.COMM_WORLD, 5))\n"
        "print(*map(len, found), flush=True)\n"
    )
    done = mpirun(2, "-c", program, cwd=tmp_path, timeout=40)
    assert done.stdout.splitlines() == ["2 0", "2 0"], done.stderr


def test_a_rank_that_cannot_open_more_files_reports_it(tmp_path):
    program = (
        "import os, resource; from mpi4py import MPI; from mpi_learn.mpi import host_memory as shared_memory\n"
        "take = lambda: shared_memory.shared_by_host(MPI.COMM_SELF, 'a', 5, lambda memory: memory.fill(1))\n"
        "if MPI.COMM_WORLD.rank == 0: memory = take()\n"
        "MPI.COMM_WORLD.Barrier()\n"
        "if MPI.COMM_WORLD.rank == 1:\n"
        "    last = os.open(os.devnull, 0)\n"
        "    limits = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, limits[1]))\n"  # enough to ask, not for an answer
        "    os.close(last)\n"
        "    try: take()\n"
        "    except OSError as error: print(error, flush=True)\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, limits)\n"
        "MPI.COMM_WORLD.Barrier()\n"
    )
    done = mpirun(2, "-c", program, cwd=tmp_path, timeout=20)
    assert "Too many open files" in done.stdout, done.stderr


def test_the_memory_goes_with_the_last_that_uses_it():
    assert all(seen["left"] < 0.2 for seen in sharing().values())
