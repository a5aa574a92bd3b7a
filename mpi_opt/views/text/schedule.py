"""The schedule of the hyperparameters that changed during a training, for example by population-based training."""

from __future__ import annotations

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


def schedule(study: Study, trial: TrialRecord) -> list[dict[str, Any]]:
    """The values of the changing hyperparameters in the training of `trial`; empty if none changed.

    Returns:
        A row for each interval of constant values: ``epochs`` (``"0 to 3"``), ``trials``, and the hyperparameters that
        changed in the training.
    """
    trials = lineage(study, trial)
    changing = [name for name in study.space if len({repr(trial.parameters.get(name)) for trial in trials}) > 1]
    if not changing:
        return []
    intervals = groupby(trials, key=lambda trial: {name: trial.parameters.get(name) for name in changing})
    rows: list[dict[str, Any]] = []
    begin = 0.0
    for values, group in intervals:
        members = list(group)
        first, last, end = members[0].number, members[-1].number, members[-1].budget or 0
        numbers = str(first) if first == last else f"{first} … {last}"
        rows.append({"epochs": f"{begin:g} to {end:g}", "trials": numbers} | values)
        begin = end
    return rows


def schedule_text(study: Study, trial: TrialRecord, *, colour: bool = False) -> str:
    """The schedule of `trial` as a table; empty if no hyperparameter changed."""
    rows = schedule(study, trial)
    return aligned(tuple(rows[0]), [tuple(row.values()) for row in rows], colour=colour) if rows else ""
