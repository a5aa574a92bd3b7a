"""The column ``pareto`` of a study's complete trials, updated in the transaction that records their outcomes."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, select

from mpi_opt.core.figures_of_merit import FiguresOfMerit, dominates
from mpi_opt.core.trial import Outcome
from mpi_opt.store.schema import figures_of_merit, trials


def changes(
    connection: Connection, study_id: int, ended: Mapping[int, Outcome], figures: FiguresOfMerit
) -> dict[int, int]:
    """The new values of ``pareto`` for the trials that end and for those that leave the front because of them.

    Args:
        connection: Within the transaction that records the outcomes and has locked the study's row.
        study_id: The study.
        ended: Key of a trial -> its outcome, for the trials that end and are not on the front yet.
        figures: The study's figures of merit.
    """
    front = _front(connection, study_id, figures)
    changed: dict[int, int] = {}
    for trial, outcome in ended.items():
        costs = figures.costs(outcome.figures_of_merit) if outcome.state == "complete" else None
        if costs is None or any(dominates(other, costs) for other in front.values()):
            changed[trial] = 0
            continue
        # trials that have just joined the front may leave it again because of a later one
        for dominated in [other for other, values in front.items() if dominates(costs, values)]:
            del front[dominated]
            changed[dominated] = 0
        front[trial], changed[trial] = costs, 1
    return changed


def _front(connection: Connection, study_id: int, figures: FiguresOfMerit) -> dict[int, tuple[float, ...]]:
    """Key -> costs of the trials that are on the front now."""
    query = select(trials.c.id, figures_of_merit.c.name, figures_of_merit.c.value).join(
        figures_of_merit, figures_of_merit.c.trial_id == trials.c.id
    )
    found: dict[int, dict[str, float]] = {}
    for trial, name, value in connection.execute(query.where(trials.c.study_id == study_id, trials.c.pareto == 1)):
        found.setdefault(trial, {})[name] = value
    return {trial: figures.costs({name: values[name] for name in figures.names}) for trial, values in found.items()}
