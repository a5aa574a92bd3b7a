"""Trials as rows of a table, and their values as text."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mpi_opt.core.trial import TrialRecord

if TYPE_CHECKING:
    from mpi_opt.core.figures_of_merit import Merits
    from mpi_opt.core.space import Space

CELL_WIDTH = 60


def trial_columns(space: Space, merits: Merits) -> list[str]:
    """The columns of a table of trials, as in the view of a study.

    A hyperparameter named like another column is ``parameter_NAME``; of several figures of merit one is ``merit_NAME``.
    """
    return list(trial_row(TrialRecord(0, "queued", {}), space, merits))


def trial_row(trial: TrialRecord, space: Space, merits: Merits) -> dict[str, Any]:
    """A trial as a flat row; hyperparameters that were inactive are None."""
    row = {
        "number": trial.number,
        "state": trial.state,
        "figure_of_merit": trial.figure_of_merit,
        "uncertainty": trial.uncertainty,
        "duration_s": trial.duration_s,
    }
    tail = {
        "started_at": trial.started_at,
        "finished_at": trial.finished_at,
        "attempts": trial.attempts,
        "error": trial.error,
    }
    if merits.are_several:
        row |= _figures(trial, merits, taken={*row, *tail})
    for name in space:
        column = f"parameter_{name}" if name in row or name in tail else name
        row[column] = trial.parameters.get(name)
    return row | tail


def _figures(trial: TrialRecord, merits: Merits, taken: set[str]) -> dict[str, Any]:
    """Several figures of merit and their uncertainties as columns, and whether the trial is on the Pareto front."""
    row: dict[str, Any] = {}
    for name in merits.names:
        for column, values in ((name, trial.figures_of_merit), (f"{name}_uncertainty", trial.uncertainties)):
            row[f"merit_{column}" if column in taken else column] = values.get(name)
    return row | {"pareto": trial.pareto}


def cell(value: Any, width: int | None = CELL_WIDTH) -> str:
    """A value in one line of at most `width` characters; control characters, which could steer a terminal, become �."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value).strip()
    if not text.isprintable():
        text = printable(text).replace("\n", " ⏎ ")
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"


def printable(text: str) -> str:
    """`text` without characters that could steer a terminal, except line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)


def html_table(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """The columns `columns` of `rows` as an HTML table."""
    headings = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell(row[column]))}</td>' for column in columns)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{headings}</tr></thead><tbody>{body}</tbody></table>"
