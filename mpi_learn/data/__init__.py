"""Samples: what the files hold, who trains on which of them, and in which order."""

from mpi_learn.data.configuration import DataConfiguration, Transform

__all__ = ["DataConfiguration", "Transform"]
