"""Loads the samples of a configuration into memory, once per host, or leaves them in their files."""

from __future__ import annotations

from collections import Counter, OrderedDict
from itertools import accumulate, compress

import numpy as np

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.copying import copy_samples
from mpi_learn.data.files.data_plan import DataPlan, OpenSource, make_plans, n_validation, opening, readers
from mpi_learn.data.files.fingerprint import data_version, digest, versions
from mpi_learn.data.memory_budget import are_streamed, check_windows, host_memory_bytes
from mpi_learn.data.samples.dataset import Dataset
from mpi_learn.data.samples.in_memory import Samples, samples_of
from mpi_learn.data.samples.streamed import StreamedSamples
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
        self._datasets.pop(key, None)
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
