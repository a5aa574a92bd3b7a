"""Samples: their files, their distribution over workers, and their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.plan import count_samples
from mpi_learn.data.samples.batches import Batch, Batches, BatchOptions, Dealer
from mpi_learn.data.samples.dataset import Dataset, shares
from mpi_learn.data.samples.in_memory import Samples
from mpi_learn.data.samples.make_batches import make_batches, validation_batches

if TYPE_CHECKING:
    from mpi_learn.data.loading import load

__all__ = [
    "Batch",
    "BatchOptions",
    "Batches",
    "DataConfiguration",
    "Dataset",
    "Dealer",
    "Samples",
    "count_samples",
    "load",
    "make_batches",
    "shares",
    "validation_batches",
]


def __getattr__(name: str) -> Any:
    """Imports `load` on first use, since everything else works without MPI."""
    if name != "load":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from mpi_learn.data.loading import load

    return load
