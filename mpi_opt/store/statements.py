"""The statements that a search repeats: SQLAlchemy compiles them once per dialect, and the driver runs the text.

A trial needs four statements. A Core statement takes 30 to 50 µs per run, the text passed to the driver 2 to 5 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Protocol

from sqlalchemy import (
    Delete,
    Dialect,
    Insert,
    Select,
    Table,
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
"""Values by the name of the parameter or column."""

Clause = Insert | Update | Delete | Select[Any]


class Cursor(Protocol):
    """The parts of a DBAPI cursor (PEP 249) that the store uses."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the last statement changed."""

    def execute(self, text: str, arguments: Any = ..., /) -> object:
        """Runs a statement."""

    def executemany(self, text: str, arguments: Sequence[Any], /) -> object:
        """Runs a statement once per element of `arguments`."""

    def fetchall(self) -> Sequence[Sequence[Any]]:
        """The rows that the last query found."""

    def close(self) -> None:
        """Closes the cursor."""


class Statement:
    """A Core statement as text for one driver.

    Args:
        clause: The statement.
        names: The names of its parameters, the keys of a row.
        dialect: The SQL dialect of the engine.
    """

    def __init__(self, clause: Clause, names: Sequence[str], dialect: Dialect) -> None:
        compiled = clause.compile(dialect=dialect, column_keys=list(names))
        self.text = str(compiled)
        self.arguments = _arguments(compiled.positiontup)

    def run(self, cursor: Cursor, rows: Sequence[Row]) -> int:
        """Runs the statement once for each of `rows`.

        Returns:
            The number of rows of the table that have changed.
        """
        if not rows:
            return 0
        if len(rows) == 1:
            cursor.execute(self.text, self.arguments(rows[0]))
        else:
            cursor.executemany(self.text, [self.arguments(row) for row in rows])
        return int(cursor.rowcount)


def _arguments(positions: list[str] | None) -> Callable[[Row], Any]:
    """A function that converts a row to the arguments of the driver; with named parameters the row itself."""
    if positions is None:
        return lambda row: row
    if len(positions) == 1:
        return lambda row: (row[positions[0]],)
    return itemgetter(*positions)


class Statements:
    """All statements for one dialect.

    The keys of a row are columns; keys that begin with ``key_`` select the rows to change. Only the process that runs
    the latest attempt of a trial can change the trial: for other processes the statement changes no row.
    """

    def __init__(self, dialect: Dialect) -> None:
        def insertion(table: Table, *names: str) -> Statement:
            return Statement(insert(table).values({name: bindparam(name) for name in names}), names, dialect)

        def change(table: Table, *names: str, key: Sequence[str] = ("id",), states: Sequence[str] = ()) -> Statement:
            clause = update(table).values({name: bindparam(name) for name in names})
            for column in key:
                clause = clause.where(table.c[column] == bindparam(f"key_{column}"))
            if states:
                clause = clause.where(table.c.state.in_([literal_column(f"'{state}'") for state in states]))
            return Statement(clause, [*names, *(f"key_{column}" for column in key)], dialect)

        def removal(table: Table) -> Statement:
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
