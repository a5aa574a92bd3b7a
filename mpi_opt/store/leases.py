"""Which search runs which study: one row for each study that a search runs, changed by compare-and-swap.

The database's own locks make a change atomic: SQLite's write lock, which its rollback journal needs on network file
systems anyway, and the study's row lock on a server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from sqlalchemy import Connection, delete, insert, select, update

from mpi_opt.store import connecting
from mpi_opt.store.database import Database
from mpi_opt.store.records import LeaseRecord
from mpi_opt.store.schema import leases, studies

COLUMNS = tuple(column for column in leases.c if column.name != "study_id")


class Leases:
    """The leases of a database.

    Args:
        database: Open.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str, wait_s: float) -> Leases:
        """The leases of an existing database, over a connection of their own.

        Args:
            url: As for `Store.open`.
            wait_s: How long to wait for a locked SQLite file, in seconds.

        Raises:
            StoreError: The database cannot be opened.
        """
        return cls(Database(connecting.parsed(url), read_only=False, beside_s=wait_s))

    def close(self) -> None:
        """Ends the connection."""
        self._database.close()

    def read(self, study_id: int) -> LeaseRecord | None:
        """The search that runs the study, alive or not; None if there is none."""
        with self._database.reading() as connection:
            return _found(connection, study_id)

    def take(self, study_id: int, mine: LeaseRecord, is_gone: Callable[[LeaseRecord], bool]) -> LeaseRecord:
        """Gives the study to `mine` if no other search has it.

        Args:
            study_id: The study.
            mine: The search that wants it.
            is_gone: Whether a search that has the study no longer exists; called while the database is locked.

        Returns:
            The search that has the study now.

        Raises:
            StoreError: The database cannot be written.
        """
        with self._database.changing() as connection:
            connection.execute(select(studies.c.id).where(studies.c.id == study_id).with_for_update())
            holder = _found(connection, study_id)
            if holder is not None and not is_gone(holder):
                return holder
            connection.execute(delete(leases).where(leases.c.study_id == study_id))
            connection.execute(insert(leases).values(study_id=study_id, **asdict(mine)))
        return mine

    def renew(self, study_id: int, token: str, at: str) -> bool:
        """Enters a sign of life of the search `token`.

        Returns:
            Whether this search still has the study.

        Raises:
            StoreError: The database cannot be written.
        """
        mine = (leases.c.study_id == study_id, leases.c.token == token)
        with self._database.changing() as connection:
            return connection.execute(update(leases).where(*mine).values(renewed_at=at)).rowcount == 1

    def release(self, study_id: int, token: str) -> None:
        """Ends the lease of the search `token`; does nothing if it no longer has the study.

        Raises:
            StoreError: The database cannot be written.
        """
        with self._database.changing() as connection:
            connection.execute(delete(leases).where(leases.c.study_id == study_id, leases.c.token == token))


def _found(connection: Connection, study_id: int) -> LeaseRecord | None:
    row = connection.execute(select(*COLUMNS).where(leases.c.study_id == study_id)).one_or_none()
    return None if row is None else LeaseRecord(*row)
