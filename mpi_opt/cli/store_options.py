"""What the commands that read a store share: how they name it and the study in it, and how they print."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mpi_opt.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from mpi_opt.core.trial import TrialRecord
    from mpi_opt.store import Store
    from mpi_opt.study.study import Study

StoreUrl = Annotated[
    str | None,
    typer.Option("--store", help="SQLAlchemy URL or file; default: $MPI_OPT_STORE, else the only *.db of this folder."),
]
StudyName = Annotated[str | None, typer.Option("--study", help="The study's name; default: the store's only one.")]


def store_url(given: str | None) -> str:
    """The store that a command reads: as given, as the environment says, or the only one of the current folder.

    Raises:
        ConfigurationError: It could be none, or several.
    """
    if given or os.environ.get("MPI_OPT_STORE"):
        return given or os.environ["MPI_OPT_STORE"]
    found = sorted(str(path) for path in Path().glob("*.db"))
    if len(found) == 1:
        return found[0]
    problem = f"there are several: {', '.join(found)}" if found else "there is no *.db file in this folder"
    raise ConfigurationError(problem, where="--store", cure="write --store FILE.db, or set MPI_OPT_STORE")


def read_study(store: Store, name: str | None) -> Study:
    """The study of this name; without one the store's only study.

    Raises:
        StoreError: There is no such study, or one must be chosen.
    """
    from mpi_opt.study.study import Study

    names = [study.name for study in store.studies()]
    if name is None and len(names) == 1:
        name = names[0]
    if name in names:
        return Study.read(store, name)
    if name is None:
        problem = "which of its studies?" if names else "there are no studies in it yet"
        raise StoreError(problem, where=store.url, cure=f"--study with one of: {', '.join(names)}" if names else "")
    near = get_close_matches(name, names, n=1)
    cure = f"did you mean {near[0]!r}?" if near else f"one of: {', '.join(names)}"
    raise StoreError(f"there is no study {name!r}", where=store.url, cure=cure)


def numbered(study: Study, number: int) -> TrialRecord:
    """The trial of this number.

    Raises:
        StoreError: There is none.
    """
    for trial in study.trials:
        if trial.number == number:
            return trial
    cure = f"its trials are 0 to {study.trials[-1].number}" if study.trials else "it has none yet"
    raise StoreError(f"there is no trial {number}", where=f"study {study.name}", cure=cure)


def show(text: str) -> None:
    """Prints `text`; a reader that has seen enough, such as ``head``, is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
