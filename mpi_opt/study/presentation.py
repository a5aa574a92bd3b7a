"""A study as rows of a table, as text and as a data frame; for notebooks and for the command line."""

from __future__ import annotations

import html
from collections.abc import Container, Iterable, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from mpi_opt.core.counted import counted
from mpi_opt.core.figures import Measured
from mpi_opt.core.figures_of_merit import MAIN
from mpi_opt.core.search_space.space import Categorical, Integer, Real
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import StoreError, without_passwords
from mpi_opt.store.records import StudyRecord
from mpi_opt.store.study_view import FIRST_COLUMNS, StudyColumns

if TYPE_CHECKING:
    import pandas


CELL_WIDTH = 60

NOTE = "note"

CODE = "code"
"""The column with the number of the code that a trial ran with."""

LAST_COLUMNS = ("started_at", "finished_at", "attempts", "error", NOTE)
"""The columns of a table of trials after those of the SQL view of a study."""


def study_columns(study: StudyRecord) -> StudyColumns:
    """The names of the columns of a table of trials, as in the SQL view unless they are among `LAST_COLUMNS`."""
    return StudyColumns.of(study.space, study.figures_of_merit, (*_first_columns(study), *LAST_COLUMNS, CODE))


def _first_columns(study: StudyRecord) -> tuple[str, ...]:
    """The first columns: with ``budget``, in epochs, if a strategy has trained trials for different numbers of them."""
    return (*FIRST_COLUMNS, "budget") if study.has_budgets else FIRST_COLUMNS


def trial_columns(study: StudyRecord, without: Container[str] = ()) -> list[str]:
    """All columns of a table of trials, except those in `without`."""
    (row,) = trial_rows([TrialRecord(0, "queued", {})], study)
    return [column for column in row if column not in without]


def trial_rows(trials: Iterable[TrialRecord], study: StudyRecord) -> list[dict[str, Any]]:
    """Trials as flat rows with the columns of the SQL view, then `LAST_COLUMNS`; inactive hyperparameters are None.

    A study whose trials ran with several codes also has the column ``code``, the number of the code, before the last.
    """
    first, columns = _first_columns(study), study_columns(study)
    if study.n_codes < 2:
        return [_trial_row(trial, first, columns) for trial in trials]
    return [_with_code(_trial_row(trial, first, columns), trial) for trial in trials]


def _trial_row(trial: TrialRecord, first: Iterable[str], columns: StudyColumns) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(trial, name) for name in first}
    for figure, (value, uncertainty) in columns.figures.items():
        row[value] = found = trial.figures_of_merit.get(figure)
        row[uncertainty] = None if found is None else found.uncertainty
    if columns.pareto is not None:
        row[columns.pareto] = trial.pareto
    for parameter, column in columns.parameters.items():
        row[column] = with_null(trial.parameters[parameter]) if parameter in trial.parameters else None
    return row | {name: getattr(trial, name) for name in LAST_COLUMNS}


def main_figure_name(study: StudyRecord) -> str:
    """The name of the figure of merit, or of the first if there are several."""
    return shown_names(study)[0]


def shown_names(study: StudyRecord) -> list[str]:
    """The names of the figures of merit for users."""
    return ["figure of merit" if name == MAIN else name for name in study.figures_of_merit.names]


def _with_code(row: dict[str, Any], trial: TrialRecord) -> dict[str, Any]:
    last = {column: row.pop(column) for column in ("error", NOTE)}
    return row | {CODE: trial.code} | last


def figures_as_text(trial: TrialRecord, study: StudyRecord) -> list[tuple[str, str]]:
    """The name of each figure of merit of a trial, and its value ± its uncertainty."""
    found = map(trial.figures_of_merit.get, study.figures_of_merit.names)
    return list(zip(shown_names(study), map(_with_uncertainty, found), strict=True))


def _with_uncertainty(figure: Measured | None) -> str:
    if figure is None:
        return "none"
    return f"{figure:.6g}" + ("" if figure.uncertainty is None else f" ± {figure.uncertainty:.3g}")


def with_null(value: object) -> object:
    """The value of a hyperparameter that exists in a trial: ``null`` for the category None, as in a ``space.yaml``."""
    return "null" if value is None else value


