"""A connection to a database with two kinds of transactions, reading and writing, and statements for many rows."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Dialect, Insert, Select, Update
from sqlalchemy.exc import DBAPIError

from mpi_opt.errors import StoreError
from mpi_opt.store import connecting
from mpi_opt.store.errors import StoreConflictError, StoreMovedError, damaged, explained

UNKNOWN = (-1, -1)
"""The identity of a file that the file system does not tell."""

Row = dict[str, Any]
"""Values by column; the keys ``key`` and ``key_attempt`` select the row to change."""


class Database:
    """An open connection. Every method raises `StoreError`.

    Args:
        address: The URL of the database.
        read_only: Whether to refuse every change.
        lock_timeout_s: For a second connection of this process: the time limit for a locked SQLite file, in seconds.
            Such a connection does not wait until its commits are on the disk.

    Attributes:
        url: The address without its password.
        verify: Called in each writing transaction before its first statement; if it raises, nothing is written.
    """

    def __init__(self, address: URL, *, read_only: bool, lock_timeout_s: float | None = None) -> None:
        self.url, self.read_only = connecting.without_password(address), read_only
        self.verify: Callable[[Connection], None] = _accept
        self._connection: Connection = connecting.connect(address, read_only=read_only, lock_timeout_s=lock_timeout_s)
        self._path = connecting.file_path(address)
        self._is_file = self._path is not None
        self._identity = _identity(self._path)

    @property
    def dialect(self) -> Dialect:
        """The SQL dialect."""
        return self._connection.dialect

    @property
    def is_in_place(self) -> bool:
        """Whether an SQLite file is the one that this connection has opened; True if that cannot be determined."""
        found = _identity(self._path)
        return found == self._identity or UNKNOWN in (found, self._identity)

    def check_in_place(self) -> None:
        """Verifies that an SQLite file is the one that this connection has opened.

        SQLite would continue to write into a file that was deleted.

        Raises:
            StoreMovedError: It was deleted, renamed or replaced.
        """
        if self.is_in_place:
            return
        how = "deleted or renamed" if _identity(self._path) is None else "replaced by another one"
        raise StoreMovedError(
            f"the file was {how} while it was open",
            where=self.url,
            cure="name another file as the store: --store NEW.db",
        )

    def copy_to(self, path: Path) -> None:
        """Copies the content of an SQLite file, as this connection sees it, to a new file."""
        with closing(sqlite3.connect(path)) as copy:
            self._driver.backup(copy)

    def close(self) -> None:
        """Closes the connection. Unless another process has the SQLite file open, its write-ahead log is removed.

        The log of a file that was replaced is left, since it may be that of the new file.
        """
        if self._connection.closed:
            return
        if self._is_file and not self.read_only and self.is_in_place:
            with suppress(sqlite3.OperationalError):  # another process reads it: the write-ahead log stays
                self._driver.execute("PRAGMA busy_timeout=0")
                self._driver.execute("PRAGMA journal_mode=DELETE")
        self._connection.close()
        self._connection.engine.dispose()

    @contextmanager
    def writing(self, *, durably: bool = True) -> Iterator[Connection]:
        """Runs the block in one transaction, which an exception rolls back.

        SQLite takes the write lock at the beginning: values that are read in the block stay valid until the commit.

        Args:
            durably: Whether SQLite waits until the commit is on the disk.
        """
        self.check_in_place()
        connection = self._connection
        try:
            if self._is_file and not durably:  # SQLite does not change it inside of a transaction
                self._driver.execute("PRAGMA synchronous=NORMAL")
            connection.begin()
            if self.dialect.name == "sqlite":
                self._driver.execute("BEGIN IMMEDIATE")
            if self.dialect.name == "postgresql":  # a process that is stopped now, or its host, must not keep its locks
                connection.exec_driver_sql(f"SELECT {connecting.LIMIT_PAUSE}")
            self.verify(connection)  # behind the lock: what it finds stays true until the commit
            yield connection
            connection.commit()
        except BaseException as error:
            self._roll_back()
            match error:
                case DBAPIError():
                    raise explained(error.orig, self.url) from error
                case self.dialect.loaded_dbapi.Error():
                    raise explained(error, self.url) from error
                case StoreConflictError():
                    raise error.at(self.url) from None
            raise
        finally:
            if self._is_file and not durably:
                self._driver.execute("PRAGMA synchronous=FULL")

    def _roll_back(self) -> None:
        """Rolls the transaction back; a broken connection is replaced at its next use."""
        try:
            self._connection.rollback()
        except DBAPIError:
            self._connection.invalidate()
            self._connection.rollback()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yields the connection for queries; rolls its transaction back afterwards."""
        try:
            yield self._connection
        except DBAPIError as error:
            raise explained(error.orig, self.url, read_only=self.read_only) from error
        except UnicodeEncodeError as error:
            raise StoreError("a name or a query is not valid text", where=self.url, cure="write it in UTF-8") from error
        except ValueError as error:  # text that is not JSON, or not a number
            raise damaged(str(error), self.url) from error
        finally:
            self._connection.rollback()

    @property
    def _driver(self) -> Any:
        return self._connection.connection.driver_connection


def _accept(connection: Connection) -> None:
    """Verifies nothing."""


def _identity(path: Path | None) -> tuple[int, int] | None:
    """The device and number of a file; None if it does not exist, `UNKNOWN` if the file system does not answer."""
    try:
        found = None if path is None else os.stat(path)  # noqa: PTH116 - twice as fast, before each transaction
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:  # reading or writing raises a better error
        return UNKNOWN
    return None if found is None else (found.st_dev, found.st_ino)


def run(connection: Connection, statement: Insert | Update | Select[Any], rows: Sequence[Row]) -> Any:
    """Runs a statement once for each of `rows`, on the driver: SQLAlchemy takes several times as long per statement.

    Returns:
        The cursor of the driver (PEP 249); None without rows.
    """
    if not rows:
        return None
    text, arguments = _compiled(statement, tuple(rows[0]), connection.dialect)
    cursor = connection.connection.cursor()
    if len(rows) == 1:
        cursor.execute(text, arguments(rows[0]))
    else:
        cursor.executemany(text, [*map(arguments, rows)])
    return cursor


@lru_cache(maxsize=256)  # a process may open many stores, each with a dialect of its own
def _compiled(
    statement: Insert | Update | Select[Any], columns: tuple[str, ...], dialect: Dialect
) -> tuple[str, Callable[[Row], Any]]:
    """The text of a statement for the driver, and a function from a row to the arguments that the driver expects."""
    compiled = statement.compile(dialect=dialect, column_keys=list(columns))
    constants = {name: value for name, value in compiled.params.items() if name not in columns}
    if compiled.positiontup is None:  # the driver expects names
        return str(compiled), lambda row: constants | row
    if len(compiled.positiontup) == 1:
        (only,) = compiled.positiontup
        return str(compiled), lambda row: (row[only],)
    in_order = itemgetter(*compiled.positiontup)
    return str(compiled), (lambda row: in_order(constants | row)) if constants else in_order
