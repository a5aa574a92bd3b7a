"""The store of a search. Rank 0 records starts and outcomes as they occur; each call commits before it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, select

from mpi_opt.core.figures_of_merit import Merits
from mpi_opt.core.space import Space
from mpi_opt.core.trial import State, TrialRecord
from mpi_opt.store import connecting, reading, rows, schema
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
from mpi_opt.store.statements import Cursor, Statements

P = ParamSpec("P")
T = TypeVar("T")


class Store:
    """An open database. Each writing call is one transaction: it commits all its rows or, if it raises, none.

    Every method raises `StoreError`. After a `StoreNotReadyError` (disk full, database locked) the same call may be
    repeated later; after a `StoreConflictError` the study must be read again first.

    Attributes:
        url: The address, without passwords.
        read_only: Whether the database was opened for reading.
        leases: The searches that own the studies.
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
        """Opens a database; unless `read_only`, creates its tables if necessary.

        Args:
            url: Any SQLAlchemy URL, e.g. ``sqlite:///results.db`` (relative to the current directory), ``sqlite://``
                (in memory), ``postgresql://user@host/database``; or the path of a file that ends in ``.db``.
            read_only: Whether to refuse every change.

        Raises:
            StoreError: Unknown URL, missing directory, no permission, or not a database of this version of MPI Opt.
        """
        return cls(connecting.parsed(url), read_only=read_only)

    @classmethod
    def open_existing(cls, url: str) -> Store | None:
        """Opens a database for writing; None for a file that does not exist and for a database in memory.

        Raises:
            StoreError: As for `open`.
        """
        return cls.open(url) if connecting.may_exist(url) else None

    @property
    def address(self) -> str:
        """The URL with the password, to open the database again."""
        return self._address.render_as_string(hide_password=False)

    @property
    def is_shared(self) -> bool:
        """Whether other processes can open the database: False for one in memory."""
        return not connecting.is_in_memory(self._address)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Unless another process has the SQLite file open, its write-ahead log is removed."""
        self._database.close()

    # Writing

    def create_study(
        self,
        name: str,
        *,
        merits: Merits = Merits(),  # noqa: B008 - frozen
        strategy: str,
        seed: int,
        configuration: dict[str, Any],
        space: Space,
        earlier: Sequence[Earlier] = (),
    ) -> StudyRecord:
        """Inserts a new study and creates its view ``study_NAME``.

        Args:
            name: Unique in the store.
            merits: The figures of merit.
            strategy: The name of the strategy.
            seed: The seed of the study.
            configuration: The effective YAML.
            space: The search space.
            earlier: The trials of another study that are transferred to this one.

        Raises:
            StoreConflictError: A study of this name exists.
        """
        studies, row = schema.studies, rows.new_study(name, merits, strategy, seed, configuration, space)
        with self._database.changing() as connection:
            view_name = schema.view_name(name, connection.scalars(select(studies.c.view_name)).all())
            connection.execute(studies.insert().values(row | {"view_name": view_name}))
            study_id = connection.scalars(select(studies.c.id).where(studies.c.name == name)).one()
            connection.exec_driver_sql(schema.create_view(view_name, study_id, space, merits, connection.dialect))
            if earlier:
                connection.execute(schema.transferred.insert(), rows.transferred(study_id, earlier))
        return self._read(reading.read_new_study, name)

    def start(self, study_id: int, starts: Sequence[Start]) -> None:
        """Records trials as running, with an attempt each.

        The rows survive the end of this process, but not a power failure, after which the trials are not recorded.

        Raises:
            StoreConflictError: Another process has started one of the trials.
        """
        at = now()
        attempts = [rows.started_attempt(study_id, start, at) for start in starts]
        first = [rows.started_trial(study_id, start, at) for start in starts if start.attempt == 1]
        again = [rows.started_trial(study_id, start, at) for start in starts if start.attempt > 1]
        write = self._statements
        with self._database.writing(durably=False) as cursor:
            write.insert_trial.run(cursor, first)
            self._expect(write.restart_trial.run(cursor, again), len(again))
            write.insert_attempt.run(cursor, attempts)

    def finish(self, study_id: int, finished: Sequence[Finish], given_back: Mapping[int, str] | None = None) -> None:
        """Records the outcomes of trials: the trials, their folds, metrics and attempts.

        Args:
            study_id: The study.
            finished: Each with the number of the latest attempt of its trial.
            given_back: Trial -> the reason why it must run again; these are queued in the same transaction.

        Raises:
            StoreConflictError: Another process has ended one of these trials or started it again.
        """
        at = now()
        attempts = [rows.ended_attempt(study_id, finish, at) for finish in finished]
        merits = self._merits_of(study_id)
        with self._database.writing() as cursor:
            first = self._n_ended(cursor, study_id, len(finished))
            trials = [rows.ended_trial(study_id, finish, at, first + i) for i, finish in enumerate(finished)]
            self._expect(self._statements.finish_trial.run(cursor, trials), len(finished))
            self._statements.finish_attempt.run(cursor, attempts)
            self._replace_folds(cursor, study_id, finished)
            if merits.are_several:
                changed = self._front.changes(cursor, study_id, finished, merits)
                self._statements.insert_figure.run(cursor, rows.ended_figures(study_id, finished))
                self._statements.place_on_front.run(cursor, changed)
            self._requeue(cursor, study_id, given_back or {})

    def requeue(self, study_id: int, numbers: Sequence[int], error: str) -> None:
        """Puts running trials back into the queue; their attempts end with the outcome ``lost`` and `error`.

        Raises:
            StoreConflictError: Another process has ended one of the trials.
        """
        with self._database.writing() as cursor:
            self._requeue(cursor, study_id, dict.fromkeys(numbers, error))

    def event(self, study_id: int, kind: str, detail: str) -> None:
        """Records an event of the search with the present time."""
        with self._database.writing() as cursor:
            row = {"study_id": study_id, "at": now(), "kind": kind, "detail": rows.clean(detail)}
            self._statements.insert_event.run(cursor, [row])

    def _replace_folds(self, cursor: Cursor, study_id: int, finished: Sequence[Finish]) -> None:
        """Inserts the folds, and their metrics and figures of merit, in place of those of earlier attempts."""
        write = self._statements
        earlier = [{"key_id": rows.trial_id(study_id, f.outcome.number)} for f in finished if f.attempt > 1]
        for remove in (write.remove_folds, write.remove_metrics, write.remove_fold_figures):
            remove.run(cursor, earlier)
        write.insert_fold.run(cursor, rows.ended_folds(study_id, finished))
        write.insert_metric.run(cursor, rows.ended_metrics(study_id, finished))
        write.insert_fold_figure.run(cursor, rows.ended_fold_figures(study_id, finished))

    def _n_ended(self, cursor: Cursor, study_id: int, count: int) -> int:
        """Reserves `count` positions in the order of ending; locks the study's row until the transaction ends.

        Returns:
            The first of them.
        """
        self._statements.count_ended.run(cursor, [{"study_id": study_id, "count": count}])
        self._statements.read_ended.run(cursor, [{"study_id": study_id}])
        ((n_ended,),) = cursor.fetchall()
        return int(n_ended) - count

    def _requeue(self, cursor: Cursor, study_id: int, reasons: Mapping[int, str]) -> None:
        at, ids = now(), {rows.trial_id(study_id, number): why for number, why in reasons.items()}
        queued = [{"state": "queued", "error": None, "key_id": key} for key in ids]
        lost = [
            {"finished_at": at, "outcome": "lost", "error": rows.clean(why), "key_id": key} for key, why in ids.items()
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
        """The study of this name; None if there is none."""
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
        """The unfinished trials and those that ended after the first `n_ended`, by number; and the next `n_ended`."""
        return self._read(reading.read_changed, study_id, n_ended)

    def best(self, study: StudyRecord, count: int = 1) -> list[TrialRecord]:
        """The `count` best complete trials, best first; equal ones by number."""
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
        """The events of the search, in order of time."""
        return self._read(reading.read_events, study_id)

    def sql(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The column names and rows of a query in SQL. A store that is open `read_only` refuses every change."""
        if self.read_only and self._database.dialect.name not in ("sqlite", "postgresql"):
            cure = "use the client program of the database"
            raise StoreError(
                "queries are supported for SQLite and PostgreSQL: elsewhere one could change the data",
                where=self.url,
                cure=cure,
            )
        return self._read(reading.read_sql, query)

    def _read(self, query: Callable[Concatenate[Connection, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        with self._database.reading() as connection:
            return query(connection, *arguments, **options)

    def _merits_of(self, study_id: int) -> Merits:
        """The figures of merit of a study, which are read from the database once."""
        if study_id not in self._merits:
            self._merits[study_id] = self._read(reading.read_merits, study_id)
        return self._merits[study_id]
