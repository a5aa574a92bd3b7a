"""The store of a search. Rank 0 writes facts as they become known; a call that returned is committed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import URL, func, select

from mpi_opt.core.figures_of_merit import Direction, Merits
from mpi_opt.core.space import Space
from mpi_opt.core.trial import State, TrialRecord
from mpi_opt.store import connecting, reading, schema, writing
from mpi_opt.store.database import Database
from mpi_opt.store.errors import StoreError
from mpi_opt.store.pareto_flags import Front
from mpi_opt.store.records import (
    AttemptRecord,
    CurveRecord,
    Earlier,
    EventRecord,
    Finish,
    FoldRecord,
    Start,
    StudyRecord,
)
from mpi_opt.store.statements import Statements


class Store:
    """An open database. Writing methods either commit all of their call or, raising, nothing of it.

    Every method raises `StoreError`; a `StoreNotReadyError` (disk full, database locked) may be answered by making the
    same call again, later.
    """

    def __init__(self, address: URL, *, read_only: bool) -> None:
        self._address = address
        self._database = Database(address, read_only=read_only)
        self.url, self.read_only = self._database.url, read_only
        self._statements = Statements(self._database.dialect)
        self._front = Front(self._database.dialect)
        self._unfinished: dict[int, set[int]] = {}  # study -> the numbers of its queued and running trials
        self._n_ended: dict[int, int] = {}  # study -> how many of its trials ended
        self._merits: dict[int, Merits] = {}

    @classmethod
    def open(cls, url: str, *, read_only: bool = False) -> Store:
        """Opens a database, and creates it if need be and `read_only` is False.

        Args:
            url: Any SQLAlchemy URL, e.g. ``sqlite:///results.db`` (relative to where one stands), ``sqlite://`` (in
                memory), ``postgresql://user@host/database``; or the path of a file that ends in ``.db``.
            read_only: Open it so that nothing can be changed.

        Raises:
            StoreError: Unknown URL, missing directory, no permission, not a database of this program, a newer one.
        """
        return cls(connecting.parsed(url), read_only=read_only)

    @property
    def address(self) -> str:
        """The URL with which to open it again, password included."""
        return self._address.render_as_string(hide_password=False)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection. An SQLite file that nobody else has open becomes a single ordinary file again."""
        self._database.close()

    # Writing

    def create_study(
        self,
        name: str,
        *,
        direction: Direction = "minimize",
        merits: Merits | None = None,
        strategy: str,
        seed: int,
        configuration: dict[str, Any],
        space: Space,
        earlier: Sequence[Earlier] = (),
    ) -> StudyRecord:
        """Enters a new study and creates its view ``study_NAME``.

        Args:
            name: Unique in the store.
            direction: Of its figure of merit, where there is no more to say of that.
            merits: Its figures of merit.
            strategy: Its name.
            seed: Of the study.
            configuration: The effective YAML.
            space: The search space.
            earlier: What another study teaches this one.

        Raises:
            StoreError: There is a study of this name.
        """
        merits = merits or Merits(directions=(direction,))
        with self._database.changing() as connection:
            taken = connection.scalars(select(schema.studies.c.view_name)).all()
            view = schema.view_name(name, taken)
            result = connection.execute(
                schema.studies.insert().values(
                    name=name,
                    direction=merits.directions[0],
                    selection=merits.selection,
                    merits=schema.merits_to_json(merits),
                    strategy=strategy,
                    seed=seed,
                    created_at=now(),
                    configuration=json.dumps(configuration, default=str),
                    space=schema.space_to_json(space),
                    view_name=view,
                )
            )
            study_id = result.inserted_primary_key[0]
            statement = schema.create_view(view, study_id, space, merits, connection.dialect)
            connection.exec_driver_sql(statement)
            if earlier:
                connection.execute(schema.transferred.insert(), writing.transferred(study_id, earlier))
        return self.study(name)

    def start(self, study_id: int, starts: Sequence[Start]) -> None:
        """Enters trials as running, and the attempts to run them.

        These facts survive the end of this process, not a power cut: what is lost then is that a trial was under way.

        Raises:
            StoreError: With the problem `TWICE`, if somebody else has begun one of them.
        """
        at, unfinished = now(), self._numbers(study_id)
        trials = [writing.started_trial(study_id, start, at) for start in starts]
        attempts = [writing.started_attempt(study_id, start, at) for start in starts]
        write = self._statements
        with self._writing(durably=False) as cursor:
            write.insert_trial.run(cursor, [row for row in trials if row["number"] not in unfinished])
            write.restart_trial.run(cursor, [row for row in trials if row["number"] in unfinished])
            write.insert_attempt.run(cursor, attempts)
        unfinished.update(start.number for start in starts)

    def finish(self, study_id: int, finished: Sequence[Finish]) -> None:
        """Enters what came of trials: they, their folds, metrics and attempts."""
        at, unfinished = now(), self._numbers(study_id)
        n_ended = self._n_ended[study_id]
        trials = [writing.ended_trial(study_id, finish, at, n_ended + i) for i, finish in enumerate(finished)]
        attempts = [writing.ended_attempt(study_id, finish, at) for finish in finished]
        folds = [row for finish in finished for row in writing.ended_folds(study_id, finish)]
        metrics = [row for finish in finished for row in writing.ended_metrics(study_id, finish)]
        earlier = [{"key_id": writing.trial_id(study_id, f.outcome.number)} for f in finished if f.attempt > 1]
        figures = [row for finish in finished for row in writing.ended_figures(study_id, finish)]
        fold_figures = [row for finish in finished for row in writing.ended_fold_figures(study_id, finish)]
        write, merits = self._statements, self._merits_of(study_id)
        with self._writing() as cursor:
            if merits.are_several:
                self._front.lock(cursor, study_id)
            write.finish_trial.run(cursor, trials)
            write.finish_attempt.run(cursor, attempts)
            write.remove_folds.run(cursor, earlier)
            write.remove_metrics.run(cursor, earlier)
            write.insert_fold.run(cursor, folds)
            write.insert_metric.run(cursor, metrics)
            write.remove_fold_figures.run(cursor, earlier)
            write.insert_fold_figure.run(cursor, fold_figures)
            if merits.are_several:
                changed = self._front.changes(cursor, study_id, finished, merits)
                write.insert_figure.run(cursor, figures)
                write.place_on_front.run(cursor, changed)
        self._n_ended[study_id] += len(finished)
        unfinished.difference_update(finish.outcome.number for finish in finished)

    def requeue(self, study_id: int, numbers: Sequence[int], error: str) -> None:
        """Puts running trials back into the queue; their attempts end with the outcome ``lost`` and `error`."""
        ids = [writing.trial_id(study_id, number) for number in numbers]
        lost = {"finished_at": now(), "outcome": "lost", "error": error}
        with self._writing() as cursor:
            self._statements.requeue_trial.run(cursor, [{"state": "queued", "error": None, "key_id": i} for i in ids])
            self._statements.lose_attempts.run(cursor, [lost | {"key_id": i} for i in ids])

    def event(self, study_id: int, kind: str, detail: str) -> None:
        """Enters that something happened to the search now."""
        with self._writing() as cursor:
            row = {"study_id": study_id, "at": now(), "kind": kind, "detail": detail}
            self._statements.insert_event.run(cursor, [row])

    # Reading

    def studies(self) -> list[StudyRecord]:
        """All studies, in the order in which they were created."""
        with self._database.reading() as connection:
            return reading.read_studies(connection)

    def study(self, name: str) -> StudyRecord | None:
        """The study of this name, if there is one."""
        with self._database.reading() as connection:
            return reading.read_study(connection, name)

    def trials(
        self, study_id: int, states: Iterable[State] | None = None, numbers: Sequence[int] | None = None
    ) -> list[TrialRecord]:
        """The trials in one of `states` and of `numbers` (None: all), by number."""
        with self._database.reading() as connection:
            return reading.read_trials(connection, study_id, states, numbers)

    def earlier(self, study_id: int) -> list[Earlier]:
        """What another study taught this one when it began, best first."""
        with self._database.reading() as connection:
            return reading.read_earlier(connection, study_id)

    def told_order(self, study_id: int) -> list[TrialRecord]:
        """The finished trials in the order in which they ended."""
        with self._database.reading() as connection:
            return reading.read_told_order(connection, study_id)

    def best(self, study: StudyRecord, count: int = 1) -> list[TrialRecord]:
        """The `count` best complete trials, best first; of equal ones the earlier number."""
        with self._database.reading() as connection:
            return reading.read_best(connection, study.id, study.maximize, count)

    def folds(self, study_id: int, numbers: Sequence[int] | None = None) -> list[FoldRecord]:
        """The folds of the trials `numbers` (None: of all), by trial and fold."""
        with self._database.reading() as connection:
            return reading.read_folds(connection, study_id, numbers)

    def curves(self, study_id: int, numbers: Sequence[int] | None = None) -> list[CurveRecord]:
        """The metrics of the trials `numbers` (None: of all), by trial, fold and name."""
        with self._database.reading() as connection:
            return reading.read_curves(connection, study_id, numbers)

    def attempts(self, study_id: int, numbers: Sequence[int] | None = None) -> list[AttemptRecord]:
        """The attempts of the trials `numbers` (None: of all), by trial and attempt."""
        with self._database.reading() as connection:
            return reading.read_attempts(connection, study_id, numbers)

    def events(self, study_id: int) -> list[EventRecord]:
        """What happened to the search, in order of time."""
        with self._database.reading() as connection:
            return reading.read_events(connection, study_id)

    def sql(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The column names and rows of a user's own query. Open the store `read_only` for queries of unknown intent."""
        if self.read_only and self._database.dialect.name not in ("sqlite", "postgresql"):
            cure = "use the database's own client"
            raise StoreError("a query could change a database of this kind", where=self.url, cure=cure)
        with self._database.reading() as connection:
            return reading.read_sql(connection, query)

    def _numbers(self, study_id: int) -> set[int]:
        """The unfinished trials of a study; asks the database once."""
        if study_id not in self._unfinished:
            unfinished = {record.number for record in self.trials(study_id, ("queued", "running"))}
            with self._database.reading() as connection:
                last = select(func.max(schema.trials.c.ended)).where(schema.trials.c.study_id == study_id)
                ended = connection.scalar(last)
            self._unfinished[study_id] = unfinished
            self._n_ended[study_id] = 0 if ended is None else ended + 1
        return self._unfinished[study_id]

    def _merits_of(self, study_id: int) -> Merits:
        """The figures of merit of a study; asks the database once."""
        if study_id not in self._merits:
            with self._database.reading() as connection:
                self._merits[study_id] = reading.read_merits(connection, study_id)
        return self._merits[study_id]

    @contextmanager
    def _writing(self, *, durably: bool = True) -> Iterator[Any]:
        try:
            with self._database.writing(durably=durably) as cursor:
                yield cursor
        except StoreError:
            self._unfinished.clear()  # what others wrote meanwhile may be the reason
            raise


def now() -> str:
    """The time, UTC, as ISO-8601 text with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
