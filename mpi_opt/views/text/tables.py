"""Results as text: aligned tables, one trial in full, CSV and JSON; and a small table for notebooks."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mpi_learn.cli.terminal import sparkline
from mpi_opt.core.cross_validation import number_of_folds
from mpi_opt.study.trial_table import cell, printable, trial_columns, trial_row

if TYPE_CHECKING:
    from mpi_opt.core.trial import TrialRecord
    from mpi_opt.store.records import AttemptRecord, CurveRecord, EventRecord, FoldRecord, StudyRecord
    from mpi_opt.study.study import Study

COLOURS = {
    "complete": "32",
    "pruned": "36",
    "failed": "31",
    "lost": "31",
    "running": "33",
    "queued": "2",
}
"""ANSI codes of the states."""


def aligned(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, colour: bool = False) -> str:
    """A table with a line for each row: numbers on the right, text on the left and cut at `CELL_WIDTH` characters.

    Args:
        columns: The headings.
        rows: As long as `columns` each; None is shown as nothing.
        colour: Whether to mark states and headings with ANSI colours.
    """
    rows, columns = [list(row) for row in rows], [cell(column) for column in columns]
    cells = [[cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    is_right = [all(value is None or _is_number(value) for value in column) for column in zip(*rows, strict=True)]
    ways = [">" if right else "<" for right in is_right] or ["<"] * len(columns)
    in_line = "  ".join(f"{{:{way}{width}}}" for way, width in zip(ways, widths, strict=True)).format
    lines = [in_line(*columns).rstrip()]
    if colour:
        lines[0] = f"\033[1m{lines[0]}\033[0m"
    for row in cells:
        line = in_line(*row).rstrip()
        state = next((text for text in row if text in COLOURS), None) if colour else None
        lines.append(line if state is None else line.replace(state, f"\033[{COLOURS[state]}m{state}\033[0m", 1))
    return "\n".join(lines)


def studies_table(studies: Sequence[StudyRecord], *, colour: bool = False) -> str:
    """A line for each study."""
    columns = ("study", "direction", "strategy", "complete", "pruned", "failed", "running", "best", "trial", "created")
    rows = [
        (
            *(study.name, study.direction, study.strategy),
            *(study.counts.get(state, 0) for state in ("complete", "pruned", "failed", "running")),
            *((study.best.figure_of_merit, study.best.number) if study.best else (None, None)),
            study.created_at[:19].replace("T", " "),
        )
        for study in studies
    ]
    return aligned(columns, rows, colour=colour)


def trials_table(study: Study, trials: Sequence[TrialRecord] | None = None, *, colour: bool = False) -> str:
    """A line for each of `trials` (None: the best ten)."""
    trials = study.ranked(("complete",))[:10] if trials is None else trials
    rows = [trial_row(trial, study.space, study.merits) for trial in trials]
    hidden = {"started_at", "finished_at", "attempts"}
    for row, trial in zip(rows, trials, strict=True):
        row["error"] = error_line(trial.error)
    if study.merits.are_several:  # the first figure has a column of its own name, too
        hidden |= {"figure_of_merit", "uncertainty"}
        for row in rows:
            row["pareto"] = "*" if row["pareto"] else None
    shown = [c for c in trial_columns(study.space, study.merits) if c not in hidden]
    may_be_empty = ("uncertainty", "error", *(f"{name}_uncertainty" for name in study.merits.names))
    shown = [c for c in shown if c not in may_be_empty or any(row[c] is not None for row in rows)]
    return aligned(shown, [[row[column] for column in shown] for row in rows], colour=colour)


def error_line(error: str | None) -> str | None:
    """The line of an error that says most: its first, unless that only announces a traceback; then its last."""
    lines = [line for line in (error or "").splitlines() if line.strip()]
    if not lines:
        return None
    return lines[-1].strip() if lines[0].startswith("Traceback") else lines[0].strip()


def trial_page(
    study: Study,
    trial: TrialRecord,
    folds: Sequence[FoldRecord],
    curves: Sequence[CurveRecord],
    attempts: Sequence[AttemptRecord],
    *,
    colour: bool = False,
) -> str:
    """Everything about one trial: hyperparameters, folds, curves as sparklines, attempts, the whole error."""
    facts = [
        ("study", study.name),
        ("trial", trial.number),
        ("state", trial.state + _early(study, trial, folds)),
        *_merits(study, trial),
        ("duration", None if trial.duration_s is None else f"{trial.duration_s:.3g} s"),
        ("started", trial.started_at),
        ("finished", trial.finished_at),
        ("budget", trial.budget),
        ("goes on from", trial.resume_from),
    ]
    parts = [_facts(facts), "hyperparameters\n" + _indented(_facts(list(trial.parameters.items())))]
    if folds:
        rows = [(fold.fold, fold.figure_of_merit, fold.duration_s) for fold in folds]
        parts.append("folds\n" + _indented(aligned(("fold", "figure_of_merit", "duration_s"), rows, colour=colour)))
    if curves:
        parts.append("curves\n" + _indented(curves_table(curves, colour=colour)))
    if attempts:
        columns = ("attempt", "block", "ranks", "hosts", "started_at", "finished_at", "outcome")
        rows = [[getattr(attempt, column) for column in columns] for attempt in attempts]
        parts.append("attempts\n" + _indented(aligned(columns, rows, colour=colour)))
        parts += [f"attempt {a.attempt} was lost: {a.error}" for a in attempts if a.outcome == "lost" and a.error]
    if trial.error:
        parts.append("error\n" + _indented(printable(trial.error)))
    return "\n\n".join(parts)


def _early(study: Study, trial: TrialRecord, folds: Sequence[FoldRecord]) -> str:
    """Why a pruned trial lacks folds, and what its figure of merit then is."""
    n_folds = number_of_folds(study.configuration)
    if trial.state != "pruned" or len(folds) in (0, n_folds):
        return ""
    return f" after {len(folds)} of {n_folds} folds; the figure of merit is what all would likely come to"


def _merits(study: Study, trial: TrialRecord) -> list[tuple[str, str | None]]:
    """A fact for each figure of merit, and whether the trial is on the Pareto front."""

    def shown(figure: float | None, spread: float | None) -> str:
        known = "none" if figure is None else cell(figure)
        return known + ("" if spread is None else f" ± {spread:.3g} (over the folds)")

    if not study.merits.are_several:
        return [("figure of merit", shown(trial.figure_of_merit, trial.uncertainty))]
    figures, spreads = trial.figures_of_merit, trial.uncertainties
    found = [(name, shown(figures.get(name), spreads.get(name))) for name in study.merits.names]
    return [*found, ("Pareto front", None if trial.pareto is None else "yes" if trial.pareto else "no")]


def curves_table(curves: Sequence[CurveRecord], *, colour: bool = False) -> str:
    """A line for each metric and fold: a sparkline, the first, last, lowest and highest value."""
    rows = []
    for curve in curves:
        known = [value for value in curve.values if math.isfinite(value)] or [math.nan]
        ends = (curve.values[0], curve.values[-1], min(known), max(known))
        rows.append((curve.fold, curve.name, sparkline(curve.values), len(curve.values), *ends))
    columns = ("fold", "metric", "curve", "epochs", "first", "last", "lowest", "highest")
    return aligned(columns, rows, colour=colour)


def events_table(events: Sequence[EventRecord], *, colour: bool = False) -> str:
    """A line for each event."""
    return aligned(("at", "kind", "detail"), [(e.at, e.kind, e.detail) for e in events], colour=colour)


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Comma-separated values with a heading; None is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def to_json(rows: Iterable[dict[str, Any]]) -> str:
    """A JSON list with a line for each row; what JSON has no number for is null."""
    lines = [json.dumps(_json_value(row), ensure_ascii=False, default=str) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def as_object(record: Any) -> dict[str, Any]:
    """A record for JSON: field -> value."""
    return {field: getattr(record, field) for field in record.__dataclass_fields__}


def study_object(study: StudyRecord) -> dict[str, Any]:
    """A study for JSON, without its configuration."""
    fields = ("name", "direction", "strategy", "seed", "created_at", "view", "counts")
    best = None if study.best is None else as_object(study.best)
    return {field: getattr(study, field) for field in fields} | {"best": best}


def table_of(study: Study, trials: Sequence[TrialRecord]) -> tuple[list[str], list[list[Any]]]:
    """The columns and rows of a full table of `trials`."""
    rows = [trial_row(trial, study.space, study.merits) for trial in trials]
    return trial_columns(study.space, study.merits), [list(row.values()) for row in rows]


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _facts(pairs: Sequence[tuple[str, Any]]) -> str:
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"{name:<{width}}  {cell(value)}" for name, value in pairs if value is not None)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
