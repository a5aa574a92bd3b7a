"""Whether samples are held in memory or stay in their files."""

from __future__ import annotations

import os
from pathlib import Path

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.plan import Plan
from mpi_learn.errors import DataError

HELD_FRACTION = 0.5
"""Samples may take so much of a host's memory; frameworks, models and user code want the rest."""

GIGABYTE = 1e9
CGROUPS = Path("/sys/fs/cgroup")


def is_streamed(plan: Plan, configuration: DataConfiguration, host_bytes: int) -> bool:
    """Whether samples are to be read from their files while they are used.

    It goes by the whole memory, not by what is free now: the same training must make the same choice again, since the
    order of samples depends on it.

    Args:
        plan: Of the samples.
        configuration: What the user wants.
        host_bytes: The memory of the smallest host.

    Raises:
        DataError: They are to be streamed, or have to, but cannot.
    """
    if configuration.memory == "hold" or (
        configuration.memory == "auto" and plan.n_bytes <= HELD_FRACTION * host_bytes
    ):
        return False
    part = next((part for part in plan.parts if part.obstacle), None)
    if part is None:
        return True
    if configuration.memory == "auto" and plan.n_bytes <= host_bytes:
        return False
    if configuration.memory == "stream":
        raise DataError(
            f"this file cannot be read piece by piece while the training goes on: {part.obstacle}",
            where=f"data.memory: stream: {part.place}",
            cure="write memory: hold, or another kind of file",
        )
    raise DataError(
        f"all samples take {plan.n_bytes / GIGABYTE:.1f} GB, this host has {host_bytes / GIGABYTE:.1f} GB, and this "
        f"file cannot be read piece by piece: {part.obstacle}",
        where=f"data: {part.place}",
        cure="write the samples to HDF5, Parquet, ROOT or NPY files",
    )


def host_memory_bytes() -> int:
    """The memory of this host, or what the system allows this process and its like of it if that is less."""
    own = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([own, *_limits()])


def _limits() -> list[int]:
    """What control groups (Slurm, containers) allow, in bytes."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    files = [CGROUPS / "memory.max", CGROUPS / "memory" / "memory.limit_in_bytes"]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        folder = Path(path.lstrip("/"))
        for group in (folder, *folder.parents):
            if not controllers:
                files.append(CGROUPS / group / "memory.max")
            elif "memory" in controllers.split(","):
                files.append(CGROUPS / "memory" / group / "memory.limit_in_bytes")
    return [int(text) for file in files if (text := _content(file)).isdigit()]


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
