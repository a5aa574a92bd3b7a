"""The command line of ``mpi-learn``."""

from __future__ import annotations


def main(arguments: list[str] | None = None) -> None:
    """The console script; see `mpi_learn.cli.commands.main`. Other rooms import this package, but not typer."""
    from mpi_learn.cli import commands

    commands.main(arguments)


__all__ = ["main"]
