"""Shared by the commands that read a store: how they find it, the study and a trial, and how they print."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
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
    """The store that a command reads: as given, from the environment, or the only one of the current folder.

    Raises:
        ConfigurationError: The folder has no store, or several.
    """
    if given or os.environ.get("MPI_OPT_STORE"):
        return given or os.environ["MPI_OPT_STORE"]
    found = sorted(str(path) for path in Path().glob("*.db"))
    if len(found) == 1:
        return found[0]
    problem = f"there are several: {', '.join(found)}" if found else "there is no *.db file in this folder"
    raise ConfigurationError(problem, where="--store", cure="write --store FILE.db, or set MPI_OPT_STORE")


def read_study(store: Store, name: str | None, *, trials: bool = True) -> Study:
    """The study of this name; without a name the store's only study.

    Args:
        store: Open.
        name: The study's name.
        trials: Whether to read its trials.

    Raises:
        StoreError: There is no such study, or one must be chosen.
    """
    from mpi_opt.study.study import Study

    names = [study.name for study in store.studies()]
    if name is None and len(names) == 1:
        name = names[0]
    if name in names:
        return Study.read(store, name, trials=trials)
    if name is None:
        problem = "which of its studies?" if names else "there are no studies in it yet"
        cure = f"--study with one of: {', '.join(names)}" if names else "mpi-opt search creates one"
        raise StoreError(problem, where=store.url, cure=cure)
    near = get_close_matches(name, names, n=1)
    cure = f"did you mean {near[0]!r}?" if near else f"one of: {', '.join(names)}"
    raise StoreError(f"there is no study {name!r}", where=store.url, cure=cure)


def read_trial(store: Store, study: Study, number: int | None) -> tuple[Study, TrialRecord]:
    """One trial, and `study` with the trials whose training it continues, which is all that is shown with it.

    Args:
        store: Open.
        study: May have been read without its trials.
        number: The trial; None: the best one.

    Raises:
        StoreError: There is no such trial.
    """
    trial = study.record.best if number is None else next(iter(store.trials(study.record.id, numbers=[number])), None)
    if trial is None and number is None:
        where = f"{store.url}: {study.name}"
        raise StoreError("no trial is complete yet", where=where, cure="see mpi-opt results")
    if trial is None:
        n_trials = sum(study.record.counts.values())
        cure = f"its trials are 0 to {n_trials - 1}" if n_trials else "it has none yet"
        raise StoreError(f"there is no trial {number}", where=f"study {study.name}", cure=cure)
    lineage = [trial]
    while lineage[-1].resume_from is not None:
        lineage += store.trials(study.record.id, numbers=[lineage[-1].resume_from])
    return replace(study, trials=lineage[::-1]), trial


def show(text: str) -> None:
    """Prints `text`; a reader that ends before it has read all, such as ``head``, is not an error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
