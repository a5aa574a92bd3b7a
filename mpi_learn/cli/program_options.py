"""The options of both programs before a command: ``--version`` and ``--debug``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mpi_learn import __version__
from mpi_learn.cli.debug_option import DEBUG


def _print_version(context: typer.Context, is_wanted: bool) -> None:
    if is_wanted:
        print(f"{context.find_root().info_name} {__version__}")
        raise typer.Exit


def program_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show tracebacks. Allowed before or after the command.")] = False,
) -> None:
    """The callback of both applications.

    ``--version`` ends the program. ``--debug`` may also follow the command: the programs remove it from the arguments
    before Typer parses them, and it is declared here for ``--help``.
    """


RestartsOption = Annotated[
    int | None,
    typer.Option(min=0, help="With -n: start the job again, at most R times, if a host or process was lost."),
]

HostfileOption = Annotated[
    Path | None, typer.Option("--hostfile", help="With -n: a host in each line, such as: node1 slots=4.")
]
