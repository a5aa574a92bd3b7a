"""The command line of ``mpi-opt``: one file per group of commands."""

from mpi_opt.cli.main import main

__all__ = ["main"]
