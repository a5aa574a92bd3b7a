"""The database of studies: trials, attempts and outcomes. Only rank 0 of a search writes; any process may read."""

from mpi_opt.store.store import Store

__all__ = ["Store"]
