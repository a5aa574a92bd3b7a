"""The queries of the store. Every function takes an open connection and changes nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, and_, func, inspect, select

from mpi_opt.core.collecting import collector_paused
from mpi_opt.core.figures import Figures, Measured
from mpi_opt.core.figures_of_merit import IN_STAGES, FiguresOfMerit
from mpi_opt.core.trial import FINISHED, TRIALS_PER_STUDY, State, TrialRecord
from mpi_opt.store.events import HINT
from mpi_opt.store.records import (
    AttemptRecord,
    CodeRecord,
    CurveRecord,
    EarlierTrial,
    EventRecord,
    FoldRecord,
    StudyRecord,
)
from mpi_opt.store.schema import (
    attempts,
    codes,
    events,
    figures_from_json,
    figures_of_merit,
    folds,
    metrics,
    space_from_json,
    studies,
    transferred,
    trials,
)

MAX_SELECTED = 1000
"""Up to this many trials, figures of merit are selected by number; otherwise those of the whole study are read."""

OTHER_COLUMNS = tuple(trials.c[field.name] for field in fields(TrialRecord)[3:] if field.name in trials.c)
"""The columns of `trials` that are fields of `TrialRecord` after the first ones; ``pareto`` is the last."""

RESUME_FROM = [column.name for column in OTHER_COLUMNS].index("resume_from")

SELECT_TRIALS = select(
    *(trials.c[name] for name in ("number", "state", "parameters", "figure_of_merit", "uncertainty")),
    *OTHER_COLUMNS,
    attempts.c.code,
).outerjoin(attempts, and_(attempts.c.trial_id == trials.c.id, attempts.c.attempt == trials.c.attempts))
"""Trials, and the code of the latest attempt of each."""


UNLIMITED = 1e300
"""In place of the budget of a trial that has none."""


def read_studies(connection: Connection) -> list[StudyRecord]:
    """All studies, in the order in which they were created."""
    return [_study(connection, row) for row in connection.execute(select(studies).order_by(studies.c.id))]


def read_study(connection: Connection, name: str) -> StudyRecord | None:
    """The study of this name, if there is one."""
    row = connection.execute(select(studies).where(studies.c.name == name)).one_or_none()
    return None if row is None else _study(connection, row)


def read_study_figures(connection: Connection, study_id: int) -> FiguresOfMerit:
    """The figures of merit of a study."""
    columns = (studies.c.merits, studies.c.direction, studies.c.selection, studies.c.configuration)
    row = connection.execute(select(*columns).where(studies.c.id == study_id)).one()
    return figures_from_json(row.merits, row.direction, row.selection, row.configuration)


def read_trials(
    connection: Connection, study_id: int, states: Iterable[State] | None = None, numbers: Sequence[int] | None = None
) -> list[TrialRecord]:
    """The trials in one of `states` and of `numbers` (None: all), by number."""
    query = SELECT_TRIALS.where(trials.c.study_id == study_id).order_by(trials.c.number)
    if states is not None:
        query = query.where(trials.c.state.in_(list(states)))
    if numbers is not None:
        query = query.where(trials.c.number.in_(list(numbers)))
    return _trials(connection, study_id, query)


def read_earlier(connection: Connection, study_id: int) -> list[EarlierTrial]:
    """The trials of another study that were transferred when this study was created, best first."""
    columns = (transferred.c.parameters, transferred.c.figure_of_merit)
    query = select(*columns).where(transferred.c.study_id == study_id).order_by(transferred.c.position)
    return [EarlierTrial(json.loads(parameters), figure) for parameters, figure in connection.execute(query)]


def read_ended(connection: Connection, study_id: int) -> list[TrialRecord]:
    """The finished trials in the order in which they ended.

    In databases of versions 1 and 2 two trials may have the same position; then the time and the number decide.
    """
    query = SELECT_TRIALS.where(trials.c.study_id == study_id, trials.c.state.in_(FINISHED))
    return _trials(connection, study_id, query.order_by(trials.c.ended, trials.c.finished_at, trials.c.number))


def read_latest_ended(connection: Connection, study_id: int, count: int) -> list[TrialRecord]:
    """The `count` trials that have ended last, the latest one first."""
    query = SELECT_TRIALS.where(trials.c.study_id == study_id, trials.c.ended.is_not(None))
    return _trials(connection, study_id, query.order_by(trials.c.ended.desc()).limit(count))


def read_latest_times(connection: Connection, study_id: int, count: int) -> list[tuple[str, str]]:
    """Start and end of the trials of `read_latest_ended`: of thousands, these are read much faster than the trials."""
    query = select(func.coalesce(trials.c.started_at, ""), func.coalesce(trials.c.finished_at, "")).where(
        trials.c.study_id == study_id, trials.c.ended.is_not(None)
    )
    return [(began, ended) for began, ended in connection.execute(query.order_by(trials.c.ended.desc()).limit(count))]


def read_best(
    connection: Connection, study_id: int, maximize: bool, count: int = 1, *, longest_first: bool = False
) -> list[TrialRecord]:
    """The `count` best complete trials, best first; among equal ones the Pareto front first, then by number.

    With `longest_first` the trials with the most epochs precede others, whatever their figures of merit.
    """
    figure = trials.c.figure_of_merit
    query = SELECT_TRIALS.where(trials.c.study_id == study_id, trials.c.state == "complete", figure.is_not(None))
    if longest_first:
        query = query.order_by(func.coalesce(trials.c.budget, UNLIMITED).desc())
    order = figure.desc() if maximize else figure.asc()
    return _trials(
        connection, study_id, query.order_by(order, func.coalesce(-trials.c.pareto, 0), trials.c.number).limit(count)
    )


def read_front(connection: Connection, study_id: int) -> list[TrialRecord]:
    """The trials on the Pareto front, by number; none with a single figure of merit."""
    query = SELECT_TRIALS.where(trials.c.study_id == study_id, trials.c.pareto == 1)
    return _trials(connection, study_id, query.order_by(trials.c.number))


def read_folds(connection: Connection, study_id: int, numbers: Sequence[int] | None = None) -> list[FoldRecord]:
    """The folds of the trials `numbers` (None: all), by trial and fold."""
    query = _of_trials(folds, (folds.c.fold, folds.c.figure_of_merit, folds.c.duration_s), study_id, numbers)
    return [FoldRecord(*row) for row in connection.execute(query.order_by(folds.c.trial_id, folds.c.fold))]


def read_curves(connection: Connection, study_id: int, numbers: Sequence[int] | None = None) -> list[CurveRecord]:
    """The metrics of the trials `numbers` (None: all), by trial, fold and name."""
    columns = (metrics.c.fold, metrics.c.name, metrics.c.epoch, metrics.c.value)
    query = _of_trials(metrics, columns, study_id, numbers)
    order = (metrics.c.trial_id, metrics.c.fold, metrics.c.epoch)
    curves: dict[tuple[int, int, str], tuple[list[int], list[float]]] = {}
    for number, fold, name, epoch, value in connection.execute(query.order_by(*order)):
        epochs, values = curves.setdefault((number, fold, name), ([], []))
        epochs.append(epoch)
        values.append(math.nan if value is None else value)
    # consecutive epochs from 0 on need no list
    return [
        CurveRecord(*key, values, [] if epochs[-1] == len(epochs) - 1 else epochs)
        for key, (epochs, values) in sorted(curves.items())
    ]


def read_attempts(connection: Connection, study_id: int, numbers: Sequence[int] | None = None) -> list[AttemptRecord]:
    """The attempts of the trials `numbers` (None: all), by trial and attempt."""
    columns = tuple(column for column in attempts.c if column.name != "trial_id")
    query = _of_trials(attempts, columns, study_id, numbers)
    return [AttemptRecord(*row) for row in connection.execute(query.order_by(attempts.c.trial_id, attempts.c.attempt))]


def read_events(connection: Connection, study_id: int) -> list[EventRecord]:
    """The events of the search, in order of time."""
    query = select(events.c.at, events.c.kind, events.c.detail).where(events.c.study_id == study_id)
    return [EventRecord(*row) for row in connection.execute(query.order_by(events.c.id))]


def read_hints(connection: Connection, study_id: int) -> list[str]:
    """The details of the events of the kind ``hint``, in order of time."""
    query = select(events.c.detail).where(events.c.study_id == study_id, events.c.kind == HINT)
    return list(connection.execute(query.order_by(events.c.id)).scalars())


def read_codes(connection: Connection, study_id: int) -> list[CodeRecord]:
    """The codes of the trials of a study, by number."""
    query = select(codes).where(codes.c.study_id == study_id).order_by(codes.c.number)
    return [
        CodeRecord(
            files=json.loads(row.files),
            packages=json.loads(row.packages),
            data=json.loads(row.data),
            git_commit=row.git_commit,
            objective=json.loads(row.objective),
            number=row.number,
            since=row.since,
        )
        for row in connection.execute(query)
    ]


def read_latest_code(connection: Connection, study_id: int) -> int | None:
    """The number of the code of the attempt that started last; None without attempts, or if it is unknown."""
    query = select(attempts.c.code).join(trials, attempts.c.trial_id == trials.c.id)
    query = query.where(trials.c.study_id == study_id).order_by(
        attempts.c.started_at.desc(), attempts.c.trial_id.desc()
    )
    return connection.execute(query.limit(1)).scalar()


def read_missing(connection: Connection, study_id: int) -> list[int]:
    """The numbers of trials whose rows were deleted from `trials`, except the last ones."""
    known = set(connection.scalars(select(trials.c.number).where(trials.c.study_id == study_id)))
    return sorted(set(range(max(known, default=-1) + 1)) - known)


def read_left_over(connection: Connection, study_id: int) -> list[int]:
    """The numbers of trials whose rows were deleted from `trials`, but not their attempts.

    SQLite permits this in a program that has not switched foreign keys on, such as its own.
    """
    begin = study_id * TRIALS_PER_STUDY
    of_study = attempts.c.trial_id.between(begin, begin + TRIALS_PER_STUDY - 1)
    query = select(attempts.c.trial_id).distinct().where(of_study, trials.c.id.is_(None))
    found = connection.execute(query.outerjoin_from(attempts, trials, attempts.c.trial_id == trials.c.id))
    return sorted(key - begin for key in found.scalars())


def read_sql(connection: Connection, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The column names and rows of a query in SQL."""
    if connection.dialect.paramstyle in ("format", "pyformat"):
        query = query.replace("%", "%%")  # in these drivers % begins a parameter
    result = connection.exec_driver_sql(query)
    if not result.returns_rows:
        return [], []
    return list(result.keys()), [tuple(row) for row in result]


