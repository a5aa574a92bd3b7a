"""What a rank finds in its environment before its framework is loaded: its threads and its GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from mpi_learn.environment import gpu_of, n_threads_of

FOUR_RANKS = {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}


@pytest.mark.parametrize(
    ("environment", "cores", "expected"),
    [
        ({}, 8, 8),
        (FOUR_RANKS, 8, 2),
        (FOUR_RANKS, 2, 1),
        (FOUR_RANKS | {"OMP_NUM_THREADS": "3"}, 8, 3),
        ({"SLURM_NTASKS_PER_NODE": "2"}, 8, 4),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x2),3"}, 8, 2),
    ],
    ids=str,
)
def test_ranks_of_a_host_share_its_cores_unless_the_user_says_otherwise(environment, cores, expected):
    assert n_threads_of(environment, cores) == expected


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


def test_both_are_set_before_the_framework_is_loaded(tmp_path):
    """A finder that stands before all others notes what an import of TensorFlow would have met."""
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
from mpi_learn.models.build import make_model
make_model("model.keras", {{}}, "mse", [], (), (), seed=0, stream=0)
"""
    ours = {"OMPI_COMM_WORLD_LOCAL_SIZE": "512", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    known = {key: value for key, value in os.environ.items() if "THREADS" not in key and "CUDA" not in key}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, env=known | ours
    )
    assert json.loads(done.stdout) == {"CUDA_VISIBLE_DEVICES": "1", "OMP_NUM_THREADS": "1"}, done.stderr
