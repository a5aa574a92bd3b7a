"""Time limits for loaded machines: seconds of an otherwise idle reference machine."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

LOOP = "sum(i * i for i in range(10**7))"
LOOP_S = 0.42
"""Seconds of CPU that `LOOP` takes in a new process on the reference machine (AMD EPYC, Python 3.11)."""


def cpu_s(command: list[str], cwd: Path | None = None) -> float:
    """Seconds of CPU that a process and its children take."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=cwd, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def slowness() -> float:
    """How many times slower this machine is at this moment than the reference machine; 1 if it is faster.

    Processes that share a core's caches and arithmetic units take more seconds of CPU for the same work.
    """
    return max(1.0, cpu_s([sys.executable, "-c", LOOP]) / LOOP_S)


def reference_s(command: list[str], cwd: Path | None = None) -> float:
    """Seconds of CPU that a process would take on the reference machine: the shortest of two runs."""
    return min(cpu_s(command, cwd) / slowness() for _ in range(2))


def reference_s_of(action: Callable[[], object]) -> float:
    """Seconds of CPU that `action`, in this process, would take on the reference machine."""
    before = slowness()
    began = time.process_time()
    action()
    return (time.process_time() - began) / max(before, slowness())