def read_names(connection: Connection) -> list[str]:
    """The names of all views, one per study, and tables."""
    database = inspect(connection)
    return [*database.get_view_names(), *database.get_table_names()]


def _study(connection: Connection, row: Row[Any]) -> StudyRecord:
    counts = select(trials.c.state, func.count()).where(trials.c.study_id == row.id).group_by(trials.c.state)
    n_codes = select(func.count()).select_from(codes).where(codes.c.study_id == row.id)
    budget = func.coalesce(trials.c.budget, UNLIMITED)
    least, most = (select(end(budget)).where(trials.c.study_id == row.id) for end in (func.min, func.max))
    # without budgets, all trials have the same one here
    has_budgets = connection.scalar(least) != connection.scalar(most)
    figures = figures_from_json(row.merits, row.direction, row.selection, row.configuration)
    longest_first = has_budgets and row.strategy not in IN_STAGES and not figures.are_several
    best = read_best(connection, row.id, row.direction == "maximize", longest_first=longest_first)
    return StudyRecord(
        id=row.id,
        name=row.name,
        direction=row.direction,
        strategy=row.strategy,
        seed=row.seed,
        created_at=row.created_at,
        configuration=json.loads(row.configuration),
        space=space_from_json(row.space),
        view=row.view_name,
        counts={state: count for state, count in connection.execute(counts)},  # noqa: C416 (rows are not tuples)
        best=best[0] if best else None,
        figures_of_merit=figures,
        n_codes=connection.scalar(n_codes) or 0,
        has_budgets=has_budgets,
        commands=tuple(json.loads(row.commands or "[]")),
    )


