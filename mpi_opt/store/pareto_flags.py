"""The Pareto front of a study's complete trials, kept up to date within the transaction that enters their ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from sqlalchemy import Dialect, bindparam, literal_column, select

from mpi_opt.core.figures_of_merit import Merits
from mpi_opt.core.pareto import dominates
from mpi_opt.store.records import Finish
from mpi_opt.store.schema import figures_of_merit, trials
from mpi_opt.store.statements import Row, Statement
from mpi_opt.store.writing import trial_id


@final
class Front:
    """Finds the trials whose column ``pareto`` changes when others end.

    Args:
        dialect: The engine's.
    """

    def __init__(self, dialect: Dialect) -> None:
        figures = select(trials.c.id, figures_of_merit.c.name, figures_of_merit.c.value).join(
            figures_of_merit, figures_of_merit.c.trial_id == trials.c.id
        )
        on_front = figures.where(trials.c.study_id == bindparam("study_id"), trials.c.pareto == literal_column("1"))
        self._read = Statement(on_front, ["study_id"], dialect)

    def changes(self, cursor: Any, study_id: int, finished: Sequence[Finish], merits: Merits) -> list[Row]:
        """The trials that join the front, leave it, or end beside it.

        Args:
            cursor: Of the transaction that enters `finished`, which has locked the study's row.
            study_id: The study.
            finished: The trials that end, not on the front yet.
            merits: The study's figures of merit.
        """
        self._read.run(cursor, [{"study_id": study_id}])
        found: dict[int, dict[str, float]] = {}
        for trial, name, value in cursor.fetchall():
            found.setdefault(trial, {})[name] = value
        before = {trial: _minimised(figures, merits) for trial, figures in found.items()}
        after, changed = dict(before), {}
        for finish in finished:
            trial, outcome = trial_id(study_id, finish.outcome.number), finish.outcome
            changed[trial] = 0
            if outcome.state != "complete":
                continue
            mine = _minimised(outcome.figures_of_merit, merits)
            if any(dominates(other, mine) for other in after.values()):
                continue
            for other in [one for one, values in after.items() if dominates(mine, values)]:
                del after[other]
                changed[other] = 0
            after[trial], changed[trial] = mine, 1
        return [{"key_id": trial, "pareto": pareto} for trial, pareto in changed.items()]


def _minimised(figures: dict[str, float], merits: Merits) -> tuple[float, ...]:
    return tuple(sign * figures[name] for name, sign in zip(merits.names, merits.signs, strict=True))
