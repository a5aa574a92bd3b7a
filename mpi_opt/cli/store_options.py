"""The options of the commands that read a store, and functions that find the store, the study and a trial."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mpi_opt.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from mpi_opt.core.trial import TrialRecord
    from mpi_opt.store import Store
    from mpi_opt.store.records import StudyRecord

MAX_TRIAL_NUMBER = 10**9 - 1
"""The largest number of a trial that a store can have; see ``TRIALS_PER_STUDY`` in `mpi_opt.core.trial`."""

StoreUrl = Annotated[
    str | None,
    typer.Option("--store", help="SQLAlchemy URL or file; default: $MPI_OPT_STORE, else the only *.db file here."),
]
StudyName = Annotated[str | None, typer.Option("--study", help="Name of the study; default: the only study.")]


def store_url(given: str | None) -> str:
    """The store that a command reads: as given, from the environment, or the only one in the current directory.

    Raises:
        ConfigurationError: The folder has no store, or several.
    """
    if given or os.environ.get("MPI_OPT_STORE"):
        return given or os.environ["MPI_OPT_STORE"]
    found = sorted(str(path) for path in Path().glob("*.db"))
    if len(found) == 1:
        return found[0]
    problem = (
        f"this folder has several *.db files: {', '.join(found)}" if found else "there is no *.db file in this folder"
    )
    raise ConfigurationError(problem, where="--store", cure="write --store FILE.db, or set MPI_OPT_STORE")


def find_lineage(store: Store, study: StudyRecord, number: int | None) -> list[TrialRecord]:
    """Reads a trial, and those whose training it continues.

    Args:
        store: Open.
        study: The study.
        number: The number of the trial; None for the best one.

    Returns:
        The trials whose training it continues, the first one first, and the trial itself.

    Raises:
        StoreError: There is no such trial, or a trial whose training it continues is missing.
    """
    from mpi_opt.store.errors import damaged, no_such_trial

    if number is not None:
        lineage = store.trials(study.id, numbers=[number])
        if not lineage:
            raise no_such_trial(study, number)
    elif study.best is None:
        raise StoreError("no trial is complete yet", where=f"study {study.name}", cure="see mpi-opt results")
    else:
        lineage = [study.best]
    while (source := lineage[-1].resume_from) is not None:
        found = store.trials(study.id, numbers=[source])
        if not found:
            raise damaged(f"trial {lineage[-1].number} resumes from trial {source}, which does not exist", store.url)
        lineage += found
    return lineage[::-1]


def show(text: str) -> None:
    """Prints `text`; it is not an error if the reader, such as ``head``, ends before it has read everything."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
