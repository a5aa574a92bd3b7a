"""The database of studies: trials, attempts and outcomes. Rank 0 of a search, `ask` and `tell` write."""

from mpi_opt.store.store import Store

__all__ = ["Store"]
