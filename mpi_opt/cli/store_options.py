"""Options that override a file, or name a store, a study and a trial; and how a command finds these."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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


SpaceFile = Annotated[Path, typer.Argument(metavar="SPACE.yaml", help="Configuration of the study.")]
Changes = Mapping[str, Any]
"""Dotted key of the file, e.g. ``search.trials`` -> the value that overrides it; None keeps the file's."""

PANEL = "Options that override SPACE.yaml"


def _option(meaning: str, least: int | None = None) -> Any:
    return typer.Option(help=meaning, min=least, rich_help_panel=PANEL)


OVERRIDES: dict[str, tuple[str, Any]] = {
    "trials": ("search.trials", Annotated[int | None, _option("Total number of trials of the study.", least=1)]),
    "strategy": (
        "search.strategy",
        Annotated[str | None, _option("Strategy: auto, bayesian, evolutionary, random, … or file.py:Class.")],
    ),
    "block_size": ("blocks.size", Annotated[str | None, _option("Number of ranks per block, or auto, or measured.")]),
    "folds": ("folds.number", Annotated[int | None, _option("K of the K-fold cross-validation.", least=1)]),
    "seed": ("search.seed", Annotated[int | None, _option("Seed of the random numbers.", least=0)]),
    "study": ("study", Annotated[str | None, _option("Name of the study in the store.")]),
    "store": ("store", Annotated[str | None, _option("Store: SQLAlchemy URL or file.")]),
    "time_limit": ("search.time_limit", Annotated[str | None, _option("Time limit of one search, for example 2h.")]),
}
"""Option -> the dotted key of the file that it overrides, and its type."""


def overriding(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of `OVERRIDES` to a command, which receives their values as its argument `changes`.

    Typer reads the options of a command from its signature.
    """
    parameters = signature(command, eval_str=True).parameters
    own = [parameter for name, parameter in parameters.items() if name != "changes"]
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, (_, kind) in OVERRIDES.items()
    ]

    @wraps(command)
    def with_options(**arguments: Any) -> Any:
        changes = {key: arguments.pop(name) for name, (key, _) in OVERRIDES.items()}
        changes["blocks.size"] = _block_size(changes["blocks.size"])
        return command(changes=changes, **arguments)

    read = {parameter.name: parameter for parameter in (*own, *options)}
    with_options.__dict__["__signature__"] = signature(command).replace(parameters=list(read.values()))
    with_options.__annotations__ = {name: parameter.annotation for name, parameter in read.items()}
    return with_options


def written(changes: Changes) -> list[str]:
    """`changes` as command-line arguments."""
    given = {name: changes[key] for name, (key, _) in OVERRIDES.items() if changes[key] is not None}
    return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def _block_size(text: str | None) -> int | str | None:
    if text is not None and text not in ("auto", "measured") and not text.isdecimal():
        raise ConfigurationError(
            f"expected a number, auto or measured, found {text!r}", where="--block-size", cure="write --block-size 4"
        )
    return int(text) if text and text.isdecimal() else text
