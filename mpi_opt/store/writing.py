"""The changes of the store. Every function runs its statements in a transaction that the caller has begun.

Only the process that runs the latest attempt of a trial can start or end it: the statements of other processes match
no row. The functions then raise `StoreConflictError`, and the caller rolls its transaction back. `requeue` does not
compare attempts: a search calls it only while it owns the study.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BindParameter,
    Connection,
    Update,
    bindparam,
    case,
    insert,
    literal_column,
    or_,
    select,
    update,
)

from mpi_opt.core.attempt import Attempt
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.core.trial import TRIALS_PER_STUDY, UNFINISHED, Outcome
from mpi_opt.errors import shortened, without_passwords
from mpi_opt.store import pareto_flags, schema, study_view
from mpi_opt.store.database import Row, run
from mpi_opt.store.errors import conflict
from mpi_opt.store.records import CHOSEN, CodeRecord, EarlierTrial, GivenBack, GivenUp, StudyRecord, now
from mpi_opt.store.schema import (
    attempts,
    codes,
    events,
    figures_of_merit,
    fold_figures_of_merit,
    folds,
    metrics,
    studies,
    transferred,
    trials,
)

MAX_COMMANDS = 20
"""The largest number of commands that are kept of a study."""

_json = json.JSONEncoder(ensure_ascii=False).encode

KEY: BindParameter[int] = bindparam("key")
ATTEMPT: BindParameter[int] = bindparam("key_attempt")
# `IN` does not work with executemany; literals, because `run` would have to add parameters to each row
IS_UNFINISHED = or_(*(trials.c.state == literal_column(f"'{state}'") for state in UNFINISHED))

INSERT_TRIAL, INSERT_ATTEMPT, INSERT_FOLD, INSERT_METRIC = map(insert, (trials, attempts, folds, metrics))
INSERT_FIGURE, INSERT_FOLD_FIGURE = map(insert, (figures_of_merit, fold_figures_of_merit))
INSERT_EVENT, INSERT_TRANSFERRED = map(insert, (events, transferred))
RESTART_TRIAL = update(trials).where(trials.c.id == KEY, trials.c.attempts == ATTEMPT, trials.c.state == "queued")
END_TRIAL = update(trials).where(trials.c.id == KEY, trials.c.attempts == ATTEMPT, IS_UNFINISHED)
REQUEUE_TRIAL = update(trials).where(trials.c.id == KEY, IS_UNFINISHED)
GIVE_BACK_TRIAL = REQUEUE_TRIAL.where(trials.c.attempts == ATTEMPT)
CHANGE_TRIAL = update(trials).where(trials.c.id == KEY)
END_ATTEMPT = update(attempts).where(attempts.c.trial_id == KEY, attempts.c.attempt == ATTEMPT)
GIVEN_UP_AT: BindParameter[str] = bindparam("given_up_at")
GIVE_UP_ATTEMPT = (
    update(attempts)
    .where(attempts.c.trial_id == KEY, attempts.c.finished_at.is_(None))
    # the last sign of life of a killed search may be older than an attempt
    .values(finished_at=case((attempts.c.started_at > GIVEN_UP_AT, attempts.c.started_at), else_=GIVEN_UP_AT))
)
MARK_ATTEMPT_LOST = END_ATTEMPT.where(attempts.c.outcome == "killed")
COUNT_ENDED = update(studies).where(studies.c.id == KEY).values(n_ended=studies.c.n_ended + bindparam("count"))
READ_N_ENDED = select(studies.c.n_ended).where(studies.c.id == KEY)


def trial_id(study_id: int, number: int) -> int:
    """The key of a trial in all tables."""
    return study_id * TRIALS_PER_STUDY + number


def create_study(
    connection: Connection,
    name: str,
    figures: FiguresOfMerit,
    strategy: str,
    seed: int,
    configuration: dict[str, Any],
    space: Space,
    earlier: Sequence[EarlierTrial],
) -> None:
    """Inserts a study, its view, and the trials `earlier` of another study that are transferred to it."""
    views = connection.scalars(select(studies.c.view_name)).all()
    view = study_view.view_name(name, views, connection.dialect)
    row = {
        "name": name,
        "direction": figures.directions[0],
        "selection": figures.selection,
        "merits": schema.figures_to_json(figures),
        "strategy": strategy,
        "seed": seed,
        "created_at": now(),
        "configuration": json.dumps(configuration, default=str),
        "space": schema.space_to_json(space),
        "view_name": view,
    }
    connection.execute(insert(studies).values(row))
    study_id = connection.scalars(select(studies.c.id).where(studies.c.name == name)).one()
    connection.exec_driver_sql(study_view.create_view(view, study_id, space, figures, connection.dialect))
    rows = [
        {"position": position, "parameters": json.dumps(trial.parameters, ensure_ascii=False)}
        | {"study_id": study_id, "figure_of_merit": trial.figure_of_merit}
        for position, trial in enumerate(earlier)
    ]
    run(connection, INSERT_TRANSFERRED, rows)


def record(
    connection: Connection,
    study_id: int,
    ended: Sequence[Attempt],
    started: Sequence[Attempt],
    figures: FiguresOfMerit,
) -> None:
    """Records trials as running, and the outcomes of trials, also of those that start here."""
    at = now()
    if started:  # first: a trial that is added by hand starts and ends in the same call
        _start(connection, study_id, started, at)
    if ended:
        _finish(connection, study_id, ended, figures, at)


def _start(connection: Connection, study_id: int, started: Sequence[Attempt], at: str) -> None:
    """Records trials as running: inserts those that start for the first time, and an attempt of each."""
    first, again, begun = [], [], []
    for one in started:
        proposal, attempt = one.proposal, one.attempt
        key = trial_id(study_id, proposal.number)
        if attempt > 1:
            again.append(
                {"key": key, "key_attempt": attempt - 1, "state": "running", "started_at": at, "attempts": attempt}
            )
        else:
            first.append(
                {
                    "id": key,
                    "study_id": study_id,
                    "number": proposal.number,
                    "parameters": _json(proposal.parameters),
                    "budget": proposal.budget,
                    "resume_from": proposal.resume_from,
                    "state": "running",
                    "started_at": at,
                    "attempts": attempt,
                }
            )
        begun.append(
            {
                "trial_id": key,
                "attempt": attempt,
                "started_at": at,
                "block": one.block,
                "ranks": one.ranks,
                "hosts": one.hosts,
                "code": one.code,
            }
        )
    run(connection, INSERT_TRIAL, first)
    if again:
        _run_on_all(connection, RESTART_TRIAL, again)
    run(connection, INSERT_ATTEMPT, begun)


def _finish(
    connection: Connection, study_id: int, finished: Sequence[Attempt], figures: FiguresOfMerit, at: str
) -> None:
    """Records the outcomes of trials: the trials, their folds, metrics and attempts, and the Pareto front."""
    first = _count_ended(connection, study_id, len(finished))
    ended = {trial_id(study_id, one.result.number): one for one in finished}
    rows = [_trial_row(key, one, at, first + i) for i, (key, one) in enumerate(ended.items())]
    _run_on_all(connection, END_TRIAL, rows)
    run(connection, END_ATTEMPT, [_attempt_row(key, one, at) for key, one in ended.items()])
    _insert_folds(connection, ended, figures)
    if figures.are_several:
        outcomes = {key: one.result for key, one in ended.items()}
        on_front = pareto_flags.changes(connection, study_id, outcomes, figures)
        run(connection, INSERT_FIGURE, _figure_rows(outcomes))
        run(connection, CHANGE_TRIAL, [{"key": key, "pareto": pareto} for key, pareto in on_front.items()])


def requeue(
    connection: Connection,
    study_id: int,
    numbers: Sequence[int],
    error: str,
    outcome: GivenUp = "lost",
    at: str | None = None,
) -> None:
    """Puts running trials back into the queue; their attempts end with `outcome` and `error` at the time `at`, or now.

    Raises:
        StoreConflictError: Another process has ended one of the trials.
    """
    keys = {trial_id(study_id, number): error for number in numbers}
    _run_on_all(connection, REQUEUE_TRIAL, [{"key": key, "state": "queued", "error": None} for key in keys])
    _give_up_attempts(connection, keys, outcome, at or now())


def mark_lost(connection: Connection, study_id: int, killed: Sequence[tuple[int, int]]) -> None:
    """Records attempts, given by trial and attempt, as ``lost`` instead of ``killed``."""
    rows = [{"key": trial_id(study_id, number), "key_attempt": attempt} for number, attempt in killed]
    run(connection, MARK_ATTEMPT_LOST, [row | {"outcome": "lost"} for row in rows])


def give_back(connection: Connection, study_id: int, given_back: Sequence[GivenBack]) -> None:
    """Puts running trials back into the queue if the attempts that are given back are their latest ones."""
    keys = {trial_id(study_id, one.number): one for one in given_back}
    rows = [{"key": key, "key_attempt": one.attempt, "state": "queued", "error": None} for key, one in keys.items()]
    _run_on_all(connection, GIVE_BACK_TRIAL, rows)
    _give_up_attempts(connection, {key: one.why for key, one in keys.items()}, "lost", now())


def _give_up_attempts(connection: Connection, reasons: Mapping[int, str], outcome: GivenUp, at: str) -> None:
    """Ends the running attempts of trials at the time `at`; `reasons` has the keys of the trials."""
    rows = [{"key": key, "given_up_at": at, "outcome": outcome, "error": clean(why)} for key, why in reasons.items()]
    run(connection, GIVE_UP_ATTEMPT, rows)


def extend(
    connection: Connection,
    study: StudyRecord,
    space: Space,
    configuration: dict[str, Any],
    parameters: Mapping[int, Parameters],
) -> None:
    """Replaces the space of a study and its view, the configuration, and the hyperparameters of some trials."""
    row = {"space": schema.space_to_json(space), "configuration": json.dumps(configuration, default=str)}
    connection.execute(update(studies).where(studies.c.id == study.id).values(row))
    quoted = connection.dialect.identifier_preparer.quote_identifier(study.view)
    connection.exec_driver_sql(f"DROP VIEW {quoted}")
    view = study_view.create_view(study.view, study.id, space, study.figures_of_merit, connection.dialect)
    connection.exec_driver_sql(view)
    rows = [
        {"key": trial_id(study.id, number), "parameters": json.dumps(values, ensure_ascii=False)}
        for number, values in parameters.items()
    ]
    run(connection, CHANGE_TRIAL, rows)


def add_code(connection: Connection, study_id: int, code: CodeRecord) -> None:
    """Inserts a code, whose number is not in the study yet.

    Raises:
        StoreConflictError: Another process has inserted a code of this number.
    """
    columns = ("files", "packages", "data", "objective")
    texts = {column: json.dumps(getattr(code, column), ensure_ascii=False) for column in columns}
    known = {"study_id": study_id, "number": code.number, "digest": code.digest, "since": now()}
    connection.execute(insert(codes).values(known | texts | {"git_commit": code.git_commit}))


def add_event(connection: Connection, study_id: int, kind: str, detail: str) -> None:
    """Records an event of the search with the present time."""
    run(connection, INSERT_EVENT, [{"study_id": study_id, "at": now(), "kind": kind, "detail": clean(detail)}])


def add_command(connection: Connection, study_id: int, command: str) -> None:
    """Moves a command to the end of those that ran trials of a study; keeps the last `MAX_COMMANDS`."""
    this_study, text = studies.c.id == study_id, clean(command)
    before = json.loads(connection.scalar(select(studies.c.commands).where(this_study)) or "[]")
    commands = [*(one for one in before if one != text), text][-MAX_COMMANDS:]
    connection.execute(update(studies).where(this_study).values(commands=json.dumps(commands)))


def set_search(connection: Connection, study_id: int, values: dict[str, Any]) -> None:
    """Sets values of the section ``search:`` in the configuration of a study, and its strategy."""
    _add_to_configuration(connection, study_id, "search", values)
    connection.execute(update(studies).where(studies.c.id == study_id).values(strategy=values["strategy"]))


def choose(connection: Connection, study_id: int, values: dict[str, Any]) -> None:
    """Adds values of the section ``training:`` to those that were chosen for all trials of a study."""
    _add_to_configuration(connection, study_id, CHOSEN, values)


def _add_to_configuration(connection: Connection, study_id: int, key: str, values: dict[str, Any]) -> None:
    this_study = studies.c.id == study_id
    content = json.loads(connection.scalar(select(studies.c.configuration).where(this_study)) or "{}")
    content[key] = content.get(key, {}) | values
    connection.execute(update(studies).where(this_study).values(configuration=json.dumps(content)))


def note(connection: Connection, study_id: int, number: int, text: str) -> bool:
    """Sets the note of a trial, an empty one to NULL; returns whether there is such a trial."""
    row = {"key": trial_id(study_id, number), "note": clean(text.strip()) or None}
    return bool(run(connection, CHANGE_TRIAL, [row]).rowcount)


def _run_on_all(connection: Connection, statement: Update, rows: Sequence[Row]) -> None:
    """Runs a statement once for each of `rows`.

    Raises:
        StoreConflictError: Another process has changed one of the rows: the statement did not match it.
    """
    cursor = run(connection, statement, rows)
    if cursor is not None and cursor.rowcount != len(rows):
        raise conflict()


def _count_ended(connection: Connection, study_id: int, count: int) -> int:
    """Reserves `count` positions in the order of ending; locks the study's row until the transaction ends.

    Returns:
        The first of them.
    """
    run(connection, COUNT_ENDED, [{"key": study_id, "count": count}])
    ((n_ended,),) = run(connection, READ_N_ENDED, [{"key": study_id}]).fetchall()
    return int(n_ended) - count


def _insert_folds(connection: Connection, ended: Mapping[int, Attempt], figures: FiguresOfMerit) -> None:
    """Inserts the folds, their metrics and figures of merit. Earlier attempts of these trials have no such rows."""
    rows, curves, by_name, are_several = [], [], [], figures.are_several
    for key, trial in ended.items():
        for fold in trial.result.folds:
            this_fold = {"trial_id": key, "fold": fold.fold}
            rows.append({**this_fold, "figure_of_merit": _number(fold.figure_of_merit), "duration_s": fold.duration_s})
            for name, values in fold.curves():
                curves += [{**this_fold, "epoch": epoch, "name": name, "value": _number(one)} for epoch, one in values]
            if are_several:
                merits = fold.figures_of_merit.items()
                by_name += [{**this_fold, "name": name, "value": _number(value)} for name, value in merits]
    run(connection, INSERT_FOLD, rows)
    run(connection, INSERT_METRIC, curves)
    run(connection, INSERT_FOLD_FIGURE, by_name)


def _trial_row(key: int, attempt: Attempt, at: str, ended: int) -> Row:
    """The columns that change when a trial ends as number `ended` of its study (0-based)."""
    outcome, main = attempt.result, attempt.result.figures_of_merit.main
    return {
        "key": key,
        "key_attempt": attempt.attempt,
        "state": outcome.state,
        "figure_of_merit": _number(main),
        "uncertainty": None if main is None else _number(main.uncertainty),
        "finished_at": at,
        "duration_s": outcome.duration_s,
        "error": clean(outcome.error),
        "ended": ended,
    }


def _attempt_row(key: int, attempt: Attempt, at: str) -> Row:
    """The columns that change when an attempt ends. The whole error is in the row of the trial, here its first line."""
    error = attempt.result.error
    return {
        "key": key,
        "key_attempt": attempt.attempt,
        "block": attempt.block,
        "finished_at": at,
        "outcome": attempt.result.state,
        "error": clean(next(iter(error.splitlines()), None)) if error else None,
    }


def _figure_rows(outcomes: Mapping[int, Outcome]) -> list[Row]:
    """A row for each of several figures of merit of each trial."""
    return [
        {"trial_id": key, "name": name, "value": float(figure), "uncertainty": _number(figure.uncertainty)}
        for key, outcome in outcomes.items()
        for name, figure in outcome.figures_of_merit.items()
    ]


def clean(text: str | None) -> str | None:
    """`text` without passwords in URLs and without characters that databases refuse: NUL and unpaired surrogates.

    It is limited as well: a workload system may report a reason of any length.
    """
    if text is None:
        return None
    return without_passwords(shortened(text)).replace("\0", "�").encode("utf-8", "replace").decode("utf-8")


def _number(value: float | None) -> float | None:
    """`value` as a Python float; None in place of NaN, which some databases do not have."""
    return None if value is None or math.isnan(value) else float(value)
