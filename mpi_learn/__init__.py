"""MPI Learn: trains one model on all ranks of one MPI communicator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi_learn.job import exit_status  # noqa: F401 - registers its exit handler before those of user code

if TYPE_CHECKING:
    from mpi_learn.training.configuration import read_configuration
    from mpi_learn.training.result import Result, load_saved_model
    from mpi_learn.training.train import rehearse, train

__version__ = "0.1.0"

__all__ = ["Result", "__version__", "load_saved_model", "read_configuration", "rehearse", "train"]

_HOMES = {
    "Result": "training.result",
    "load_saved_model": "training.result",
    "read_configuration": "training.configuration",
    "rehearse": "training.train",
    "train": "training.train",
}


def __getattr__(name: str) -> Any:
    """Imports public names on first use: reading a configuration needs neither MPI nor NumPy."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module

    return getattr(import_module(f"mpi_learn.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
