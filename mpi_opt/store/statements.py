"""The statements that a search repeats: SQLAlchemy compiles them once for the dialect; the driver runs the text.

Running a Core statement takes 30 to 50 µs each time, passing its text to the driver 2 to 5 µs. A trial needs four.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    Delete,
    Dialect,
    Insert,
    Select,
    Update,
    bindparam,
    delete,
    insert,
    literal_column,
    select,
    update,
)

from mpi_opt.core.trial import UNFINISHED
from mpi_opt.store.schema import (
    attempts,
    events,
    figures_of_merit,
    fold_figures_of_merit,
    folds,
    metrics,
    studies,
    trials,
)

Row = dict[str, Any]
Clause = Insert | Update | Delete | Select


class Statement:
    """A Core statement as text for one driver.

    Args:
        clause: The statement; `names` are its parameters.
        names: The keys of a row.
        dialect: The engine's.
    """

    def __init__(self, clause: Clause, names: Sequence[str], dialect: Dialect) -> None:
        compiled = clause.compile(dialect=dialect, column_keys=list(names))
        self.text = str(compiled)
        self.arguments = _arguments(compiled.positiontup)

    def run(self, cursor: Any, rows: Sequence[Row]) -> int:
        """Runs it once for each row, on a DBAPI cursor.

        Returns:
            How many rows of the table it has changed.
        """
        if not rows:
            return 0
        if len(rows) == 1:
            cursor.execute(self.text, self.arguments(rows[0]))
        else:
            cursor.executemany(self.text, [self.arguments(row) for row in rows])
        return int(cursor.rowcount)


def _arguments(positions: list[str] | None) -> Callable[[Row], Any]:
    """A function from a row to the driver's arguments; the row itself where parameters are named."""
    if positions is None:
        return lambda row: row
    if len(positions) == 1:
        return lambda row: (row[positions[0]],)
    return itemgetter(*positions)


class Statements:
    """All statements for one dialect.

    Rows are keyed by column; keys that begin with ``key_`` select the rows to change. A trial is changed by the process
    that runs its latest attempt alone: the others change no row.
    """

    def __init__(self, dialect: Dialect) -> None:
        def insertion(table: Any, *names: str) -> Statement:
            return Statement(insert(table).values({name: bindparam(name) for name in names}), names, dialect)

        def change(table: Any, *names: str, key: Sequence[str] = ("id",), states: Sequence[str] = ()) -> Statement:
            clause = update(table).values({name: bindparam(name) for name in names})
            for column in key:
                clause = clause.where(table.c[column] == bindparam(f"key_{column}"))
            if states:
                clause = clause.where(table.c.state.in_([literal_column(f"'{state}'") for state in states]))
            return Statement(clause, [*names, *(f"key_{column}" for column in key)], dialect)

        def removal(table: Any) -> Statement:
            clause = delete(table).where(table.c.trial_id == bindparam("key_id"))
            return Statement(clause, ["key_id"], dialect)

        self.insert_trial = insertion(
            trials, "id", "study_id", "number", "state", "parameters", "started_at", "attempts", "budget", "resume_from"
        )
        self.restart_trial = change(
            trials, "state", "started_at", "attempts", key=("id", "attempts"), states=("queued",)
        )
        self.finish_trial = change(
            trials,
            *("state", "figure_of_merit", "uncertainty", "finished_at", "duration_s", "error", "ended"),
            key=("id", "attempts"),
            states=UNFINISHED,
        )
        self.requeue_trial = change(trials, "state", "error", states=UNFINISHED)
        self.insert_attempt = insertion(attempts, "trial_id", "attempt", "block", "ranks", "hosts", "started_at")
        self.finish_attempt = change(attempts, "block", "finished_at", "outcome", "error", key=("trial_id", "attempt"))
        self.lose_attempts = self._lose_attempts(dialect)
        self.insert_fold = insertion(folds, "trial_id", "fold", "figure_of_merit", "duration_s")
        self.insert_metric = insertion(metrics, "trial_id", "fold", "epoch", "name", "value")
        self.remove_folds, self.remove_metrics = removal(folds), removal(metrics)
        self.insert_figure = insertion(figures_of_merit, "trial_id", "name", "value", "uncertainty")
        self.insert_fold_figure = insertion(fold_figures_of_merit, "trial_id", "fold", "name", "value")
        self.remove_fold_figures = removal(fold_figures_of_merit)
        self.place_on_front = change(trials, "pareto")
        self.insert_event = insertion(events, "study_id", "at", "kind", "detail")
        this_study, count = studies.c.id == bindparam("study_id"), studies.c.n_ended + bindparam("count")
        self.count_ended = Statement(
            update(studies).values(n_ended=count).where(this_study), ["study_id", "count"], dialect
        )
        self.read_ended = Statement(select(studies.c.n_ended).where(this_study), ["study_id"], dialect)

    @staticmethod
    def _lose_attempts(dialect: Dialect) -> Statement:
        names = ("finished_at", "outcome", "error")
        clause = (
            update(attempts)
            .values({name: bindparam(name) for name in names})
            .where(attempts.c.trial_id == bindparam("key_id"), attempts.c.finished_at.is_(None))
        )
        return Statement(clause, [*names, "key_id"], dialect)
