"""The command that a user has typed, for the records of a study."""

from __future__ import annotations

import os
import sys

import pytest

from mpi_learn.job import launch, started_by
from mpi_learn.job.exit_status import LaunchMode
from mpi_learn.job.started_by import LAUNCHERS
from mpi_learn.job.stop_request import StopRequest

FOUR = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}
SLURM = {"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "0"}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No launcher, and no command of another process."""
    for name in (started_by.COMMAND_VARIABLE, *(name for one in LAUNCHERS for name in (one.size, one.rank) if name)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(started_by, "_of_launch", "")


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (["/env/bin/python", "/env/bin/mpi-opt", "search", "jets.yaml"], {}, "mpi-opt search jets.yaml"),
        (["/env/bin/python", "/env/bin/mpi-opt", "search", "a b.yaml"], FOUR, "mpirun -np 4 mpi-opt search 'a b.yaml'"),
        (["python3", "-m", "mpi_opt", "search", "jets.yaml"], SLURM, "srun -n 3 python3 -m mpi_opt search jets.yaml"),
        (["/usr/bin/python", "scan.py", "--fast"], FOUR, "mpirun -np 4 python scan.py --fast"),
        (["python", "-c", "x" * 1000], {}, f"python -c {'x' * 490}…"),
        (["python"], {}, ""),
    ],
)
def test_command_is_that_of_a_shell(monkeypatch, arguments, environment, text):
    monkeypatch.setattr(sys, "orig_argv", arguments)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert started_by.typed_command() == text


def test_session_without_a_command_has_none(monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "ipykernel_launcher", "-f", "kernel.json"])
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    assert started_by.typed_command() == ""


def test_ranks_know_the_command_that_started_mpirun_and_their_children_do_not(monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "/bin/mpi-opt", "search", "jets.yaml", "-n", "5"])
    passed = {}
    monkeypatch.setattr(launch, "_run", lambda command, environment, *_, **__: passed.update(environment) or (0, ""))
    launch.launch(launch.Launch(["mpi_opt", "search", "jets.yaml"], 5), StopRequest())
    monkeypatch.setattr(os, "environ", {**os.environ, **passed, **FOUR})  # a rank
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "mpi_opt", "search", "jets.yaml"])
    LaunchMode.from_environment()
    assert started_by.COMMAND_VARIABLE not in os.environ
    assert started_by.typed_command() == "mpi-opt search jets.yaml -n 5"