@collector_paused()
def _trials(connection: Connection, study_id: int, query: Select[Any]) -> list[TrialRecord]:
    names = read_study_figures(connection, study_id).names
    records = [_trial(row, names[0]) for row in connection.execute(query).all()]
    if len(names) == 1:
        return records
    figures = _figures(connection, study_id, names, [record.number for record in records])
    return [replace(record, figures_of_merit=figures.get(record.number, Figures())) for record in records]


def _trial(row: Row[Any], name: str) -> TrialRecord:
    """A trial from a row of `SELECT_TRIALS`. Of several figures of merit, it has the first one, called `name`.

    Raises:
        ValueError: `resume_from` is not the number of an earlier trial. Chains of resumed trials would not end.
    """
    number, state, parameters, figure, uncertainty, *middle, pareto, code = tuple(row)
    resume_from = middle[RESUME_FROM]  # an attribute of the row takes ten times as long, and there may be many rows
    if resume_from is not None and resume_from not in range(number):
        raise ValueError(f"trial {number} cannot resume from trial {resume_from}")
    figures = Figures() if figure is None else Figures({name: Measured(figure, uncertainty)})
    others = [*middle, None if pareto is None else bool(pareto), code]
    return TrialRecord(number, state, json.loads(parameters), figures, *others)


def _figures(connection: Connection, study_id: int, names: Sequence[str], numbers: Sequence[int]) -> dict[int, Figures]:
    """Trial number -> its figures of merit, at least for the trials `numbers`."""
    columns = (figures_of_merit.c.name, figures_of_merit.c.value, figures_of_merit.c.uncertainty)
    chosen = numbers if len(numbers) <= MAX_SELECTED else None
    rows = connection.execute(_of_trials(figures_of_merit, columns, study_id, chosen)).all()
    found: dict[int, Figures] = {}
    for number, name, value, uncertainty in sorted(rows, key=lambda row: names.index(row.name)):
        found.setdefault(number, Figures())[name] = Measured(value, uncertainty)
    return found


def _of_trials(table: Table, columns: Sequence[Any], study_id: int, numbers: Sequence[int] | None) -> Select[Any]:
    query = select(trials.c.number, *columns).join(table, table.c.trial_id == trials.c.id)
    query = query.where(trials.c.study_id == study_id)
    return query if numbers is None else query.where(trials.c.number.in_(list(numbers)))
