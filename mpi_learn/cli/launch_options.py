"""Options of ``search`` and ``train`` for the process that starts ``mpirun``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RestartsOption = Annotated[
    int | None,
    typer.Option(min=0, help="With -n: start the job again, at most R times, if a host or process was lost."),
]

HostfileOption = Annotated[
    Path | None, typer.Option("--hostfile", help="With -n: a host in each line, such as: node1 slots=4.")
]
