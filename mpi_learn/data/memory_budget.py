"""Whether samples are held in memory or stay in their files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.data_plan import DataPlan
from mpi_learn.data.samples.streamed import LEAST_PIECES_PER_WINDOW, window_samples
from mpi_learn.errors import DataError

HELD_FRACTION = 0.5
"""The fraction of a host's memory for samples; frameworks, models and user code need the rest."""

WINDOWS_PER_WORKER = 2
"""The window in use, and the one that is read ahead."""

GIGABYTE = 1e9
CGROUPS = Path("/sys/fs/cgroup")


def are_streamed(plans: Sequence[DataPlan], configuration: DataConfiguration, host_bytes: int) -> list[bool]:
    """Whether the samples of each plan are read from their files during the training.

    The plans share the memory for samples, in their order. The decision depends on the total memory rather than the
    free memory: a repeated training must make the same decision, because the order of samples depends on it.

    Args:
        plans: Training, and validation if it has its own files.
        host_bytes: The memory of the smallest host.

    Raises:
        DataError: Streaming is requested or necessary, but a file does not support it.
    """
    streamed: list[bool] = []
    held_bytes = 0
    for plan in plans:
        streamed.append(_is_streamed(plan, configuration, host_bytes, held_bytes + plan.n_bytes))
        held_bytes += 0 if streamed[-1] else plan.n_bytes
    return streamed


def _is_streamed(plan: DataPlan, configuration: DataConfiguration, host_bytes: int, n_bytes: int) -> bool:
    """Whether the samples of a plan are streamed; if they were held, all held samples would take `n_bytes`."""
    if configuration.memory == "hold" or (configuration.memory == "auto" and n_bytes <= HELD_FRACTION * host_bytes):
        return False
    part = next((part for part in plan.parts if part.why_not_streamable), None)
    if part is None:
        return True
    if configuration.memory == "auto" and n_bytes <= host_bytes:
        return False
    if configuration.memory == "stream":
        raise DataError(
            f"this file cannot be read in pieces during the training: {part.why_not_streamable}",
            where=f"data.memory: stream: {part.place}",
            cure=f"{part.cure}, or write memory: hold",
        )
    raise DataError(
        f"all samples take {n_bytes / GIGABYTE:.1f} GB, this host has {host_bytes / GIGABYTE:.1f} GB, and this "
        f"file cannot be read in pieces: {part.why_not_streamable}",
        where=f"data: {part.place}",
        cure=part.cure,
    )


def check_windows(plans: Sequence[DataPlan], configuration: DataConfiguration, rank_bytes: int, n_ranks: int) -> None:
    """Raises `DataError` unless the windows of streamed samples fit into the memory of every host.

    Masters, which have no windows, are counted as workers. Other blocks of a search on the same host are not counted.

    Args:
        plans: Those that are streamed.
        rank_bytes: The memory of a host divided by the number of its ranks, in bytes; the smallest of all hosts.
        n_ranks: The number of ranks, which share the samples.
    """
    sizes = []
    for plan in [*plans, *(plans if configuration.validation_fraction is not None else [])]:  # windows of their own
        n_samples = min(window_samples(plan, configuration.window_bytes), -(-plan.n_samples // n_ranks))
        sizes.append(WINDOWS_PER_WORKER * n_samples * plan.sample_bytes)
    if sum(sizes) <= rank_bytes:
        return
    problem = (
        f"the windows of streamed samples take {sum(sizes) / GIGABYTE:.1f} GB on each rank, and this host has "
        f"{rank_bytes / GIGABYTE:.1f} GB for each rank"
    )
    plan = plans[int(np.argmax(sizes[: len(plans)]))]
    part = max(plan.parts, key=lambda part: part.n_together)
    if LEAST_PIECES_PER_WINDOW * part.n_together * plan.sample_bytes <= configuration.window_bytes:
        cure = "write a smaller number, or use fewer ranks per host"
        raise DataError(problem, where=f"data.window_bytes: {configuration.window_bytes}", cure=cure)
    raise DataError(
        f"{problem}: the file stores {part.n_together} samples as one piece",
        where=f"data: {part.place}",
        cure="write the file with smaller row groups or chunks, or use fewer ranks per host",
    )


def host_memory_bytes() -> int:
    """The memory of this host in bytes, or the limit of this process's control groups if it is lower."""
    own = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([own, *_limits()])


def _limits() -> list[int]:
    """The memory limits of control groups (Slurm, containers), in bytes."""
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
