"""Turns: several measured programs stand ready at once, and one epoch of one of them runs at a time.

What a shared machine does to one of them in a minute it does to all, so that their ratios hold. Each is a process group
of its own under ``mpirun``; rank 0 says "ready" and waits for a line on its standard input before every epoch, the
others sleep until it passes the word on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from mpi4py import MPI

from mpi_learn.cli.launch import find_mpirun, launch_environment, launch_flags
from mpi_learn.mpi.messaging import handed_out

HERE = Path(__file__).parent
READY = "ready"


def may_go_on() -> bool:
    """On every rank of a measured program, before each epoch but the first: waits for its turn; False: it is over."""
    word = None
    if MPI.COMM_WORLD.rank == 0:
        print(READY, flush=True)
        word = sys.stdin.readline().strip()
    return handed_out(MPI.COMM_WORLD, word) == "go"


class Program:
    """A measured program, as its driver sees it.

    Args:
        arguments: Of ``one.py``.
        ranks: How many.
        environment: More variables.
    """

    def __init__(self, arguments: list[str], ranks: int, environment: dict[str, str]) -> None:
        mpirun = find_mpirun()
        command = [mpirun, *launch_flags(mpirun), "-np", str(ranks), sys.executable, str(HERE / "one.py"), *arguments]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env=launch_environment() | environment,
        )  # fmt: skip

    def wait_ready(self) -> None:
        """Until its epoch has ended."""
        for line in self._process.stdout:
            if line.strip() == READY:
                return
        self._errors.seek(0)
        raise SystemExit(self._errors.read())

    def run_epoch(self) -> None:
        """Its turn."""
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self.wait_ready()

    def end(self) -> dict:
        """Ends it; what it has measured."""
        self._process.stdin.write("end\n")  # mpirun does not pass on that its input is closed
        self._process.stdin.flush()
        lines = self._process.stdout.readlines()
        self._process.wait(timeout=60)
        return json.loads(lines[-1])

    def stop(self) -> None:
        """Whatever it is doing."""
        self._process.terminate()
