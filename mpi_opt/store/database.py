"""A connection to a database, and three ways to use it: reading, repeated writing, and rare changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import URL, Connection, Dialect
from sqlalchemy.exc import DBAPIError

from mpi_opt.store import connecting
from mpi_opt.store.errors import damaged, explained


class Database:
    """An open connection. Everything raises `StoreError`.

    Args:
        address: The database's.
        read_only: Open it so that nothing can be changed.
        beside_s: For a second connection of this process: how long to wait for a locked SQLite file, in seconds. Such a
            connection does not wait until the disk has its commits.

    Attributes:
        url: The address without its password.
    """

    def __init__(self, address: URL, *, read_only: bool, beside_s: float | None = None) -> None:
        self.url, self.read_only = connecting.where(address), read_only
        self._connection: Connection = connecting.connect(address, read_only=read_only, beside_s=beside_s)
        self._is_file = connecting.is_file(address)

    @property
    def dialect(self) -> Dialect:
        """The SQL dialect."""
        return self._connection.dialect

    def close(self) -> None:
        """Ends the connection. An SQLite file that no other process has open becomes a single file again."""
        if self._connection.closed:
            return
        if self._is_file and not self.read_only:
            with suppress(sqlite3.OperationalError):  # another process reads it: the write-ahead log stays
                self._driver.execute("PRAGMA busy_timeout=0")
                self._driver.execute("PRAGMA journal_mode=DELETE")
        self._connection.close()
        self._connection.engine.dispose()

    @contextmanager
    def writing(self, *, durably: bool = True) -> Iterator[Any]:
        """A DBAPI cursor within one transaction, which an exception rolls back.

        Args:
            durably: Whether SQLite waits until the disk has the commit.
        """
        driver = self._driver
        cursor = driver.cursor()
        try:
            if self._is_file and not durably:
                cursor.execute("PRAGMA synchronous=NORMAL")
            yield cursor
            driver.commit()
        except self.dialect.loaded_dbapi.Error as error:
            self._roll_back(driver)
            raise explained(error, self.url) from error
        except BaseException:
            self._roll_back(driver)
            raise
        finally:
            if self._is_file and not durably:
                cursor.execute("PRAGMA synchronous=FULL")
            cursor.close()

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """A Core connection within one transaction, for rare statements; an exception rolls it back.

        SQLite takes the write lock at the beginning: what is read inside stays true until the commit.
        """
        try:
            if self.dialect.name == "sqlite":
                self._connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.commit()
        except DBAPIError as error:
            self._connection.rollback()
            raise explained(error.orig, self.url) from error
        except BaseException:
            self._connection.rollback()
            raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """The connection, for queries; ends its transaction afterwards."""
        try:
            yield self._connection
        except DBAPIError as error:
            raise explained(error.orig, self.url, read_only=self.read_only) from error
        except ValueError as error:  # text that is not JSON, or not a number
            raise damaged(str(error), self.url) from error
        finally:
            self._connection.rollback()

    @property
    def _driver(self) -> Any:
        return self._connection.connection.driver_connection

    def _roll_back(self, driver: Any) -> None:
        """Rolls the transaction back; a broken connection is replaced at its next use."""
        try:
            driver.rollback()
        except self.dialect.loaded_dbapi.Error:
            self._connection.invalidate()
