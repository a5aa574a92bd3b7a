"""The store of studies. Each call that writes commits before it returns."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection

from mpi_learn.settings.suggestions import suggestion
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Space
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import StoreError
from mpi_opt.store import connecting, reading, writing
from mpi_opt.store.database import Database
from mpi_opt.store.errors import InvalidQueryError
from mpi_opt.store.leases import Leases
from mpi_opt.store.records import EarlierTrial, GivenBack, StudyRecord

P = ParamSpec("P")
T = TypeVar("T")


def _query(read: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[Store, P], T]:
    """The method of `Store` that runs a function of `reading`, without its first parameter."""

    @wraps(read)
    def method(store: Store, /, *arguments: P.args, **options: P.kwargs) -> T:
        return store._read(read, *arguments, **options)

    return method


def _change(write: Callable[Concatenate[Connection, P], None]) -> Callable[Concatenate[Store, P], None]:
    """The method of `Store` that runs a function of `writing`, without its first parameter, in a transaction."""

    @wraps(write)
    def method(store: Store, /, *arguments: P.args, **options: P.kwargs) -> None:
        with store._database.writing() as connection:
            write(connection, *arguments, **options)

    return method


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
        self.leases = Leases(self._database)
        self._figures: dict[int, FiguresOfMerit] = {}

    @classmethod
    def open(cls, url: str | os.PathLike[str], *, read_only: bool = False) -> Store:
        """Opens a database; unless `read_only`, creates its tables if necessary.

        Args:
            url: Any SQLAlchemy URL, e.g. ``sqlite:///results.db`` (relative to the current directory), ``sqlite://``
                (in memory), ``postgresql://user@host/database``; or the path of a file that ends in ``.db``,
                ``.sqlite`` or ``.sqlite3``.
            read_only: Whether to refuse every change.

        Raises:
            StoreError: Unknown URL, missing directory, no permission, or not a database of this version of MPI Opt.
        """
        return cls(connecting.parsed(url), read_only=read_only)

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

    def check_in_place(self) -> None:
        """Verifies that an SQLite file was not deleted or replaced since it was opened; raises `StoreMovedError`."""
        self._database.check_in_place()

    def rescue(self) -> Store | None:
        """Copies an SQLite store, as this connection sees it, to a new file beside it, and opens the copy.

        A file that was deleted or replaced exists as long as a process has it open. Its write-ahead log, which is in
        the copy, is removed from the old place: SQLite would write it into the file that is there now.

        Returns:
            The copy; None for a database on a server, or if it cannot be copied.
        """
        path = connecting.file_path(self._address)
        if path is None:
            return None
        folder = path.parent if path.parent.is_dir() else Path(tempfile.gettempdir())
        copy = folder / f"{path.stem}-rescued-{datetime.now(UTC):%Y%m%dT%H%M%S}{path.suffix}"
        try:
            self._database.copy_to(copy)
            if not self._database.is_in_place:
                for suffix in ("-wal", "-shm"):
                    Path(f"{path}{suffix}").unlink(missing_ok=True)
            return Store.open(f"sqlite:///{copy}")
        except (sqlite3.Error, OSError, StoreError):
            copy.unlink(missing_ok=True)
            return None

    # Writing

    def create_study(
        self,
        name: str,
        *,
        figures_of_merit: FiguresOfMerit = FiguresOfMerit(),  # noqa: B008 - frozen
        strategy: str,
        seed: int,
        configuration: dict[str, Any],
        space: Space,
        earlier: Sequence[EarlierTrial] = (),
    ) -> StudyRecord:
        """Inserts a new study and creates its view ``study_NAME``.

        `configuration` is the effective YAML. The trials `earlier` of another study are transferred to this one.

        Raises:
            StoreConflictError: A study of this name exists.
        """
        with self._database.writing() as connection:
            writing.create_study(connection, name, figures_of_merit, strategy, seed, configuration, space, earlier)
        created = self.study(name)
        assert created is not None, "it was committed"
        return created

    def record(
        self,
        study_id: int,
        ended: Sequence[Attempt],
        started: Sequence[Attempt] = (),
        given_back: Sequence[GivenBack] = (),
    ) -> None:
        """Records trials that have ended, that start, and that must run again, in one transaction.

        Outcomes are on the disk when this method returns. Without outcomes, the rows survive the end of this process,
        but not a power failure, after which the trials are not recorded.

        Args:
            study_id: The study.
            ended: The latest attempts of trials, with their outcomes: the trials, their folds, metrics and attempts.
            started: Trials that are running now, with an attempt each.
            given_back: Trials that are queued again.

        Raises:
            StoreConflictError: Another process has ended one of these trials or started it again.
        """
        figures = self._figures_of(study_id) if ended else FiguresOfMerit()
        with self._database.writing(durably=bool(ended or given_back)) as connection:
            writing.record(connection, study_id, ended, started, figures)
            if given_back:
                writing.give_back(connection, study_id, given_back)

    def start(self, study_id: int, started: Sequence[Attempt]) -> None:
        """Records trials as running, see `record`."""
        self.record(study_id, (), started)

    def finish(self, study_id: int, ended: Sequence[Attempt], given_back: Sequence[GivenBack] = ()) -> None:
        """Records the outcomes of trials, see `record`."""
        self.record(study_id, ended, (), given_back)

    requeue = _change(writing.requeue)
    mark_lost = _change(writing.mark_lost)
    event = _change(writing.add_event)
    choose = _change(writing.choose)
    extend = _change(writing.extend)
    add_code = _change(writing.add_code)

    def add_command(self, study: StudyRecord, command: str) -> None:
        """Records the command of a user that runs trials of a study, unless it is the latest one; "" is none."""
        if command and command not in study.commands[-1:]:
            with self._database.writing() as connection:
                writing.add_command(connection, study.id, command)

    def set_search(self, study: StudyRecord, values: dict[str, Any]) -> None:
        """Records values of the section ``search:``, one of them the strategy, which each search may change."""
        before = study.configuration.get("search", {})
        if any(before.get(key, ...) != value for key, value in values.items()):
            with self._database.writing() as connection:
                writing.set_search(connection, study.id, values)

    def note(self, study_id: int, number: int, text: str) -> None:
        """Sets the note of a trial in place of an earlier one; "" removes it.

        Raises:
            StoreError: There is no such trial.
        """
        with self._database.writing() as connection:
            if not writing.note(connection, study_id, number, text):
                raise StoreError(f"there is no trial {number}", where=self.url, cure="mpi-opt results")

    # Reading

    studies = _query(reading.read_studies)
    study = _query(reading.read_study)
    trials = _query(reading.read_trials)
    earlier = _query(reading.read_earlier)
    front = _query(reading.read_front)
    ended_trials = _query(reading.read_ended)
    latest_ended = _query(reading.read_latest_ended)
    latest_times = _query(reading.read_latest_times)
    folds = _query(reading.read_folds)
    curves = _query(reading.read_curves)
    attempts = _query(reading.read_attempts)
    events = _query(reading.read_events)
    hints = _query(reading.read_hints)
    codes = _query(reading.read_codes)
    latest_code = _query(reading.read_latest_code)
    missing = _query(reading.read_missing)
    left_over = _query(reading.read_left_over)

    def best(self, study: StudyRecord, count: int = 1) -> list[TrialRecord]:
        """The `count` best complete trials, best first; equal ones: first the Pareto front, then by number."""
        return self._read(reading.read_best, study.id, study.maximize, count)

    def sql(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The column names and rows of a query in SQL. A store that is open `read_only` refuses every change."""
        if self.read_only and self._database.dialect.name not in ("sqlite", "postgresql"):
            cure = "use the client program of the database"
            raise StoreError(
                "only SQLite and PostgreSQL can refuse queries that change the data", where=self.url, cure=cure
            )
        try:
            return self._read(reading.read_sql, query)
        except InvalidQueryError as error:
            cure = suggestion("", self._read(reading.read_names), "views and tables")
            raise InvalidQueryError(error.problem, where=self.url, cure=cure) from error

    def _read(self, query: Callable[Concatenate[Connection, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        with self._database.reading() as connection:
            return query(connection, *arguments, **options)

    def _figures_of(self, study_id: int) -> FiguresOfMerit:
        """The figures of merit of a study, which are read from the database once."""
        if study_id not in self._figures:
            self._figures[study_id] = self._read(reading.read_study_figures, study_id)
        return self._figures[study_id]
