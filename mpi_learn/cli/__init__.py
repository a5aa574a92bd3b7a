"""The command line of ``mpi-learn``."""

from mpi_learn.cli.commands import main

__all__ = ["main"]
