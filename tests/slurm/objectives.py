"""Objectives for searches under Slurm: cheap, with given durations."""

from __future__ import annotations

import time
from pathlib import Path

from mpi4py import MPI


def steady(trial) -> float:
    """(x - 1)² after a fifth of a second."""
    time.sleep(0.2)
    return trial.comm.allreduce((trial.parameters["x"] - 1) ** 2, op=MPI.MAX)


def quick(trial) -> float:
    """(x - 1)² at once, after a collective of the block."""
    return trial.comm.allreduce((trial.parameters["x"] - 1) ** 2, op=MPI.MAX)


def patient(trial) -> float:
    """x; trial 2 takes hours as long as the file ``patient`` exists."""
    while trial.number == 2 and Path("patient").exists():
        time.sleep(0.1)
    return trial.parameters["x"]
