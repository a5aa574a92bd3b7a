"""Loads samples into the memory of each host, or leaves them in files; and keeps datasets for later trials."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import accumulate, compress
from pathlib import Path

import numpy as np

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.copying import copy_samples
from mpi_learn.data.files.data_plan import DataPlan, OpenSource, make_plans, n_validation, opening, readers
from mpi_learn.data.files.fingerprint import data_version, digest, versions
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import (
    LEAST_PIECES_PER_WINDOW,
    Samples,
    StreamedSamples,
    samples_of,
    window_samples,
)
from mpi_learn.errors import DataError
from mpi_learn.flat_layout import ALIGNMENT_BYTES
from mpi_learn.mpi.communicators import Communicator, agreed_errors, host_name, result_of_rank
from mpi_learn.mpi.host_memory import shared_by_host


def load(configuration: DataConfiguration, comm: Communicator, seed: int) -> Dataset:
    """All samples of a configuration. Collective over `comm`.

    The samples are held in memory that the ranks of a host share, or stay in their files (`are_streamed`). Arrays are
    held in the dtype for models, or in their stored dtype if it is smaller, and are then converted batch by batch.

    Args:
        configuration: Paths are absolute or relative to the current directory.
        seed: Seed of the random selection by ``validation_fraction`` without a ``validation_seed``; the same on all
            ranks.

    Raises:
        DataError: A file cannot be read or does not match the configuration. The same on every rank.
    """
    with opening(configuration) as opened:
        plans = [plan for plan in result_of_rank(comm, lambda: make_plans(configuration, opened)) if plan is not None]
        hosts = comm.allgather((host_name(), host_memory_bytes()))  # all ranks decide the same, errors included
        streamed = are_streamed(plans, configuration, min(n_bytes for _, n_bytes in hosts))
        n_ranks = Counter(name for name, _ in hosts)
        rank_bytes = min(n_bytes // n_ranks[name] for name, n_bytes in hosts)
        check_windows(list(compress(plans, streamed)), configuration, rank_bytes, comm.size)
        training, *validation = [
            StreamedSamples(plan, configuration) if is_streamed else _in_memory(plan, configuration, comm, opened)
            for plan, is_streamed in zip(plans, streamed, strict=True)
        ]
    if validation:
        return Dataset(training, validation[0])
    if configuration.validation_fraction is not None:
        chosen = seed if configuration.validation_seed is None else configuration.validation_seed
        return Dataset(training, training, *split(len(training), configuration.validation_fraction, chosen))
    return Dataset(training, training, None, np.arange(0))


def split(n: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Splits `n` samples at random for training and validation.

    Returns:
        Two arrays of indices in ascending order, which together contain each of 0, …, n - 1 once.

    Raises:
        DataError: No sample is left for training or for validation.
    """
    order = np.random.default_rng([seed, n]).permutation(n)
    count = n_validation(n, fraction)
    return np.sort(order[count:]), np.sort(order[:count])


def _in_memory(plan: DataPlan, configuration: DataConfiguration, comm: Communicator, opened: OpenSource) -> Samples:
    """The samples of a plan in memory, once for each host. Collective over `comm`."""
    kinds = plan.kinds
    sizes = [plan.n_samples * kind.memory_bytes for kind in kinds]
    starts = [0, *accumulate(-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in sizes)]

    def samples(memory: np.ndarray) -> Samples:
        arrays = [
            memory[start : start + size].view(kind.memory_dtype).reshape(plan.n_samples, *kind.shape)
            for start, size, kind in zip(starts, sizes, kinds, strict=False)
        ]
        return samples_of(plan, arrays)

    wanted = configuration.model_dump_json(include={"features", "labels", "weights", "dtype"})
    places = [part.place for part in plan.parts]
    name = result_of_rank(comm, lambda: digest(plan, wanted, *versions(places, configuration)))
    with agreed_errors(comm):
        memory = shared_by_host(
            comm, name, starts[-1], lambda memory: _fill(samples(memory), plan, configuration, opened)
        )
    return samples(memory)


def _fill(samples: Samples, plan: DataPlan, configuration: DataConfiguration, opened: OpenSource) -> None:
    first = 0
    for part in plan.parts:
        here = samples.part(slice(first, first + part.n_samples))
        groups = here.x, here.y, here.weights
        for reader, arrays in zip(readers(opened(part.place), configuration, plan.requests), groups, strict=True):
            copy_samples(reader, arrays, 0, part.n_samples)
        first += part.n_samples


N_DATASETS = 4
"""The largest number of cached datasets."""
MEMORY_FRACTION = 0.25
"""The fraction of a host's memory for cached datasets while another one is loaded."""


class DatasetCache:
    """The last few datasets of one rank, for consecutive trainings."""

    def __init__(self) -> None:
        self._datasets: OrderedDict[str, Dataset] = OrderedDict()
        self._versions: dict[str, str] = {}

    def load(self, configuration: DataConfiguration, comm: Communicator, seed: int) -> Dataset:
        """Like `mpi_learn.data.loading.load`, but returns the same object while configuration and files do not change.

        Collective over `comm`. Its ranks may have loaded different datasets before.

        Raises:
            DataError: The same on every rank.
        """
        key = result_of_rank(comm, lambda: f"{self._version(configuration)} {seed}")
        if all(comm.allgather(key in self._datasets)):
            self._datasets.move_to_end(key)
            return self._datasets[key]
        self._datasets.pop(key, None)  # loading is collective: a rank that has it loads it again with the others
        while self._datasets and (
            len(self._datasets) >= N_DATASETS or self._n_bytes() > MEMORY_FRACTION * host_memory_bytes()
        ):
            self._datasets.popitem(last=False)
        self._datasets[key] = load(configuration, comm, seed)
        return self._datasets[key]

    def _version(self, configuration: DataConfiguration) -> str:
        """The version of the current files, or the last known version if they were removed after reading."""
        key = configuration.model_dump_json()
        try:
            self._versions[key] = data_version(configuration)
        except DataError:
            if key not in self._versions:
                raise
        return self._versions[key]

    def _n_bytes(self) -> int:
        arrays = {
            id(array): array.nbytes
            for dataset in self._datasets.values()
            for samples in (dataset.training, dataset.validation)
            if isinstance(samples, Samples)
            for array in samples.arrays
        }
        return sum(arrays.values())


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
