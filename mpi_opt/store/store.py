"""The store of a search. Rank 0 writes facts as they become known; they are committed when a call returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, select

from mpi_opt.core.figures_of_merit import Direction, Merits
from mpi_opt.core.space import Space
from mpi_opt.core.trial import State, TrialRecord
from mpi_opt.store import connecting, reading, schema, writing
from mpi_opt.store.database import Database
from mpi_opt.store.errors import StoreError, conflict
from mpi_opt.store.leases import Leases
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
    now,
)
from mpi_opt.store.statements import Statements

P = ParamSpec("P")
T = TypeVar("T")


class Store:
    """An open database. A writing method commits all of its call or, if it raises, nothing of it.

    Every method raises `StoreError`. After a `StoreNotReadyError` (disk full, database locked) the same call may be
    repeated later; after a `StoreConflictError` the study must be read again first.

    Attributes:
        url: The address, without passwords.
        read_only: Whether it was opened for reading.
        leases: Which search runs which study.
    """

    def __init__(self, address: URL, *, read_only: bool) -> None:
        self._address = address
        self._database = Database(address, read_only=read_only)
        self.url, self.read_only = self._database.url, read_only
        self._statements = Statements(self._database.dialect)
        self._front = Front(self._database.dialect)
        self.leases = Leases(self._database)
        self._merits: dict[int, Merits] = {}

    @classmethod
    def open(cls, url: str, *, read_only: bool = False) -> Store:
        """Opens a database, and creates it if need be and `read_only` is False.

        Args:
            url: Any SQLAlchemy URL, e.g. ``sqlite:///results.db`` (relative to the current directory), ``sqlite://``
                (in memory), ``postgresql://user@host/database``; or the path of a file that ends in ``.db``.
            read_only: Open it so that nothing can be changed.

        Raises:
            StoreError: Unknown URL, missing directory, no permission, not a database of this program, a newer one.
        """
        return cls(connecting.parsed(url), read_only=read_only)

    @classmethod
    def open_existing(cls, url: str) -> Store | None:
        """Opens a database for writing as `open` does; None if it is a file that does not exist, or in memory.

        Raises:
            StoreError: As `open`.
        """
        return cls.open(url) if connecting.may_exist(url) else None

    @property
    def address(self) -> str:
        """The URL with which to open it again, password included."""
        return self._address.render_as_string(hide_password=False)

    @property
    def is_shared(self) -> bool:
        """Whether other processes can open it, too: False for a database in memory."""
        return not connecting.is_in_memory(self._address)

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
            direction: ``minimize`` or ``maximize``, for a study with one figure of merit.
            merits: The figures of merit; used instead of `direction`.
            strategy: The strategy's name.
            seed: The study's seed.
            configuration: The effective YAML.
            space: The search space.
            earlier: The trials of another study that are transferred to this one.

        Raises:
            StoreConflictError: There is a study of this name.
        """
        merits = merits or Merits(directions=(direction,))
        row = {
            "name": name,
            "direction": merits.directions[0],
            "selection": merits.selection,
            "merits": schema.merits_to_json(merits),
            "strategy": strategy,
            "seed": seed,
            "created_at": now(),
            "configuration": json.dumps(configuration, default=str),
            "space": schema.space_to_json(space),
        }
        with self._database.changing() as connection:
            row["view_name"] = schema.view_name(name, connection.scalars(select(schema.studies.c.view_name)).all())
            (study_id,) = connection.execute(schema.studies.insert().values(row)).inserted_primary_key
            view = schema.create_view(row["view_name"], study_id, space, merits, connection.dialect)
            connection.exec_driver_sql(view)
            if earlier:
                connection.execute(schema.transferred.insert(), writing.transferred(study_id, earlier))
        return self._read(reading.read_study, name)

    def start(self, study_id: int, starts: Sequence[Start]) -> None:
        """Enters trials as running, and the attempts to run them.

        These facts survive the end of this process, but not a power cut: then it is lost that the trials were running.

        Raises:
            StoreConflictError: Another process has started one of them.
        """
        at = now()
        trials = [writing.started_trial(study_id, start, at) for start in starts]
        attempts = [writing.started_attempt(study_id, start, at) for start in starts]
        first, again = ([row for row in trials if (row["attempts"] > 1) is is_again] for is_again in (False, True))
        write = self._statements
        with self._database.writing(durably=False) as cursor:
            write.insert_trial.run(cursor, first)
            self._expect(write.restart_trial.run(cursor, again), len(again))
            write.insert_attempt.run(cursor, attempts)

    def finish(self, study_id: int, finished: Sequence[Finish], given_back: Mapping[int, str] | None = None) -> None:
        """Enters the outcomes of trials: the trials, their folds, metrics and attempts.

        Args:
            study_id: The study.
            finished: Each with the number of the trial's latest attempt.
            given_back: Trial -> why it has not ended and must run again (see `requeue`); in the same transaction.

        Raises:
            StoreConflictError: Another process has ended one of these trials or started it again.
        """
        at = now()
        attempts = [writing.ended_attempt(study_id, finish, at) for finish in finished]
        folds = [row for finish in finished for row in writing.ended_folds(study_id, finish)]
        metrics = [row for finish in finished for row in writing.ended_metrics(study_id, finish)]
        earlier = [{"key_id": writing.trial_id(study_id, f.outcome.number)} for f in finished if f.attempt > 1]
        figures = [row for finish in finished for row in writing.ended_figures(study_id, finish)]
        fold_figures = [row for finish in finished for row in writing.ended_fold_figures(study_id, finish)]
        write, merits = self._statements, self._merits_of(study_id)
        with self._database.writing() as cursor:
            first = self._n_ended(cursor, study_id, len(finished))
            trials = [writing.ended_trial(study_id, finish, at, first + i) for i, finish in enumerate(finished)]
            self._expect(write.finish_trial.run(cursor, trials), len(finished))
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
            self._requeue(cursor, study_id, given_back or {})

    def requeue(self, study_id: int, numbers: Sequence[int], error: str) -> None:
        """Puts running trials back into the queue; their attempts end with the outcome ``lost`` and `error`.

        Raises:
            StoreConflictError: Another process has ended one of them.
        """
        with self._database.writing() as cursor:
            self._requeue(cursor, study_id, dict.fromkeys(numbers, error))

    def event(self, study_id: int, kind: str, detail: str) -> None:
        """Enters an event of the search, with the present time."""
        with self._database.writing() as cursor:
            row = {"study_id": study_id, "at": now(), "kind": kind, "detail": writing.clean(detail)}
            self._statements.insert_event.run(cursor, [row])

    def _n_ended(self, cursor: Any, study_id: int, count: int) -> int:
        """Reserves `count` places in the order of ending; no other process can until the transaction ends.

        Returns:
            The first of them.
        """
        self._statements.count_ended.run(cursor, [{"study_id": study_id, "count": count}])
        self._statements.read_ended.run(cursor, [{"study_id": study_id}])
        ((n_ended,),) = cursor.fetchall()
        return int(n_ended) - count

    def _requeue(self, cursor: Any, study_id: int, reasons: Mapping[int, str]) -> None:
        at, ids = now(), {writing.trial_id(study_id, number): why for number, why in reasons.items()}
        queued = [{"state": "queued", "error": None, "key_id": key} for key in ids]
        lost = [
            {"finished_at": at, "outcome": "lost", "error": writing.clean(why), "key_id": key}
            for key, why in ids.items()
        ]
        self._expect(self._statements.requeue_trial.run(cursor, queued), len(queued))
        self._statements.lose_attempts.run(cursor, lost)

    def _expect(self, n_changed: int, n_expected: int) -> None:
        if n_changed != n_expected:
            raise conflict(self.url)

    # Reading

    def studies(self) -> list[StudyRecord]:
        """All studies, in the order in which they were created."""
        return self._read(reading.read_studies)

    def study(self, name: str) -> StudyRecord | None:
        """The study of this name, if there is one."""
        return self._read(reading.read_study, name)

    def trials(
        self, study_id: int, states: Iterable[State] | None = None, numbers: Sequence[int] | None = None
    ) -> list[TrialRecord]:
        """The trials in one of `states` and of `numbers` (None: all), by number."""
        return self._read(reading.read_trials, study_id, states, numbers)

    def earlier(self, study_id: int) -> list[Earlier]:
        """The trials of another study that were transferred when this one was created, best first."""
        return self._read(reading.read_earlier, study_id)

    def ended_trials(self, study_id: int) -> list[TrialRecord]:
        """The finished trials in the order in which they ended."""
        return self._read(reading.read_ended, study_id)

    def changed_trials(self, study_id: int, n_ended: int) -> tuple[list[TrialRecord], int]:
        """The unfinished trials and those that ended after the first `n_ended`, by number; the next `n_ended`."""
        return self._read(reading.read_changed, study_id, n_ended)

    def best(self, study: StudyRecord, count: int = 1) -> list[TrialRecord]:
        """The `count` best complete trials, best first; of equal ones the earlier number."""
        return self._read(reading.read_best, study.id, study.maximize, count)

    def folds(self, study_id: int, numbers: Sequence[int] | None = None) -> list[FoldRecord]:
        """The folds of the trials `numbers` (None: of all), by trial and fold."""
        return self._read(reading.read_folds, study_id, numbers)

    def curves(self, study_id: int, numbers: Sequence[int] | None = None) -> list[CurveRecord]:
        """The metrics of the trials `numbers` (None: of all), by trial, fold and name."""
        return self._read(reading.read_curves, study_id, numbers)

    def attempts(self, study_id: int, numbers: Sequence[int] | None = None) -> list[AttemptRecord]:
        """The attempts of the trials `numbers` (None: of all), by trial and attempt."""
        return self._read(reading.read_attempts, study_id, numbers)

    def events(self, study_id: int) -> list[EventRecord]:
        """What happened to the search, in order of time."""
        return self._read(reading.read_events, study_id)

    def sql(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The column names and rows of a user's own query. Open the store `read_only` for queries of unknown intent."""
        if self.read_only and self._database.dialect.name not in ("sqlite", "postgresql"):
            cure = "use the database's own client"
            raise StoreError("a query could change a database of this kind", where=self.url, cure=cure)
        return self._read(reading.read_sql, query)

    def _read(self, query: Callable[Concatenate[Connection, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        with self._database.reading() as connection:
            return query(connection, *arguments, **options)

    def _merits_of(self, study_id: int) -> Merits:
        """The figures of merit of a study; reads them from the database once."""
        if study_id not in self._merits:
            self._merits[study_id] = self._read(reading.read_merits, study_id)
        return self._merits[study_id]
