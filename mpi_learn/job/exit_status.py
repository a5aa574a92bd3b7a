"""Exit statuses of ``mpi-learn`` and ``mpi-opt``, and how they pass through ``mpirun``."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path

from mpi_learn.job import started_by

FINISHED = 0
FAILED = 1
INVALID = 2
UNFINISHED = 75
"""Ended early, in a consistent state: a time limit, SIGTERM, SIGUSR1 or a lost node. The same command continues.

The value is ``EX_TEMPFAIL`` of ``sysexits.h``.
"""
INTERRUPTED = 130
"""Interrupted by the user. The same command continues."""

CONFIRMED = 100
"""The status of rank 0 instead of `FINISHED` under `LaunchMode.CONFIRMED`."""

LOST = 101
"""The status of rank 0 of a job with restarts after a temporary error: a restart may help."""

ELSEWHERE = {FAILED: 102, UNFINISHED: 103}
"""The statuses of rank 0 on another host than `launch`, which cannot read them from `STATUS_FILE`: ``mpirun`` returns
the plain numbers for the loss of a rank, too."""

VARIABLE = "MPI_LEARN_LAUNCH"
"""The environment variable that holds the `LaunchMode`."""
STATUS_FILE = "MPI_LEARN_STATUS_FILE"
"""The environment variable that holds the path of the file to which rank 0 writes its status."""


class LaunchMode(StrEnum):
    """How this process was started, which determines the meaning of its signals and its status.

    ``mpirun --with-ft ulfm`` returns 0 also if one of its daemons or all ranks were killed. Where `launch` starts it,
    rank 0 confirms with `CONFIRMED` that it has finished. Rank 0 also writes its status to `STATUS_FILE`, because
    ``mpirun`` may lose the status of a rank, or fail itself while the ranks end.
    """

    DIRECT = "direct"
    """By the user, a batch script or ``mpirun``."""
    SHIELDED = "shielded"
    """By `mpi_learn.job.launch.launch`, which forwards requests to end as SIGUSR1."""
    CONFIRMED = "confirmed"
    """As `SHIELDED`, and rank 0 confirms."""

    @classmethod
    def from_environment(cls) -> LaunchMode:
        """Reads and removes the environment variables that `launch` sets: child processes must not inherit them."""
        started_by.take_from_environment()
        return cls(os.environ.pop(VARIABLE, cls.DIRECT))

    def report(self, status: int, rank: int) -> int:
        """Reports the end of this process to `launch`: returns its exit status; rank 0 also writes `STATUS_FILE`."""
        if rank == 0 and self is not LaunchMode.DIRECT and STATUS_FILE in os.environ:
            # `launch` has created the file; if it does not exist, this is another host
            try:
                with Path(os.environ[STATUS_FILE]).open("r+") as file:
                    file.write(str(status))
            except OSError:
                status = ELSEWHERE.get(status, status)
        return CONFIRMED if self is LaunchMode.CONFIRMED and rank == 0 and status == FINISHED else status
