"""Datasets that stay in memory between trainings."""

from __future__ import annotations

from collections import OrderedDict

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.fingerprint import data_version
from mpi_learn.data.loading import load
from mpi_learn.data.memory_budget import host_memory_bytes
from mpi_learn.data.samples.dataset import Dataset
from mpi_learn.data.samples.in_memory import Samples
from mpi_learn.errors import DataError
from mpi_learn.mpi.agreement import result_of_rank
from mpi_learn.mpi.communicators import Communicator

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
