"""Several programs are started together and then take turns: one trains an epoch while the others wait.

Other load on the machine affects all of them alike, so that the ratios of their speeds are reliable. Each program has
its own ``mpirun``. Before every epoch rank 0 prints "ready" and waits for a line on its standard input; the other ranks
sleep until rank 0 sends them that line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from mpi4py import MPI

from mpi_learn.job.launch import find_mpirun, launch_environment, launch_flags
from mpi_learn.mpi.messaging import broadcast_sleeping

HERE = Path(__file__).parent
READY = "ready"


def may_go_on() -> bool:
    """Waits for the next turn before each epoch but the first, on every rank; returns False after the last turn."""
    word = None
    if MPI.COMM_WORLD.rank == 0:
        print(READY, flush=True)
        word = sys.stdin.readline().strip()
    return broadcast_sleeping(MPI.COMM_WORLD, word) == "go"


class Program:
    """A measured program, started and controlled by the driver.

    Args:
        arguments: The arguments of ``one.py``.
        ranks: The number of ranks.
        environment: Further environment variables.
        folder: The folder of ``one.py``. The folder of another checkout measures another version.
    """

    def __init__(self, arguments: list[str], ranks: int, environment: dict[str, str], folder: Path = HERE) -> None:
        mpirun = find_mpirun()
        command = [mpirun, *launch_flags(mpirun), "-np", str(ranks), sys.executable, str(folder / "one.py"), *arguments]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env=launch_environment() | environment,
        )  # fmt: skip

    def wait_ready(self) -> None:
        """Waits until the program has ended its epoch and is ready for the next."""
        for line in self._process.stdout:
            if line.strip() == READY:
                return
        self._errors.seek(0)
        raise SystemExit(self._errors.read())

    def run_epoch(self) -> None:
        """Lets the program train one epoch."""
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self.wait_ready()

    def end(self) -> dict:
        """Ends the program; returns its measurements."""
        self._process.stdin.write("end\n")  # mpirun does not forward the end of its standard input
        self._process.stdin.flush()
        lines = self._process.stdout.readlines()
        self._process.wait(timeout=60)
        return json.loads(lines[-1])

    def stop(self) -> None:
        """Kills the program in any state."""
        self._process.terminate()
