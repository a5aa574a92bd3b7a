"""Converts records to rows of the tables. The keys of a row are the names of columns."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from mpi_opt.core.figures_of_merit import Merits
from mpi_opt.core.space import Space
from mpi_opt.core.trial import FoldOutcome
from mpi_opt.errors import without_passwords
from mpi_opt.store import schema
from mpi_opt.store.records import Earlier, Finish, Start, now
from mpi_opt.store.schema import TRIALS_PER_STUDY
from mpi_opt.store.statements import Row


def trial_id(study_id: int, number: int) -> int:
    """The key of a trial in all tables."""
    return study_id * TRIALS_PER_STUDY + number


def new_study(name: str, merits: Merits, strategy: str, seed: int, configuration: dict[str, Any], space: Space) -> Row:
    """A row of `studies`, without the name of its view."""
    return {
        "name": name,
        "direction": merits.directions[0],
        "selection": merits.selection,
        "merits": schema.merits_to_json(merits),
        "strategy": strategy,
        "seed": seed,
        "created_at": now(),
        "configuration": json.dumps(configuration, default=str),
        "space": schema.space_to_json(space),
    }


def started_trial(study_id: int, start: Start, at: str) -> Row:
    """A row of `trials` for a trial that starts; ``key_…`` select the existing row of a trial that starts again."""
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


def ended_folds(study_id: int, finished: Sequence[Finish]) -> list[Row]:
    """A row of `folds` for each fold."""
    return [
        {
            "trial_id": key,
            "fold": fold.fold,
            "figure_of_merit": _number(fold.figure_of_merit),
            "duration_s": fold.duration_s,
        }
        for key, fold in _folds(study_id, finished)
    ]


def ended_figures(study_id: int, finished: Sequence[Finish]) -> list[Row]:
    """A row of `figures_of_merit` for each of several figures of merit."""
    return [
        {
            "trial_id": trial_id(study_id, outcome.number),
            "name": name,
            "value": value,
            "uncertainty": _number(outcome.uncertainties.get(name)),
        }
        for outcome in (finish.outcome for finish in finished)
        for name, value in outcome.figures_of_merit.items()
    ]


def ended_fold_figures(study_id: int, finished: Sequence[Finish]) -> list[Row]:
    """A row of `fold_figures_of_merit` for each fold and each of several figures of merit."""
    return [
        {"trial_id": key, "fold": fold.fold, "name": name, "value": _number(value)}
        for key, fold in _folds(study_id, finished)
        for name, value in fold.figures_of_merit.items()
    ]


def ended_metrics(study_id: int, finished: Sequence[Finish]) -> list[Row]:
    """A row of `metrics` for each fold, metric and epoch."""
    return [
        {"trial_id": key, "fold": fold.fold, "epoch": epoch, "name": name, "value": _number(value)}
        for key, fold in _folds(study_id, finished)
        for name, values in fold.history.items()
        for epoch, value in enumerate(values)
    ]


def _folds(study_id: int, finished: Sequence[Finish]) -> Iterator[tuple[int, FoldOutcome]]:
    """The folds of all trials, each with the key of its trial."""
    for outcome in (finish.outcome for finish in finished):
        key = trial_id(study_id, outcome.number)
        for fold in outcome.folds:
            yield key, fold


def clean(text: str | None) -> str | None:
    """`text` without passwords in URLs and without characters that databases refuse: NUL and unpaired surrogates."""
    if text is None:
        return None
    return without_passwords(text).replace("\0", "�").encode("utf-8", "replace").decode("utf-8")


def _number(value: float | None) -> float | None:
    """`value` as a Python float; None in place of NaN, which some databases do not have."""
    return None if value is None or math.isnan(value) else float(value)
