"""The use of processor and memory by this process, and over all ranks."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np

MEGABYTE = 2**20


class Monitor:
    """Measures this process between two calls of `take`."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def take(self) -> dict[str, float]:
        """Mean use of the processor since the last call, in percent of one core; memory now and its maximum, in MB."""
        wall, cpu = time.perf_counter(), time.process_time()
        used = 100 * (cpu - self._cpu) / max(wall - self._wall, 1e-9)
        self._wall, self._cpu = wall, cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"cpu_percent": used, "memory_mb": resident_bytes() / MEGABYTE, "peak_memory_mb": peak} | gpu_memory()


def resident_bytes() -> int:
    """Resident memory of this process."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def gpu_memory() -> dict[str, float]:
    """Used memory of the GPUs of a loaded framework, in MB; empty without a GPU."""
    if "torch" in sys.modules and (cuda := sys.modules["torch"].cuda).is_available():
        return {"gpu_memory_mb": float(cuda.memory_allocated()) / MEGABYTE}
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not tensorflow.config.list_logical_devices("GPU"):
        return {}
    return {"gpu_memory_mb": tensorflow.config.experimental.get_memory_info("GPU:0")["current"] / MEGABYTE}


def combined(usages: list[dict[str, float]]) -> dict[str, float]:
    """The mean processor use of several ranks, and the sum of their memory."""
    names = dict.fromkeys(name for usage in usages for name in usage)
    columns = {name: [usage[name] for usage in usages if name in usage] for name in names}
    return {
        name: float(np.mean(values) if name == "cpu_percent" else np.sum(values)) for name, values in columns.items()
    }
