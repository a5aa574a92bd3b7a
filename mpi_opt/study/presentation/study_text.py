"""A study as a few lines of text, and as HTML for a notebook."""

from __future__ import annotations

import html
from collections.abc import Sequence

from mpi_opt.core.counted import counted
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import without_passwords
from mpi_opt.store.records import StudyRecord
from mpi_opt.study.presentation.trial_table import (
    LAST_COLUMNS,
    NOTE,
    cell,
    figures_as_text,
    html_table,
    shown_names,
    trial_columns,
    trial_rows,
    with_null,
)


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


def as_html(study: StudyRecord, trials: Sequence[TrialRecord], text: str) -> str:
    """The first two lines of `text` about the study, and a table of `trials`."""
    head = "<br>".join(html.escape(line.strip()) for line in text.splitlines()[:2])
    hidden = set(LAST_COLUMNS) - ({NOTE} if any(trial.note for trial in trials) else set())
    return f"<div>{head}{html_table(trial_columns(study, without=hidden), trial_rows(trials, study))}</div>"


def _trials(study: StudyRecord) -> str:
    """``13 trials: 12 complete, 1 failed``"""
    if not study.counts:
        return "no trials"
    states = ", ".join(f"{n} {state}" for state, n in study.counts.items())
    return f"{counted(study.n_trials, 'trial')}: {states}"
