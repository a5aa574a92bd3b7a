"""The column ``pareto`` of a study's complete trials, updated in the transaction that records their outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from sqlalchemy import Dialect, bindparam, literal_column, select

from mpi_opt.core.figures_of_merit import Merits
from mpi_opt.core.pareto import dominates
from mpi_opt.store.records import Finish
from mpi_opt.store.rows import trial_id
from mpi_opt.store.schema import figures_of_merit, trials
from mpi_opt.store.statements import Cursor, Row, Statement


@final
class Front:
    """Finds the trials whose column ``pareto`` changes when trials end.

    Args:
        dialect: The SQL dialect of the engine.
    """

    def __init__(self, dialect: Dialect) -> None:
        figures = select(trials.c.id, figures_of_merit.c.name, figures_of_merit.c.value).join(
            figures_of_merit, figures_of_merit.c.trial_id == trials.c.id
        )
        on_front = figures.where(trials.c.study_id == bindparam("study_id"), trials.c.pareto == literal_column("1"))
        self._read = Statement(on_front, ["study_id"], dialect)

    def changes(self, cursor: Cursor, study_id: int, finished: Sequence[Finish], merits: Merits) -> list[Row]:
        """The new values of ``pareto``: of all `finished`, and of the trials that leave the front because of them.

        Args:
            cursor: Of the transaction that enters `finished`, which has locked the study's row.
            study_id: The study.
            finished: The trials that end, not on the front yet.
            merits: The study's figures of merit.
        """
        front = self._front(cursor, study_id, merits)
        changed: dict[int, int] = {}
        for finish in finished:
            trial, outcome = trial_id(study_id, finish.outcome.number), finish.outcome
            figures = _minimised(outcome.figures_of_merit, merits) if outcome.state == "complete" else None
            if figures is None or any(dominates(other, figures) for other in front.values()):
                changed[trial] = 0
                continue
            for dominated in [other for other, values in front.items() if dominates(figures, values)]:
                del front[dominated]
                changed[dominated] = 0
            front[trial], changed[trial] = figures, 1
        return [{"key_id": trial, "pareto": pareto} for trial, pareto in changed.items()]

    def _front(self, cursor: Cursor, study_id: int, merits: Merits) -> dict[int, tuple[float, ...]]:
        """Trial -> its figures of merit, to be minimised, for the trials that are on the front now."""
        self._read.run(cursor, [{"study_id": study_id}])
        found: dict[int, dict[str, float]] = {}
        for trial, name, value in cursor.fetchall():
            found.setdefault(trial, {})[name] = value
        return {trial: _minimised(figures, merits) for trial, figures in found.items()}


def _minimised(figures: dict[str, float], merits: Merits) -> tuple[float, ...]:
    return tuple(sign * figures[name] for name, sign in zip(merits.names, merits.signs, strict=True))
