"""The schedule of the hyperparameters that changed during a training, for example by population-based training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from mpi_opt.core.trial import TrialRecord
from mpi_opt.study.study import Study
from mpi_opt.views.text.tables import aligned


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
