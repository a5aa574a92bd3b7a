"""Converts records to rows of the tables, keyed by column."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence

from mpi_opt.errors import without_passwords
from mpi_opt.store.records import Earlier, Finish, Start
from mpi_opt.store.schema import TRIALS_PER_STUDY
from mpi_opt.store.statements import Row


def trial_id(study_id: int, number: int) -> int:
    """The key of a trial in all tables."""
    return study_id * TRIALS_PER_STUDY + number


def started_trial(study_id: int, start: Start, at: str) -> Row:
    """A row of `trials` for a trial that starts; the keys select the row of a trial that starts again."""
    key = trial_id(study_id, start.number)
    return {
        "id": key,
        "key_id": key,
        "key_attempts": start.attempt - 1,
        "study_id": study_id,
        "number": start.number,
        "state": "running",
        "parameters": json.dumps(start.parameters, ensure_ascii=False),
        "started_at": at,
        "attempts": start.attempt,
        "budget": start.budget,
        "resume_from": start.resume_from,
    }


def transferred(study_id: int, earlier: Sequence[Earlier]) -> list[Row]:
    """Rows of `transferred`."""
    return [
        {
            "study_id": study_id,
            "position": position,
            "parameters": json.dumps(one.parameters, ensure_ascii=False),
            "figure_of_merit": one.figure_of_merit,
        }
        for position, one in enumerate(earlier)
    ]


def started_attempt(study_id: int, start: Start, at: str) -> Row:
    """A row of `attempts` for an attempt that starts."""
    return {
        "trial_id": trial_id(study_id, start.number),
        "attempt": start.attempt,
        "block": start.block,
        "ranks": start.ranks,
        "hosts": start.hosts,
        "started_at": at,
    }


def ended_trial(study_id: int, finish: Finish, at: str, ended: int) -> Row:
    """The columns that change when a trial ends as number `ended` of its study (0-based)."""
    outcome = finish.outcome
    return {
        "key_id": trial_id(study_id, outcome.number),
        "key_attempts": finish.attempt,
        "state": outcome.state,
        "figure_of_merit": _number(outcome.figure_of_merit),
        "uncertainty": _number(outcome.uncertainty),
        "finished_at": at,
        "duration_s": outcome.duration_s,
        "error": clean(outcome.error),
        "ended": ended,
    }


def ended_attempt(study_id: int, finish: Finish, at: str) -> Row:
    """The columns that change when an attempt ends."""
    return {
        "key_trial_id": trial_id(study_id, finish.outcome.number),
        "key_attempt": finish.attempt,
        "block": finish.block,
        "finished_at": at,
        "outcome": finish.outcome.state,
        "error": clean(finish.outcome.error),
    }


def ended_folds(study_id: int, finish: Finish) -> Iterator[Row]:
    """A row of `folds` for each fold."""
    key = trial_id(study_id, finish.outcome.number)
    for fold in finish.outcome.folds:
        yield {
            "trial_id": key,
            "fold": fold.fold,
            "figure_of_merit": _number(fold.figure_of_merit),
            "duration_s": fold.duration_s,
        }


def ended_figures(study_id: int, finish: Finish) -> Iterator[Row]:
    """A row of `figures_of_merit` for each figure, if there are several."""
    key, outcome = trial_id(study_id, finish.outcome.number), finish.outcome
    for name, value in outcome.figures_of_merit.items():
        yield {"trial_id": key, "name": name, "value": value, "uncertainty": _number(outcome.uncertainties.get(name))}


def ended_fold_figures(study_id: int, finish: Finish) -> Iterator[Row]:
    """A row of `fold_figures_of_merit` for each fold and figure, if there are several figures."""
    key = trial_id(study_id, finish.outcome.number)
    for fold in finish.outcome.folds:
        for name, value in fold.figures_of_merit.items():
            yield {"trial_id": key, "fold": fold.fold, "name": name, "value": _number(value)}


def ended_metrics(study_id: int, finish: Finish) -> Iterator[Row]:
    """A row of `metrics` for each fold, metric and epoch."""
    key = trial_id(study_id, finish.outcome.number)
    for fold in finish.outcome.folds:
        for name, values in fold.history.items():
            for epoch, value in enumerate(values):
                yield {"trial_id": key, "fold": fold.fold, "epoch": epoch, "name": name, "value": _number(value)}


def clean(text: str | None) -> str | None:
    """`text` without passwords in URLs, and without what databases refuse: NUL and unpaired surrogates."""
    if text is None:
        return None
    return without_passwords(text).replace("\0", "�").encode("utf-8", "replace").decode("utf-8")


def _number(value: float | None) -> float | None:
    """`value` as a Python float; NaN, which not every database holds, as NULL."""
    return None if value is None or math.isnan(value) else float(value)
