"""Known data sets by name, written as HDF5 files that a ``training.yaml`` can read."""

from mpi_learn.known_data.preparation import DATA_SETS, find_data_set, prepare

__all__ = ["DATA_SETS", "find_data_set", "prepare"]
