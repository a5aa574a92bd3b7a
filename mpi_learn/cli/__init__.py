"""The command line of ``mpi-learn``."""

from __future__ import annotations


def main(arguments: list[str] | None = None) -> None:
    """The console script. Imports Typer on first use, since other modules import this package without it."""
    from mpi_learn.cli import commands

    commands.main(arguments)


__all__ = ["main"]
