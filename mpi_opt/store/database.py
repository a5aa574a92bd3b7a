"""A connection to a database, and the three ways to use it: reading, repeated writing, and what is done once."""

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
        address: Of the database.
        read_only: Open it so that nothing can be changed.

    Attributes:
        url: The address without its password.
    """

    def __init__(self, address: URL, *, read_only: bool) -> None:
        self.url, self.read_only = connecting.where(address), read_only
        self._connection: Connection = connecting.connect(address, read_only=read_only)
        self._is_file = connecting.is_file(address)

    @property
    def dialect(self) -> Dialect:
        """What SQL it speaks."""
        return self._connection.dialect

    def close(self) -> None:
        """Ends the connection. An SQLite file that nobody else has open becomes a single ordinary file again."""
        if self._connection.closed:
            return
        if self._is_file and not self.read_only:
            with suppress(sqlite3.OperationalError):  # somebody reads it: the write-ahead log stays, which is well
                self._driver.execute("PRAGMA busy_timeout=0")
                self._driver.execute("PRAGMA journal_mode=DELETE")
        self._connection.close()
        self._connection.engine.dispose()

    @contextmanager
    def writing(self, *, durably: bool = True) -> Iterator[Any]:
        """A DBAPI cursor within one transaction; unless `durably`, SQLite does not wait for the disk."""
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
        finally:
            if self._is_file and not durably:
                cursor.execute("PRAGMA synchronous=FULL")
            cursor.close()

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """A transaction of Core, for what happens once in a search."""
        try:
            if self.dialect.name == "sqlite":
                self._connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.commit()
        except DBAPIError as error:
            self._connection.rollback()
            raise explained(error.orig, self.url) from error

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """The connection, for queries; leaves nothing behind."""
        try:
            yield self._connection
        except DBAPIError as error:
            raise explained(error.orig, self.url, read_only=self.read_only) from error
        except ValueError as error:  # JSON, numbers and text that are none
            raise damaged(str(error), self.url) from error
        finally:
            self._connection.rollback()

    @property
    def _driver(self) -> Any:
        return self._connection.connection.driver_connection

    def _roll_back(self, driver: Any) -> None:
        """Undoes the transaction; a connection that is gone is made anew."""
        try:
            driver.rollback()
        except self.dialect.loaded_dbapi.Error:
            self._connection.invalidate()
