"""Results as text: tables of trials, of a confirmation and of a schedule; the details of one trial; CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from mpi_learn.cli.terminal import duration, sparkline
from mpi_opt.core.counted import counted
from mpi_opt.core.folds.fold_splits import number_of_folds
from mpi_opt.core.trial import TrialRecord
from mpi_opt.store.records import AttemptRecord, CurveRecord, FoldRecord, StudyRecord, readable
from mpi_opt.study.budgets import budget_text
from mpi_opt.study.presentation import (
    NOTE,
    cell,
    figures_as_text,
    printable,
    shown_names,
    study_columns,
    trial_columns,
    trial_rows,
    with_null,
)
from mpi_opt.study.recommendation import STATES
from mpi_opt.views.block_label import block_label

if TYPE_CHECKING:  # `results` prints tables without the modules of a search
    from mpi_opt.study.confirmation import Confirmation, ConfirmedPoint
    from mpi_opt.study.study import Study

COLOURS = {
    "complete": "32",
    "pruned": "36",
    "failed": "31",
    "lost": "31",
    "killed": "31",
    "moved": "34",
    "running": "33",
    "queued": "2",
}
"""ANSI codes of the states."""

STATE_COLUMNS = ("state", "outcome")
"""The columns whose cells have the colours of `COLOURS`."""

FOLD_COLUMNS = ("fold", "figure_of_merit", "duration_s")
ATTEMPT_COLUMNS = ("attempt", "block", "ranks", "hosts", "started_at", "finished_at", "outcome")


def aligned(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, colour: bool = False) -> str:
    """A table with one line per row: numbers aligned right, text aligned left and cut at `CELL_WIDTH` characters.

    Args:
        columns: The headings.
        rows: The rows, each with as many values as `columns`; None is shown as an empty cell.
        colour: Whether to mark states and headings with ANSI colours.
    """
    values, headings = [list(row) for row in rows], list(map(cell, columns))
    cells = [list(map(cell, row)) for row in values]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    signs = [_alignment(column) for column in zip(*values, strict=True)] or ["<"] * len(headings)
    in_line = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True)).format
    # colours after the widths were found: their codes are characters that a terminal does not show
    if colour:
        for index in (index for index, name in enumerate(columns) if name in STATE_COLUMNS):
            for row in cells:
                row[index] = _coloured(row[index], widths[index])
    lines = [in_line(*row).rstrip() for row in (headings, *cells)]
    if colour:
        lines[0] = f"\033[1m{lines[0]}\033[0m"
    return "\n".join(lines)


def _alignment(column: Iterable[object]) -> str:
    return ">" if all(value is None or _is_number(value) for value in column) else "<"


def _coloured(state: str, width: int) -> str:
    """`state` in its colour, and spaces up to `width` characters."""
    return f"\033[{COLOURS[state]}m{state}\033[0m{' ' * (width - len(state))}" if state in COLOURS else state


def studies_table(studies: Sequence[StudyRecord], *, colour: bool = False) -> str:
    """A table with one line per study: how many of its trials have ended, and the number in each state."""
    columns = ("study", "direction", "strategy", "ended", *STATES, "best", "trial", "created")
    rows = [
        (
            *(study.name, study.direction, study.strategy),
            _ended(study),
            *(study.counts.get(state, 0) for state in STATES),
            *((study.best.figure_of_merit, study.best.number) if study.best else (None, None)),
            readable(study.created_at),
        )
        for study in studies
    ]
    return aligned(columns, rows, colour=colour)


def _ended(study: StudyRecord) -> str:
    """``12 of 30``; without the second number in a study of an older version."""
    wanted = study.configuration.get("search", {}).get("trials")
    return str(study.n_ended) if wanted is None else f"{study.n_ended} of {wanted}"


def trials_table(study: StudyRecord, trials: Sequence[TrialRecord], *, colour: bool = False) -> str:
    """A table with one line for each of `trials`."""
    rows = _short_rows(study, trials)
    shown = trial_columns(study, without=_hidden_columns(study, rows))
    return aligned(shown, [[row[column] for column in shown] for row in rows], colour=colour)


def _hidden_columns(study: StudyRecord, rows: Sequence[dict[str, Any]]) -> set[str]:
    """The columns that a table of trials leaves out: times, and optional columns without a value."""
    uncertainties = {uncertainty for _, uncertainty in study_columns(study).figures.values()}
    optional = {"uncertainty", "error", NOTE} | uncertainties
    hidden = {column for column in optional if all(row[column] is None for row in rows)}
    if study.figures_of_merit.are_several:  # the first figure of merit also has a column of its name
        hidden |= {"figure_of_merit", "uncertainty"}
    return hidden | {"started_at", "finished_at", "attempts"}


def _short_rows(study: StudyRecord, trials: Sequence[TrialRecord]) -> list[dict[str, Any]]:
    """The rows of trials with one line of their errors, and a star on the Pareto front."""
    rows, pareto = trial_rows(trials, study), study_columns(study).pareto
    for row, trial in zip(rows, trials, strict=True):
        row["error"] = error_line(trial.error)
        if pareto is not None:
            row[pareto] = "*" if trial.pareto else None
    return rows


def error_line(error: str | None) -> str | None:
    """The most informative line of an error: the first, or the last if the first only announces a traceback."""
    lines = [line for line in (error or "").splitlines() if line.strip()]
    if not lines:
        return None
    return lines[-1].strip() if lines[0].startswith("Traceback") else lines[0].strip()


def trial_page(
    study: StudyRecord,
    trial: TrialRecord,
    folds: Sequence[FoldRecord],
    curves: Sequence[CurveRecord],
    attempts: Sequence[AttemptRecord],
    *,
    colour: bool = False,
) -> str:
    """The details of one trial: hyperparameters, folds, curves as sparklines, attempts and the complete error."""
    facts = [
        ("study", study.name),
        ("trial", trial.number),
        ("state", trial.state + _folds_note(study, trial, folds)),
        *_figures(study, trial, len(folds)),
        ("duration", None if trial.duration_s is None else duration(trial.duration_s)),
        ("started", trial.started_at),
        ("finished", trial.finished_at),
        ("trained for", budget_text(study, trial)),
        ("note", trial.note),
        ("continues", None if trial.resume_from is None else f"trial {trial.resume_from}"),
    ]
    parameters = [(name, with_null(value)) for name, value in trial.parameters.items()]
    parts = [_aligned_pairs(facts), _section("hyperparameters", _aligned_pairs(parameters))]
    if folds:
        rows = [(fold.fold, fold.figure_of_merit, fold.duration_s) for fold in folds]
        parts.append(_section("folds", aligned(FOLD_COLUMNS, rows, colour=colour)))
    if curves:
        parts.append(_section("curves", curves_table(curves, colour=colour)))
    if attempts:
        parts.append(_section("attempts", _attempts_table(attempts, colour)))
    # the error of the last attempt is that of the trial, which follows
    given_up = [(attempt, attempt.error) for attempt in attempts if attempt.is_given_up and attempt.error]
    parts += [f"attempt {attempt.attempt} was {attempt.outcome}: {printable(error)}" for attempt, error in given_up]
    if trial.error:
        parts.append(_section("error", printable(trial.error)))
    return "\n\n".join(parts)


def _attempts_table(attempts: Sequence[AttemptRecord], colour: bool) -> str:
    rows = [
        (a.attempt, block_label(a.block), a.ranks, a.hosts, a.started_at, a.finished_at, a.outcome) for a in attempts
    ]
    return aligned(ATTEMPT_COLUMNS, rows, colour=colour)


def _folds_note(study: StudyRecord, trial: TrialRecord, folds: Sequence[FoldRecord]) -> str:
    """The number of folds of a trial that was pruned before all of them ended; else empty."""
    n_folds = number_of_folds(study.configuration)
    if trial.state != "pruned" or len(folds) in (0, n_folds):
        return ""
    section = study.configuration.get("folds")
    is_estimate = isinstance(section, dict) and section.get("stop_early")
    estimate = "; value estimated for all folds" if is_estimate else ""
    return f" after {len(folds)} of {n_folds} folds{estimate}"


def _figures(study: StudyRecord, trial: TrialRecord, n_folds: int) -> list[tuple[str, str | None]]:
    """The figures of merit, each with a label, and whether the trial is on the Pareto front."""
    found = figures_as_text(trial, study)
    noted = [(name, f"{text} (over the folds)" if "±" in text and n_folds > 1 else text) for name, text in found]
    return [*noted, ("Pareto front", None if trial.pareto is None else "yes" if trial.pareto else "no")]


def curves_table(curves: Sequence[CurveRecord], *, colour: bool = False) -> str:
    """A table with one line per metric and fold: a sparkline, the first, last, lowest and highest known value."""
    rows = []
    for curve in curves:
        known = [value for value in curve.values if math.isfinite(value)] or [math.nan]
        ends = (known[0], known[-1], min(known), max(known))
        rows.append((curve.fold, curve.name, sparkline(known), len(curve.values), *ends))
    columns = ("fold", "metric", "curve", "epochs", "first", "last", "lowest", "highest")
    return aligned(columns, rows, colour=colour)


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Comma-separated values with a heading; None is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def to_json(rows: Iterable[dict[str, Any]]) -> str:
    """A JSON list with one line per row; NaN and infinity, which JSON does not have, are null."""
    lines = [json.dumps(_json_value(row), ensure_ascii=False, default=str) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def study_object(study: StudyRecord) -> dict[str, Any]:
    """A study for JSON, without its configuration."""
    fields = ("name", "direction", "strategy", "seed", "created_at", "view", "counts")
    best = None if study.best is None else trial_object(study.best)
    return {field: getattr(study, field) for field in fields} | {"best": best}


def trial_object(trial: TrialRecord) -> dict[str, Any]:
    """A trial for JSON."""
    first = ("number", "state", "parameters", "figure_of_merit", "uncertainty")
    return {name: getattr(trial, name) for name in first} | asdict(trial) | {"uncertainties": trial.uncertainties}


def table_of(study: StudyRecord, trials: Sequence[TrialRecord]) -> tuple[list[str], list[list[Any]]]:
    """The columns and rows of a complete table of `trials`."""
    rows = trial_rows(trials, study)
    return trial_columns(study), [list(row.values()) for row in rows]


def _json_value(value: object) -> object:
    if isinstance(value, dict):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _aligned_pairs(pairs: Sequence[tuple[str, Any]]) -> str:
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"{name:<{width}}  {cell(value)}" for name, value in pairs if value is not None)


def _section(title: str, text: str) -> str:
    """`text`, indented, below its title."""
    return "\n".join([title, *(f"  {line}" for line in text.splitlines())])


def lineage(study: Study, trial: TrialRecord) -> list[TrialRecord]:
    """The trials whose training `trial` continues, the first one first, and `trial` itself."""
    trials = {trial.number: trial for trial in study.trials}
    found = [trial]
    while (source := found[-1].resume_from) is not None and source in trials:
        found.append(trials[source])
    return found[::-1]


def schedule(trials: Sequence[TrialRecord]) -> list[dict[str, Any]]:
    """The values of the hyperparameters that changed during a training; empty if none changed.

    Args:
        trials: The trials of the training, each of which continues the one before: a `lineage`.

    Returns:
        A row for each interval of constant values: ``epochs`` (``"0 to 3"``), ``trials``, and the hyperparameters that
        changed in the training. A hyperparameter called ``epochs`` or ``trials`` has the prefix ``parameter_``.
    """
    names = dict.fromkeys(name for trial in trials for name in trial.parameters)
    # by their text, because values may be lists, which are not hashable, and 1 and True are different categories
    changing = [name for name in names if len({repr(trial.parameters.get(name)) for trial in trials}) > 1]
    if not changing:
        return []
    intervals = groupby(trials, key=lambda trial: {name: trial.parameters.get(name) for name in changing})
    rows: list[dict[str, Any]] = []
    begin = 0.0
    for values, group in intervals:
        members = list(group)
        first, last, end = members[0].number, members[-1].number, members[-1].budget or 0
        numbers = str(first) if first == last else f"{first} … {last}"
        interval = {"epochs": f"{begin:g} to {end:g}", "trials": numbers}
        rows.append(interval | {f"parameter_{name}" if name in interval else name: v for name, v in values.items()})
        begin = end
    return rows


def schedule_text(trials: Sequence[TrialRecord], *, colour: bool = False) -> str:
    """The `schedule` of a training as a table; empty if no hyperparameter changed."""
    rows = schedule(trials)
    return aligned(tuple(rows[0]), [tuple(row.values()) for row in rows], colour=colour) if rows else ""


def confirmation_text(study: StudyRecord, confirmed: Confirmation | None, *, colour: bool = False) -> str:
    """A table with a line per point, and a sentence with the probability that the best is better than the default.

    Empty if no point has run again.
    """
    if confirmed is None:
        return ""
    most = max(len(point.figures) for point in confirmed.points)
    (name,) = shown_names(study)
    columns = ("point", f"{name} in the search", "mean of new runs", "standard deviation", "runs")
    lines = [
        f"new runs of the best points, up to {counted(most, 'run')} with new seeds (study {confirmed.study}):",
        aligned(columns, [_row(point) for point in confirmed.points], colour=colour),
    ]
    if confirmed.probability is not None:
        lines.append(
            f"{_name(confirmed.winner)} is better than the default configuration {_likely(confirmed.probability)}"
        )
    elif confirmed.winner.is_default:
        lines.append("the default configuration is the best point")
    return "\n".join(lines)


def _row(point: ConfirmedPoint) -> tuple[object, ...]:
    in_search = None if point.trial is None else point.trial.figure_of_merit
    return _name(point), in_search, float(point.mean), point.mean.uncertainty, len(point.figures)


def _name(point: ConfirmedPoint) -> str:
    if point.trial is None:
        return "default"
    return f"trial {point.trial.number}" + (" (default)" if point.is_default else "")


def _likely(probability: float) -> str:
    shown = min(max(probability, 0.001), 0.999)
    least = "at least " if probability > shown else "at most " if probability < shown else ""
    return f"with a probability of {least}{shown:.1%}"
