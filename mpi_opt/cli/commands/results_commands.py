"""The commands that read a store: results, figures and pages. They import neither MPI nor a framework."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from inspect import signature
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mpi_learn.job.exit_status import FINISHED, UNFINISHED
from mpi_learn.settings.paths import file_name
from mpi_opt.cli.store_options import MAX_TRIAL_NUMBER, StoreUrl, StudyName, find_lineage, store_url
from mpi_opt.core.counted import counted
from mpi_opt.errors import ConfigurationError

if TYPE_CHECKING:
    from mpi_opt.core.trial import TrialRecord
    from mpi_opt.store import Store
    from mpi_opt.store.records import StudyRecord
    from mpi_opt.study.study import Study


Format = Literal["table", "csv", "json"]
State = Literal["queued", "running", "complete", "pruned", "failed"]

TERMINAL_ROWS = 100
"""The number of trials that a terminal shows at most without ``--best``."""


def results(
    study: Annotated[
        str | None,
        typer.Option(
            "--study", help="Name of the study; default: list all studies, or with other options the only one."
        ),
    ] = None,
    store: StoreUrl = None,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = "table",
    sql: Annotated[str | None, typer.Option("--sql", help="Run a query, for example on the view study_NAME.")] = None,
    n_best: Annotated[
        int | None,
        typer.Option("--best", min=1, help="Only the N best complete trials; with --state, those of this state."),
    ] = None,
    state: Annotated[State | None, typer.Option("--state", help="Only trials in this state.")] = None,
    pareto: Annotated[bool, typer.Option("--pareto", help="Only the trials on the Pareto front.")] = False,
    trial: Annotated[
        int | None, typer.Option("--trial", min=0, max=MAX_TRIAL_NUMBER, help="Print all records of trial N.")
    ] = None,
    finished: Annotated[
        bool,
        typer.Option("--finished", help="Print whether the study is finished; exit status 0 if it is, otherwise 75."),
    ] = False,
) -> int:
    """Print trials, best first; or all studies, one trial in full, or the rows of a query."""
    selecting = {"--best": n_best is not None, "--state": state is not None, "--pareto": pareto}
    _check_combination({"--finished": finished, "--sql": sql is not None, "--trial": trial is not None}, selecting)
    from mpi_opt.store import Store
    from mpi_opt.study.reading import read_record

    with Store.open(store_url(store), read_only=True) as opened:
        if finished:
            return _finished_status(opened, read_record(opened, study))
        if sql is not None:
            _print_rows(*opened.sql(sql), form)
        elif study is None and trial is None and not any(selecting.values()):
            _print_studies(opened, form)
        else:
            chosen = read_record(opened, study)
            if trial is not None:
                _print_trial(opened, chosen, trial, form)
            else:
                _print_trials(chosen, form, n_best, _chosen(opened, chosen, n_best, state, pareto))
                if form == "table":  # programs read the other formats, and expect the rows alone
                    if state is None:
                        _print_confirmation(opened, chosen)
                    if chosen.n_codes > 1:
                        _print_codes(opened, chosen)
                    _print_restarts(opened, chosen)
    return FINISHED


def best(
    study: StudyName = None,
    store: StoreUrl = None,
    trial: Annotated[
        int | None, typer.Option("--trial", min=0, max=MAX_TRIAL_NUMBER, help="Number of the trial; default: the best.")
    ] = None,
    model: Annotated[
        bool,
        typer.Option("--model", help="Print the files of the model that the search has kept (search.keep) instead."),
    ] = False,
) -> None:
    """Print the best trial as a training.yaml for `mpi-learn train`; for a function, its hyperparameters.

    If the figures of merit are noisy, it is the trial with the best expected value.
    """
    from mpi_opt.store import Store
    from mpi_opt.study.kept_model import model_folders
    from mpi_opt.study.reading import read_record
    from mpi_opt.study.user_code import changed_since
    from mpi_opt.views.text.best_trial import trial_yaml

    with Store.open(store_url(store), read_only=True) as opened:
        chosen = read_record(opened, study)
        notes = [] if trial is not None else _training_length_notes(opened, chosen)
        number = trial
        if trial is None and not model:  # models are kept by their figures of merit
            number, advice = _recommended(opened, chosen)
            notes += advice
        lineage = find_lineage(opened, chosen, number)
        changed = changed_since(opened, chosen, lineage[-1], files_only=model)
        if model:
            for folder in model_folders(chosen, opened.address, lineage[-1]):
                print("\n".join(map(str, sorted(folder.glob("model*")))), flush=True)
        else:
            is_elsewhere = chosen.configuration.get("directory") != str(Path.cwd())
            print(trial_yaml(chosen, lineage, is_elsewhere=is_elsewhere, notes=notes).rstrip("\n"), flush=True)
            if sys.stdout.isatty():
                notes = []  # comments show them; with `best > train.yaml`, only stderr reaches the terminal
            changed = changed and f"{changed}; a new training may give another result"
        for note in [*notes, *filter(None, [changed])]:
            print(f"mpi-opt: {note}", file=sys.stderr, flush=True)


def _recommended(store: Store, study: StudyRecord) -> tuple[int | None, list[str]]:
    """The recommended trial and sentences about it; None and no sentence if it is that with the best figure."""
    from mpi_opt.study.confirmation import read_confirmation
    from mpi_opt.study.recommendation import recommendation
    from mpi_opt.views.text.tables import confirmation_text

    trials = store.trials(study.id, ("complete",))
    confirmed = read_confirmation(store, study, trials)
    if confirmed is not None and (winner := confirmed.winner.trial) is not None:
        return winner.number, confirmation_text(study, confirmed).splitlines()
    advice = recommendation(study, trials)
    return (None, []) if advice is None else (advice.trial.number, [str(advice)])


def _training_length_notes(store: Store, study: StudyRecord) -> list[str]:
    from mpi_opt.study.budgets import training_length_notes

    return training_length_notes(study, next(iter(store.best(study)), None))


def _check_combination(outputs: dict[str, bool], selecting: dict[str, bool]) -> None:
    """Verifies that at most one of the options `outputs` is given, and none of `selecting` with it.

    Raises:
        ConfigurationError: Names an option that would have no effect.
    """
    given = [option for option, is_given in (outputs | selecting).items() if is_given]
    if len(given) > 1 and given[0] in outputs:
        raise ConfigurationError(
            f"{given[0]} and {given[1]} cannot be combined", where=given[1], cure=f"remove {given[0]} or {given[1]}"
        )


def _finished_status(store: Store, study: StudyRecord) -> int:
    """Prints whether the study is finished, and its trials in short; returns the exit status, 0 or 75."""
    from mpi_opt.study.confirmation import is_confirmed
    from mpi_opt.study.presentation import cell
    from mpi_opt.study.reading import is_finished

    counts = ", ".join(f"{n} {state}" for state, n in study.counts.items()) or "no trials"
    best, has_ended = study.best, is_finished(store, study) and is_confirmed(store, study)
    shown_best = "" if best is None else f"; best {best.figure_of_merit:.6g} (trial {best.number})"
    with suppress(BrokenPipeError):  # the exit status is asked for, also without the text
        print(f"{cell(study.name, None)}: {'finished' if has_ended else 'not finished'}; {counts}{shown_best}")
        for note in _training_length_notes(store, study):
            print(note)
    return FINISHED if has_ended else UNFINISHED


def _print_rows(columns: list[str], rows: list[Any], form: Format) -> None:
    from mpi_opt.views.text import tables

    if form == "json":
        names = _distinct(columns)
        print(tables.to_json(dict(zip(names, row, strict=True)) for row in rows))
    elif form == "csv":
        print(tables.to_csv(columns, rows))
    elif columns:
        print(tables.aligned(columns, rows, colour=sys.stdout.isatty()))


def _distinct(columns: Sequence[str]) -> list[str]:
    """`columns` with a number after repeated names: a JSON object has each name once."""
    distinct: dict[str, None] = {}
    for column in columns:
        numbered = (f"{column}_{number}" for number in count(2))
        distinct[next(name for name in chain([column], numbered) if name not in distinct)] = None
    return list(distinct)


def _print_studies(store: Store, form: Format) -> None:
    from mpi_opt.views.text import tables

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


def _chosen(
    store: Store, study: StudyRecord, n_best: int | None, state: State | None, pareto: bool
) -> list[TrialRecord]:
    """The trials to print, best first. Does not read the whole study for the best trials."""
    from mpi_opt.study.study import Study

    if n_best and state is None:
        state = "complete"
    if n_best and state == "complete" and not (pareto or study.figures_of_merit.are_several):
        return store.best(study, n_best)
    whole = Study.read(store, study.name)
    if pareto:
        trials = whole.pareto() if state in (None, "complete") else []
    else:
        trials = whole.ranked((state,)) if state else whole.ranked()
    return trials[:n_best]


def _print_trials(study: StudyRecord, form: Format, n_best: int | None, trials: list[TrialRecord]) -> None:
    from mpi_opt.views.text import tables

    if form == "json":
        print(tables.to_json(map(tables.trial_object, trials)))
    elif form == "csv":
        print(tables.to_csv(*tables.table_of(study, trials)))
    else:
        shown = trials[:TERMINAL_ROWS] if sys.stdout.isatty() and not n_best else trials
        print(tables.trials_table(study, shown, colour=sys.stdout.isatty()) if trials else "no such trials yet")
        if len(shown) < len(trials):
            print(f"… and {len(trials) - len(shown)} more: append | less, or --format csv")


def _print_confirmation(store: Store, study: StudyRecord) -> None:
    """Prints the new runs of the best points, if there are any."""
    if study.configuration.get("search", {}).get("confirm") is None:
        return
    from mpi_opt.study.confirmation import read_confirmation
    from mpi_opt.views.text.tables import confirmation_text

    confirmed = read_confirmation(store, study, store.trials(study.id, ("complete",)))
    if confirmed is not None:
        print(f"\n{confirmation_text(study, confirmed, colour=sys.stdout.isatty())}")


def _print_codes(store: Store, study: StudyRecord) -> None:
    from mpi_opt.views.text.best_trial import codes_text

    print(f"\nthe trials ran with {study.n_codes} codes\n{codes_text(store.codes(study.id))}")


def _print_restarts(store: Store, study: StudyRecord) -> None:
    from mpi_opt.store.events import SEARCH_RESTARTED
    from mpi_opt.store.records import readable

    events = [event for event in store.events(study.id) if event.kind == SEARCH_RESTARTED]
    if events:
        latest = f"the latest at {readable(events[-1].at)} UTC: {events[-1].detail}"
        print(f"\n{counted(len(events), 'restart')} of the search, {latest}")


def _print_trial(store: Store, study: StudyRecord, number: int, form: Format) -> None:
    from mpi_opt.views.text import tables

    lineage = find_lineage(store, study, number)
    trial = lineage[-1]
    if form == "csv":
        print(tables.to_csv(*tables.table_of(study, [trial])))
        return
    of_trial = study.id, [number]
    folds, curves, attempts = store.folds(*of_trial), store.curves(*of_trial), store.attempts(*of_trial)
    if form == "table":
        is_coloured = sys.stdout.isatty()
        print(tables.trial_page(study, trial, folds, curves, attempts, colour=is_coloured))
        if changes := tables.schedule_text(lineage, colour=is_coloured):
            print(f"\nhyperparameters that changed during the training\n{changes}")
        return
    lists = {
        "folds": list(map(asdict, folds)),
        "curves": list(map(asdict, curves)),
        "attempts": list(map(asdict, attempts)),
    }
    print(tables.to_json([tables.trial_object(trial) | lists]))


Kind = Literal["history", "parallel", "slice", "contour", "importance", "timeline", "curves", "pareto"]


def plot(
    kind: Annotated[Kind, typer.Argument(help="Kind of figure.")],
    study: StudyName = None,
    store: StoreUrl = None,
    output: Annotated[Path | None, typer.Option("-o", help="FILE.png, .svg or .pdf; default: STUDY-KIND.png.")] = None,
    x: Annotated[
        str | None, typer.Option("--x", help="Horizontal axis. contour: a hyperparameter; pareto: a figure of merit.")
    ] = None,
    y: Annotated[str | None, typer.Option("--y", help="Vertical axis of contour or pareto.")] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="Metric of curves.")] = None,
) -> None:
    """Draw a figure of a study."""
    chosen = _study(store, study)
    with needing_matplotlib():
        from mpi_opt.views.figures import plots
    options = {name: value for name, value in (("x", x), ("y", y), ("metric", metric)) if value is not None}
    draw = plots.KINDS[kind]
    for name in options:
        if name not in signature(draw).parameters:
            raise ConfigurationError(f"{kind} has no such option", where=f"--{name}", cure="mpi-opt plot --help")
    path = output or Path(f"{file_name(chosen.name)}-{kind}.png")
    plots.save(draw(chosen, **options), path)
    print(path)


def report(
    study: StudyName = None,
    store: StoreUrl = None,
    output: Annotated[Path | None, typer.Option("-o", help="FILE.html; default: STUDY.html.")] = None,
) -> None:
    """Write a report of a study: one interactive page that opens offline."""
    chosen = _study(store, study)
    from mpi_opt.views.page.report import save_report

    path = output or Path(f"{file_name(chosen.name)}.html")
    save_report(chosen, path)
    print(path)


def dashboard(
    study: StudyName = None,
    store: StoreUrl = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port of the page; 0 for any free port.")
    ] = 8080,
) -> None:
    """Serve a live page of a study on 127.0.0.1, also while a search runs it; Ctrl-C ends the command."""
    from mpi_opt.store import Store
    from mpi_opt.study.reading import read_record
    from mpi_opt.views.page.dashboard import Dashboard

    with Store.open(store_url(store), read_only=True) as opened:
        address, name = opened.address, read_record(opened, study).name
    served = Dashboard(address, name, port)
    print(
        f"open      {served.url}\nfrom your own machine first run\n          {served.tunnel}\nCtrl-C ends it",
        flush=True,
    )
    try:
        served.wait()
    except KeyboardInterrupt:
        print()
    finally:
        served.close()


def _study(store: str | None, name: str | None) -> Study:
    from mpi_opt.store import Store
    from mpi_opt.study.study import Study

    with Store.open(store_url(store), read_only=True) as opened:
        return Study.read(opened, name)


@contextmanager
def needing_matplotlib() -> Iterator[None]:
    """Explains a failed import in the block."""
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(f"this needs matplotlib: {error}", cure="pip install mpi-opt[plots]") from None