def cell(value: object, width: int | None = CELL_WIDTH) -> str:
    """A value as one line of at most `width` characters; terminal control characters are replaced by �."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value).strip()
    if not text.isprintable():
        text = printable(text).replace("\n", " ⏎ ").replace("\t", " ⇥ ")
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"


def printable(text: str) -> str:
    """`text` with terminal control characters replaced by �, except line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)


def html_table(columns: Sequence[str], rows: Iterable[dict[str, Any]], attributes: Iterable[str] | None = None) -> str:
    """The columns `columns` of `rows` as an HTML table; `attributes` are the HTML attributes of each row."""
    headings = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr{given}>{''.join(f'<td>{html.escape(cell(row[column]))}</td>' for column in columns)}</tr>"
        for row, given in zip(rows, attributes or repeat(""), strict=False)
    )
    return f"<table><thead><tr>{headings}</tr></thead><tbody>{body}</tbody></table>"


def as_text(study: StudyRecord, best: TrialRecord | None, store: str, *, is_finished: bool) -> str:
    """The store, the states of the trials, and the best trial, in at most four lines."""
    pairs = zip(study.figures_of_merit.directions, shown_names(study), strict=True)
    aims = ", ".join(map(" ".join, pairs))
    lines = [
        f"Study {study.name!r} in {without_passwords(store)}: {'finished' if is_finished else 'not finished'}",
        f"{_trials(study)}; {aims}; strategy {study.strategy}",
    ]
    if best is not None:
        values = ", ".join(map(" ".join, figures_as_text(best, study)))
        lines.append(f"best: trial {best.number}, {values}")
        lines.append(", ".join(f"{name}={cell(with_null(value))}" for name, value in best.parameters.items()))
    return "\n  ".join(lines)


N_SHOWN = 10
"""How many trials a notebook shows."""


def as_html(study: StudyRecord, trials: Sequence[TrialRecord], text: str) -> str:
    """The first two lines of `text` about the study, and a table of the first `trials`."""
    trials = trials[:N_SHOWN]
    head = "<br>".join(html.escape(line.strip()) for line in text.splitlines()[:2])
    hidden = set(LAST_COLUMNS) - ({NOTE} if any(trial.note for trial in trials) else set())
    return f"<div>{head}{html_table(trial_columns(study, without=hidden), trial_rows(trials, study))}</div>"


def _trials(study: StudyRecord) -> str:
    """``13 trials: 12 complete, 1 failed``"""
    if not study.counts:
        return "no trials"
    states = ", ".join(f"{n} {state}" for state, n in study.counts.items())
    return f"{counted(study.n_trials, 'trial')}: {states}"


TIMES = ("started_at", "finished_at")

MAX_EXACT = 2**53
"""Up to this, floats have all integers; larger ones are in columns of the type Int64 of pandas, with NA."""


def data_frame(study: StudyRecord, trials: Sequence[TrialRecord]) -> pandas.DataFrame:
    """A row for each trial: times as UTC, numbers as floats or integers, NaN in place of missing ones.

    Raises:
        StoreError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise StoreError("a data frame needs pandas", cure="pip install mpi-opt[plots]") from None
    rows = trial_rows(trials, study)
    frame = pandas.DataFrame(rows, columns=trial_columns(study))
    named = study_columns(study)
    kinds = {column: study.space[name] for name, column in named.parameters.items()}
    numbers = ["figure_of_merit", "uncertainty", "duration_s", *chain(*named.figures.values())]
    numbers += [column for column, dimension in kinds.items() if isinstance(dimension, Real)]
    integers = {column: kind for column, kind in kinds.items() if isinstance(kind, Integer)}
    # they remain integers, unless the hyperparameter is inactive in a trial
    numbers += [column for column in integers if frame[column].dtype.kind != "i"]
    frame = frame.astype(dict.fromkeys(numbers, float))
    for name, column in named.parameters.items():  # tables show the category None as text
        if isinstance(kinds[column], Categorical) and None in kinds[column]:
            values = [trial.parameters.get(name) for trial in trials]
            frame[column] = pandas.Series(values, index=frame.index, dtype=object)  # integers stay integers
    for column, kind in integers.items():
        if column in numbers and max(abs(kind.low), abs(kind.high)) > MAX_EXACT:
            frame[column] = pandas.array([row[column] for row in rows], dtype="Int64")
    return frame.assign(**{time: pandas.to_datetime(frame[time], utc=True, format="ISO8601") for time in TIMES})
