from __future__ import annotations

import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.slurm.cluster import SlurmCluster, missing, slurm_cluster, wait_until

OBJECTIVES = Path(__file__).with_name("objectives.py")
UNSET = ("PRTE_MCA_rmaps_default_mapping_policy", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
"""Set by other tests and by ``make``; on a cluster they are not, and the first one puts all ranks on one node."""

END = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE"}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory) -> Iterator[SlurmCluster]:
    """A Slurm of three nodes with eight processors each."""
    if why := missing():
        pytest.skip(f"no Slurm: {why}")
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@dataclass
class Job:
    """A batch job.

    Attributes:
        number: Its number in Slurm.
        output: Where Slurm writes what it prints.
    """

    cluster: SlurmCluster
    number: str
    output: Path

    def field(self, name: str) -> str:
        """A field of ``scontrol show job``, e.g. ``JobState``."""
        text = self.cluster.run("scontrol", "show", "job", self.number)
        return re.search(rf"\b{name}=(\S+)", text)[1]

    @property
    def text(self) -> str:
        """The output so far."""
        return self.output.read_text() if self.output.exists() else ""

    def wait(self, timeout_s: float = 90) -> tuple[str, int]:
        """Waits for the end of the job; returns its state and exit status."""
        # each query starts a process
        wait_until(lambda: self.field("JobState") in END, timeout_s, f"job {self.number} does not end", every_s=0.5)
        queue = ("squeue", "--noheader", "--format=%A")
        wait_until(lambda: self.number not in self.cluster.run(*queue), 60, "completing", every_s=0.3)
        return self.field("JobState"), int(self.field("ExitCode").split(":")[0])


class Study:
    """A folder with a ``space.yaml``, and jobs that search it."""

    def __init__(self, cluster: SlurmCluster, folder: Path, objective: str, trials: int, **sections: Any) -> None:
        self.cluster, self.folder = cluster, folder
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "study": "test",
            "store": "sqlite:///test.db",
            "objective": f"{OBJECTIVES}:{objective}",
            "space": {"x": {"type": "real", "low": 0.0, "high": 2.0}},
            "search": {"strategy": "random", "trials": trials, "seed": 3},
        }
        (folder / "space.yaml").write_text(yaml.safe_dump(content | sections))

    def submit(self, command: str, *options: str) -> Job:
        """Submits a batch script that runs `command`."""
        return self.submit_script(f"#!/bin/bash\n{FIRST}\n{command}\n", *options)

    def submit_script(self, script: str, *options: str) -> Job:
        """Submits a batch script."""
        (self.folder / "job.sh").write_text(script)
        output = self.folder / f"out-{len(list(self.folder.glob('out-*')))}.txt"
        printed = self.cluster.run(
            "sbatch", "--parsable", f"--output={output}", "--open-mode=append", *options, "job.sh",
            cwd=self.folder, env=ENVIRONMENT,
        )  # fmt: skip
        return Job(self.cluster, printed.strip(), output)

    def status(self, *arguments: str) -> int:
        """The exit status of a command of ``mpi-opt`` on the login node."""
        return self.cluster.completed("mpi-opt", *arguments, cwd=self.folder, env=ENVIRONMENT).returncode

    def query(self, sql: str) -> list[tuple]:
        """Rows of the store; none while there is no store."""
        try:
            connection = sqlite3.connect(f"file:{self.folder / 'test.db'}?mode=ro", uri=True, timeout=30)
            try:
                return connection.execute(sql).fetchall()
            finally:
                connection.close()
        except sqlite3.OperationalError:
            return []

    def await_complete(self, n: int, job: Job) -> None:
        """Waits until `n` trials are complete."""
        count = "SELECT count(*) FROM trials WHERE state = 'complete'"
        wait_until(lambda: self.query(count) >= [(n,)], 60, f"no {n} complete trials: {job.text}")


ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in UNSET} | {
    "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONPATH": str(Path(__file__).parents[2]),
    "PRTE_MCA_hwloc_default_binding_policy": "none",  # Slurm's processors are more than the machine has
    "OMP_NUM_THREADS": "1",
}
"""Of the jobs."""

FIRST = "echo -10 2>/dev/null > /proc/self/autogroup || true"
"""Gives a job priority over other tests. Linux divides processors among sessions, and a job is a session of its own, so
that the priority of the node's processes does not apply."""


@pytest.fixture
def study(cluster, request) -> Callable[..., Study]:
    """Makes a study in a folder of the test, which all nodes see."""
    folder = cluster.folder / re.sub(r"\W+", "-", request.node.name)
    return lambda objective, trials, **sections: Study(cluster, folder, objective, trials, **sections)
