"""Starts real ``mpirun`` from plain pytest, with a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from mpi_learn.cli.launch import find_mpirun, launch_environment, launch_flags


def mpirun(
    n: int,
    *arguments: str,
    timeout: float = 120,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    mpirun_flags: list[str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs ``mpirun -np n python ARGUMENTS``; on time-out ends its process group and fails with what was printed."""
    executable = find_mpirun()
    flags = launch_flags(executable) if mpirun_flags is None else mpirun_flags
    command = [executable, *flags, "-np", str(n), sys.executable, *arguments]
    return run(command, timeout=timeout, cwd=cwd, env=env)


def run(
    command: list[str], *, timeout: float = 120, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `command` in a process group of its own with the environment that ``mpirun`` needs as root."""
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
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            out, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        raise AssertionError(f"{command} did not end within {timeout} s\n{out}\n{err}") from None
    return subprocess.CompletedProcess(command, process.returncode, out, err)
