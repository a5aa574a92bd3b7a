"""The commands that read a store: ``results`` and ``best``. They import neither MPI nor a framework."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mpi_opt.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from mpi_opt.store import Store
    from mpi_opt.study import Study
    from mpi_opt.trial import TrialRecord

Format = Literal["table", "csv", "json"]
State = Literal["queued", "running", "complete", "pruned", "failed"]

StoreUrl = Annotated[
    str | None,
    typer.Option("--store", help="SQLAlchemy URL or file; default: $MPI_OPT_STORE, else the only *.db of this folder."),
]
StudyName = Annotated[str | None, typer.Option("--study", help="The study's name; default: the store's only one.")]

TERMINAL_ROWS = 100
"""So many trials are shown on a terminal unless more are asked for."""


def register(app: typer.Typer) -> None:
    """Adds the commands to `app`."""
    for command in (results, best):
        app.command()(command)


def results(
    store: StoreUrl = None,
    study: Annotated[str | None, typer.Option("--study", help="Its trials, best first; without: all studies.")] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = "table",
    sql: Annotated[str | None, typer.Option("--sql", help="A read-only query, e.g. on the view study_NAME.")] = None,
    n_best: Annotated[int | None, typer.Option("--best", min=1, help="Only the best so many.")] = None,
    state: Annotated[State | None, typer.Option("--state", help="Only trials in this state.")] = None,
    trial: Annotated[int | None, typer.Option("--trial", min=0, help="Everything about this trial.")] = None,
) -> None:
    """Print trials, best first; or all studies, one trial in full, or the rows of a query."""
    from mpi_opt.store import Store

    with Store.open(store_url(store), read_only=True) as opened:
        if sql is not None:
            _print_query(opened, sql, form)
        elif study is None and trial is None and n_best is None and state is None:
            _print_studies(opened, form)
        else:
            chosen = read_study(opened, study)
            if trial is not None:
                _print_trial(opened, chosen, trial, form)
            else:
                _print_trials(chosen, form, n_best, state)


def best(
    store: StoreUrl = None,
    study: StudyName = None,
    trial: Annotated[int | None, typer.Option("--trial", min=0, help="Another trial than the best.")] = None,
) -> None:
    """Print the winner as a ready training.yaml for `mpi-learn train`; for a function, its hyperparameters."""
    from mpi_opt.store import Store
    from mpi_opt.winner import winner_yaml

    with Store.open(store_url(store), read_only=True) as opened:
        chosen = read_study(opened, study)
        winner = chosen.best if trial is None else numbered(chosen, trial)
        if winner is None:
            raise StoreError(
                "no trial is complete yet", where=f"{opened.url}: {chosen.name}", cure="see mpi-opt results"
            )
        print(winner_yaml(chosen, winner), end="")


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
    from mpi_opt.study import Study

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


def _print_query(store: Store, query: str, form: Format) -> None:
    columns, rows = store.sql(query)
    _print_rows(columns, rows, form)


def _print_rows(columns: list[str], rows: list[Any], form: Format) -> None:
    from mpi_opt.views import tables

    if form == "json":
        print(tables.to_json(dict(zip(columns, row, strict=True)) for row in rows))
    elif form == "csv":
        print(tables.to_csv(columns, rows))
    elif columns:
        print(tables.aligned(columns, rows, colour=sys.stdout.isatty()))


def _print_studies(store: Store, form: Format) -> None:
    from mpi_opt.views import tables

    studies = store.studies()
    if form == "table":
        print(tables.studies_table(studies, colour=sys.stdout.isatty()) if studies else "no studies yet")
        return
    objects = [tables.study_object(study) for study in studies]
    if form == "json":
        print(tables.to_json(objects))
    else:
        columns = ["name", "direction", "strategy", "seed", "created_at", "view"]
        print(tables.to_csv(columns, [[entry[column] for column in columns] for entry in objects]))


def _print_trials(study: Study, form: Format, n_best: int | None, state: State | None) -> None:
    from mpi_opt.views import tables

    trials = study.ranked((state,)) if state else study.ranked(("complete",)) if n_best else study.ranked()
    trials = trials[:n_best] if n_best else trials
    if form == "json":
        print(tables.to_json(tables.as_object(trial) for trial in trials))
    elif form == "csv":
        print(tables.to_csv(*tables.table_of(study.space, trials)))
    else:
        shown = trials[:TERMINAL_ROWS] if sys.stdout.isatty() and not n_best else trials
        print(tables.trials_table(study, shown, colour=sys.stdout.isatty()) if trials else "no such trials yet")
        if len(shown) < len(trials):
            print(f"… and {len(trials) - len(shown)} more: --best {len(trials)}, or --format csv")


def _print_trial(store: Store, study: Study, number: int, form: Format) -> None:
    from mpi_opt.views import tables

    trial = numbered(study, number)
    if form == "csv":
        print(tables.to_csv(*tables.table_of(study.space, [trial])))
        return
    details = [read(study.record.id, [number]) for read in (store.folds, store.curves, store.attempts)]
    if form == "table":
        print(tables.trial_page(study, trial, *details, colour=sys.stdout.isatty()))
        return
    names = ("folds", "curves", "attempts")
    lists = {n: [tables.as_object(row) for row in rows] for n, rows in zip(names, details, strict=True)}
    print(tables.to_json([tables.as_object(trial) | lists]))
