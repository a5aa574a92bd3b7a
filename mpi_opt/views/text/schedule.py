"""The hyperparameters of a network that changed while it was trained: what population-based training has learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi_opt.views.text.tables import aligned

if TYPE_CHECKING:
    from mpi_opt.core.trial import TrialRecord
    from mpi_opt.study.study import Study


def lineage(study: Study, trial: TrialRecord) -> list[TrialRecord]:
    """The trials whose training `trial` goes on with, the first one first, and itself."""
    trials = {one.number: one for one in study.trials}
    found = [trial]
    while (before := trials.get(found[-1].resume_from)) is not None:
        found.append(before)
    return found[::-1]


def schedule(study: Study, trial: TrialRecord) -> list[dict[str, Any]]:
    """What held from when to when in the training of `trial`; empty if nothing changed.

    Returns:
        A row for each stretch: ``epochs`` (``"0 to 3"``), ``trials``, and the hyperparameters that changed at all.
    """
    trials = lineage(study, trial)
    changing = [name for name in study.space if len({repr(one.parameters.get(name)) for one in trials}) > 1]
    rows: list[dict[str, Any]] = []
    for one, before in zip(trials, [None, *trials], strict=False):
        values = {name: one.parameters.get(name) for name in changing}
        begun = 0 if before is None else before.budget or 0
        if rows and all(rows[-1][name] == value for name, value in values.items()):
            rows[-1]["trials"].append(one.number)
        else:
            rows.append({"from": begun, "trials": [one.number]} | values)
        rows[-1]["to"] = one.budget or 0
    return [_row(row, changing) for row in rows] if changing else []


def schedule_text(study: Study, trial: TrialRecord, *, colour: bool = False) -> str:
    """The schedule of `trial` as a table; empty if nothing changed."""
    rows = schedule(study, trial)
    return aligned(tuple(rows[0]), [tuple(row.values()) for row in rows], colour=colour) if rows else ""


def _row(row: dict[str, Any], changing: list[str]) -> dict[str, Any]:
    numbers = row["trials"]
    trials = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} … {numbers[-1]}"
    return {"epochs": f"{row['from']:g} to {row['to']:g}", "trials": trials} | {name: row[name] for name in changing}
