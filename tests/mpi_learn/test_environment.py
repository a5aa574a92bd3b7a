"""The threads and the GPU of a rank, determined before its framework is loaded."""

from __future__ import annotations

import json
import os
import platform
import pwd
import subprocess
import sys
import tempfile

import pytest

from mpi_learn.environment import gpu_of, n_cores, n_job_cores, n_threads_of, with_home
from mpi_learn.job.launch import launch_environment
from tests.optional_packages import needs

FOUR_RANKS = {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}


SLURM = {"SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_PROCID": "5"}


@pytest.mark.parametrize(
    ("environment", "cores", "job_cores", "expected"),
    [
        ({}, 8, 8, 8),
        (FOUR_RANKS, 8, 8, 2),
        (FOUR_RANKS, 2, 2, 1),
        (FOUR_RANKS | {"OMP_NUM_THREADS": "3"}, 8, 8, 3),
        ({"SLURM_NTASKS_PER_NODE": "2"}, 8, 8, 4),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x2),3"}, 8, 8, 2),
        (SLURM, 8, 32, 8),  # bound by Slurm to eight cores each
        (SLURM | {"SLURM_CPUS_PER_TASK": "8"}, 8, 32, 8),
        (SLURM | {"SLURM_CPUS_PER_TASK": "8"}, 8, 8, 8),  # as far as this rank sees, the host has no more
        (SLURM | {"SLURM_CPUS_PER_TASK": "8"}, 64, 64, 8),  # not bound, but asked for
        (SLURM | {"SLURM_CPUS_PER_TASK": "8"}, 1, 64, 1),  # the step has fewer cores than its job's script asked for
        (FOUR_RANKS | {"SLURM_CPUS_PER_TASK": "16"}, 16, 16, 4),  # one task of Slurm, in which mpirun starts ranks
        (FOUR_RANKS, 1, 16, 1),  # bound by mpirun to a core each
        (FOUR_RANKS, 8, 16, 4),  # bound by mpirun to a processor of eight cores, two ranks each
        ({}, 1, 16, 1),  # started alone, by hand, on one core
    ],
    ids=str,
)
def test_ranks_share_the_cores_of_their_host_unless_they_are_bound_or_the_user_sets_threads(
    environment, cores, job_cores, expected
):
    assert n_threads_of(environment, cores, job_cores) == expected


def test_the_cores_of_the_job_are_those_of_slurm_or_of_the_launcher():
    assert n_job_cores({"SLURM_CPUS_ON_NODE": "48"}) == 48
    bound = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "from mpi_learn.environment import n_cores, n_job_cores; print(n_cores(), n_job_cores({}))"
    )
    done = subprocess.run([sys.executable, "-c", bound], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", str(n_cores())]


@pytest.mark.parametrize(
    ("environment", "n_gpus", "expected"),
    [
        ({}, 4, None),
        (FOUR_RANKS, 0, None),
        (FOUR_RANKS, 1, None),
        (FOUR_RANKS | {"OMPI_COMM_WORLD_LOCAL_RANK": "3"}, 4, "3"),
        (FOUR_RANKS | {"OMPI_COMM_WORLD_LOCAL_RANK": "3"}, 2, "1"),
        (FOUR_RANKS | {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,6"}, 8, "6"),
        (FOUR_RANKS | {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "5"}, 8, None),
        (FOUR_RANKS | {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": ""}, 8, None),
    ],
    ids=str,
)
def test_ranks_of_a_host_go_round_its_gpus_or_those_that_the_job_was_given(environment, n_gpus, expected):
    assert gpu_of(environment, n_gpus) == expected


@needs("keras")
def test_both_are_set_before_the_framework_is_loaded(tmp_path):
    """An import hook that precedes all others records the environment in which TensorFlow would be imported."""
    (tmp_path / "host").mkdir()
    for number in range(2):
        (tmp_path / "host" / f"gpu{number}").touch()
    program = f"""
import json, os, sys, pathlib
import mpi_learn.environment
mpi_learn.environment.GPUS = pathlib.Path({str(tmp_path / "host")!r})
class Noting:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            print(json.dumps({{key: os.environ.get(key) for key in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")}}))
            sys.stdout.flush()
            os._exit(0)
sys.meta_path.insert(0, Noting())
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.models.settings import ModelSettings
from mpi_learn.models.settings import Example
make_model(ModelSettings(ModelConfiguration(model="model.keras", loss="mse")), Example((), ()))
"""
    ours = {"OMPI_COMM_WORLD_LOCAL_SIZE": "512", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    known = {key: value for key, value in os.environ.items() if "THREADS" not in key and "CUDA" not in key}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, env=known | ours
    )
    assert json.loads(done.stdout) == {"CUDA_VISIBLE_DEVICES": "1", "OMP_NUM_THREADS": "1"}, done.stderr


PAGE_FAULTS = """
import ctypes, resource, sys
from mpi_learn.environment import reuse_freed_memory

library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes, library.memset.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        memory = library.malloc(40 * 2**20)
        library.memset(memory, 1, 40 * 2**20)
        library.free(memory)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

default = page_faults()
reuse_freed_memory()
page_faults()
print(default, page_faults())
"""


with_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="Linux says: not the GNU C library")


@with_glibc
def test_freed_memory_is_used_again_without_page_faults():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    default, reused = map(int, subprocess.check_output([sys.executable, "-c", PAGE_FAULTS], env=environment).split())
    assert default > 3 * 40 * 2**20 / 4096 / 2
    assert reused < 100


@with_glibc
def test_users_own_settings_of_memory_are_kept():
    kept = os.environ | {"MALLOC_TRIM_THRESHOLD_": "131072"}
    default, again = map(int, subprocess.check_output([sys.executable, "-c", PAGE_FAULTS], env=kept).split())
    assert again > default / 2


def test_home_that_cron_leaves_out_is_that_of_the_password_database(monkeypatch):
    assert with_home({"HOME": "/data/me", "X": "1"}) == {"HOME": "/data/me", "X": "1"}
    assert with_home({"X": "1"}) == {"X": "1", "HOME": pwd.getpwuid(os.getuid()).pw_dir}
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_123)  # a container without an entry for its user
    assert with_home({}) == {"HOME": tempfile.gettempdir()}


def test_mpi_starts_without_a_home(tmp_path, monkeypatch):
    monkeypatch.delenv("HOME")
    assert "HOME" in launch_environment()
    program = "from mpi_learn.mpi.library import MPI; print(MPI.COMM_WORLD.size)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
