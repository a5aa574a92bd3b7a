"""The leases of a database: for each study the search that runs it, one row each, changed by compare-and-swap.

The locks of the database make a change atomic: the write lock of SQLite, and on a server the row lock of the study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from sqlalchemy import Connection, delete, insert, select, update

from mpi_opt.store import connecting
from mpi_opt.store.database import Database
from mpi_opt.store.records import LeaseRecord
from mpi_opt.store.schema import leases, studies

COLUMNS = tuple(column for column in leases.c if column.name != "study_id")


class Leases:
    """The leases of an open database. Every method raises `StoreError` if it cannot be read or written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str, wait_s: float) -> Leases:
        """Opens a separate connection, which waits at most `wait_s` seconds for a locked SQLite file."""
        return cls(Database(connecting.parsed(url), read_only=False, lock_timeout_s=wait_s))

    @contextmanager
    def verified(self, study_id: int, verify: Callable[[Callable[[], LeaseRecord | None]], None]) -> Iterator[None]:
        """Calls `verify` in each writing transaction of this database during the block, with a function that reads the
        lease of the study. If `verify` raises, the transaction writes nothing.

        No other search can take the study over before the transaction ends: SQLite is locked, and on a server the row
        of the study is, in a way that only `acquire` waits for.
        """

        def verify_locked(connection: Connection) -> None:
            _lock(connection, study_id, shared=True)
            verify(lambda: _found(connection, study_id))

        before = self._database.verify
        self._database.verify = verify_locked
        try:
            yield
        finally:
            self._database.verify = before

    def close(self) -> None:
        """Closes the connection."""
        self._database.close()

    def read(self, study_id: int) -> LeaseRecord | None:
        """The search that owns the study, whether or not its process still exists; None if no search owns it."""
        with self._database.reading() as connection:
            return _found(connection, study_id)

    def acquire(self, study_id: int, mine: LeaseRecord, is_gone: Callable[[LeaseRecord], bool]) -> LeaseRecord:
        """Makes `mine` the owner of the study unless another search owns it.

        `is_gone` is called while the database is locked, and returns whether the present owner no longer exists.

        Returns:
            The search that owns the study after the call.
        """
        with self._database.writing() as connection:
            _lock(connection, study_id)
            holder = _found(connection, study_id)
            if holder is not None and not is_gone(holder):
                return holder
            # the locked row of the study, not that of the lease, excludes other searches between these two
            connection.execute(delete(leases).where(leases.c.study_id == study_id))
            connection.execute(insert(leases).values(study_id=study_id, **asdict(mine)))
        return mine

    def renew(self, study_id: int, token: str, at: str) -> bool:
        """Renews the lease of the search `token` at the time `at`.

        Returns:
            Whether this search still owns the study.
        """
        mine = (leases.c.study_id == study_id, leases.c.token == token)
        with self._database.writing() as connection:
            return connection.execute(update(leases).where(*mine).values(renewed_at=at)).rowcount == 1

    def release(self, study_id: int, token: str) -> None:
        """Deletes the lease of the search `token`; does nothing if this search no longer owns the study."""
        with self._database.writing() as connection:
            connection.execute(delete(leases).where(leases.c.study_id == study_id, leases.c.token == token))


def _lock(connection: Connection, study_id: int, *, shared: bool = False) -> None:
    """Locks the row of a study until the transaction ends. SQLite has no such locks; its write lock is taken already.

    Args:
        shared: ``FOR KEY SHARE`` of PostgreSQL, which several transactions may hold, also those that change the row.
    """
    if connection.dialect.name != "sqlite":
        row = select(studies.c.id).where(studies.c.id == study_id)
        connection.execute(row.with_for_update(read=shared, key_share=shared))


def _found(connection: Connection, study_id: int) -> LeaseRecord | None:
    row = connection.execute(select(*COLUMNS).where(leases.c.study_id == study_id)).one_or_none()
    return None if row is None else LeaseRecord(*row)
