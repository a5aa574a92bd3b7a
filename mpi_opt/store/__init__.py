"""The database: what was tried, where it ran and what came of it. Only rank 0 of a search writes; anyone may read."""

from mpi_opt.store.store import Store

__all__ = ["Store"]
