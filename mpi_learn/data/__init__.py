"""Samples: what the files hold, who trains on which of them, and in which order."""

from mpi_learn.data.batches import Batch, Batches, validation_batches
from mpi_learn.data.configuration import DataConfiguration, Transform
from mpi_learn.data.inspection import DataSummary, inspect
from mpi_learn.data.loading import load
from mpi_learn.data.samples import Dataset, Samples, shares

__all__ = [
    "Batch",
    "Batches",
    "DataConfiguration",
    "DataSummary",
    "Dataset",
    "Samples",
    "Transform",
    "inspect",
    "load",
    "shares",
    "validation_batches",
]
