"""Starts real ``mpirun`` from plain pytest, with a time limit.

The abilities of this MPI are read from ``mpirun --version``, not from the code under test.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from mpi_learn.job.launch import launch_environment

_BESIDE = Path(sys.executable).with_name("mpirun")
MPIRUN = str(_BESIDE) if _BESIDE.exists() else shutil.which("mpirun") or "mpirun"
"""The ``mpirun`` of this environment, or the one on the path."""


def _open_mpi_version() -> int:
    """The major version of Open MPI; 0 for another MPI or none."""
    try:
        said = subprocess.run([MPIRUN, "--version"], capture_output=True, text=True, env=launch_environment()).stdout
    except FileNotFoundError:
        return 0
    found = re.search(r"Open MPI\) (\d+)", said)
    return int(found[1]) if found else 0


OPEN_MPI = _open_mpi_version()
SURVIVES_LOST_RANKS = OPEN_MPI >= 5
"""Whether this MPI has ULFM; tests of lost ranks skip without."""
UNPROTECTED = ["--oversubscribe"] if OPEN_MPI else []
PROTECTED = [*UNPROTECTED, *(["--with-ft", "ulfm"] if SURVIVES_LOST_RANKS else [])]
"""Flags for more ranks than cores, and protection against lost ranks where there is any."""


def patient_s(seconds: float) -> float:
    """A time limit that a test does not measure: `seconds` on a quiet machine, more on a busy one."""
    return seconds * max(2.0, 2.0 * os.getloadavg()[0] / (os.cpu_count() or 1))


def mpirun(
    n: int,
    *arguments: str,
    timeout: float = 120,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    mpirun_flags: list[str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs ``mpirun -np n python ARGUMENTS``; if it does not end in time, fails with its output.

    See `tests.world.in_world` for programs that do not need processes of their own: it takes a fraction of the time.
    """
    flags = PROTECTED if mpirun_flags is None else mpirun_flags
    return run([MPIRUN, *flags, "-np", str(n), sys.executable, *arguments], timeout=timeout, cwd=cwd, env=env)


def run(
    command: list[str], *, timeout: float = 120, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `command` in a process group of its own with the environment that ``mpirun`` needs as root.

    Args:
        timeout: Seconds that it may take on a quiet machine; see `patient_s`.
    """
    limit_s = patient_s(timeout)
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=launch_environment() | {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"} | (env or {}),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            out, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        raise AssertionError(f"{command} did not end within {limit_s:.0f} s\n{out}\n{err}") from None
    return subprocess.CompletedProcess(command, process.returncode, out, err)
