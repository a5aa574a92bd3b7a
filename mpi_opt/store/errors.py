"""The errors of the store, and the messages of the drivers' errors.

mpi_opt.errors.StoreError   URL, directory, permission or version; exit status 2, except:
├── StoreNotReadyError          nothing was written; the same call may succeed later; exit status 1
│   ├── StoreFullError              no space on the disk, over the quota, or an I/O error
│   └── StoreLockedError            another program holds the write lock
├── StoreOutdatedError      the schema is older, and the store was opened for reading
├── StoreEmptyError         the database has no tables of a store, and was opened for reading
├── StoreUnreachableError   the server does not answer, or refuses the connection
├── InvalidQueryError       a query of the user has a wrong syntax, or the name of a table or column
├── StoreMovedError         the file was deleted or replaced while it was open; exit status 1
├── StoreDamagedError       SQLite cannot read the file, or its content is invalid
├── StoreConflictError          nothing was written; another process has changed the study since it was read
└── StudyOwnedError             another search runs the study
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from mpi_opt.errors import StoreError

if TYPE_CHECKING:
    from mpi_opt.store.records import StudyRecord


class StoreNotReadyError(StoreError):
    """The database cannot be written for the moment. The call wrote nothing and may be repeated later.

    One exception: if the connection to a server is lost during a commit, the call may have written.
    """

    exit_status = 1
    is_temporary = True


class StoreFullError(StoreNotReadyError):
    """There is no space left for the database, or the disk cannot be read or written."""


class StoreLockedError(StoreNotReadyError):
    """Another program holds the write lock."""


class StoreOutdatedError(StoreError):
    """The store has an older schema and was opened for reading, which cannot migrate it."""


class StoreEmptyError(StoreError):
    """The database has no tables of a store and was opened for reading, which cannot create them."""


class StoreUnreachableError(StoreError):
    """The server does not answer, or refuses the connection."""


class StoreMovedError(StoreError):
    """The file of the database was deleted or replaced while it was open. The open connection still has its content."""

    exit_status = 1


class StoreDamagedError(StoreError):
    """The database cannot be read, or has values that this program did not write."""


class InvalidQueryError(StoreError):
    """The syntax of a query is wrong, or there is no table or column of this name."""


class StoreConflictError(StoreError):
    """Another process has changed the study or trial. The call wrote nothing; read the study again before a retry."""


class StudyOwnedError(StoreError):
    """Another search runs the study."""


RECOVER = "recover the readable rows: sqlite3 FILE .recover | sqlite3 NEW.db"

SQLITE_ERRORS: dict[int, tuple[type[StoreError], str, str]] = {
    sqlite3.SQLITE_FULL: (StoreFullError, "the disk is full", "free some space"),
    sqlite3.SQLITE_IOERR: (
        StoreFullError,
        "reading or writing the disk failed",
        "check the quota, and that the file system is mounted",
    ),
    **dict.fromkeys(
        # PROTOCOL ("locking protocol"): a lock of the log was not free after many attempts; its holder may be frozen
        (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL),
        (StoreLockedError, "another program is writing to it", "end or commit that program's transaction"),
    ),
    sqlite3.SQLITE_READONLY: (
        StoreError,
        "no permission to write to it",
        "chmod u+w it, or name another file as the store",
    ),
    sqlite3.SQLITE_PERM: (StoreError, "no permission to open it", "check its permissions"),
    sqlite3.SQLITE_CANTOPEN: (StoreError, "the file cannot be opened", "check the path and its permissions"),
    sqlite3.SQLITE_NOTADB: (StoreDamagedError, "the file is not an SQLite database", "name another file as the store"),
    sqlite3.SQLITE_CORRUPT: (StoreDamagedError, "the database is damaged", RECOVER),
}

SQLSTATES: dict[str, tuple[type[StoreError], str, str]] = {
    "53100": (StoreFullError, "the server has no space left", "free some space there"),
    "53200": (StoreNotReadyError, "the server has too little memory", "free some memory there"),
    "53": (StoreNotReadyError, "the server has reached a limit, such as its connections", "see the server's log"),
    "55": (StoreLockedError, "another program holds a lock", "end or commit that program's transaction"),
    "40": (StoreLockedError, "the transaction conflicts with another program's", "try again"),
    "08": (StoreNotReadyError, "the connection to the server was lost", "check that the server runs"),
    "25P03": (StoreNotReadyError, "the server has ended a transaction because this process was stopped", "try again"),
    "57014": (
        StoreNotReadyError,
        "the server has cancelled the query: its time limit, or its administrator",
        "try again, or increase statement_timeout",
    ),
    "57": (StoreNotReadyError, "the server is shutting down or starting", "check that the server runs"),
}
"""PostgreSQL's SQLSTATE, or its class, the first two characters -> error, problem and cure."""

READ_ONLY_TRANSACTION = "25006"
"""PostgreSQL's SQLSTATE for an attempt to write in a read-only transaction."""

INVALID_QUERY = "42"
"""Class of PostgreSQL's SQLSTATE for errors of the syntax and unknown names."""

LOST_CONNECTION = "08006"
"""PostgreSQL's SQLSTATE for a connection that was lost."""

OPERATIONAL = "OperationalError"
"""The class of drivers (PEP 249) for errors that are not the program's, such as a lost connection."""

NO_PERMISSION = "42501"
"""PostgreSQL's SQLSTATE for a table or view that the user may not read or change."""

UNIQUE_VIOLATION = "23505"
"""PostgreSQL's SQLSTATE for a duplicate key."""


def damaged(how: str, where: str) -> StoreDamagedError:
    """The error for values in the database that this program did not write."""
    return StoreDamagedError(f"the database is damaged: {how}", where=where, cure=RECOVER)


def no_such_trial(study: StudyRecord, number: int) -> StoreError:
    """The error for a number that no trial of the study has."""
    cure = f"its trials are 0 to {study.n_trials - 1}" if study.n_trials else "it has none yet"
    return StoreError(f"there is no trial {number}", where=f"study {study.name}", cure=cure)


def conflict(where: str = "") -> StoreConflictError:
    """The error when another process has started or ended a trial, or created the study, since it was read."""
    return StoreConflictError(
        "another process has changed this study or trial", where=where, cure="run the same command again"
    )


def explained(error: BaseException | None, where: str, *, read_only: bool = False) -> StoreError:
    """Converts an error of the driver to an error with a message and a cure for the user.

    Args:
        error: The exception of the DBAPI driver.
        where: The URL of the store, without passwords.
        read_only: Whether the store was opened for reading.
    """
    code = getattr(error, "sqlite_errorcode", None)
    state = getattr(error, "sqlstate", None) or ""
    # PostgreSQL reports an SQLSTATE of five characters, SQLite an integer whose low byte is the class of the error
    if state == READ_ONLY_TRANSACTION or (read_only and code is not None and code & 0xFF == sqlite3.SQLITE_READONLY):
        problem = "the query would change the database, which is open for reading only"
        return StoreError(problem, where=where, cure="write a SELECT")
    if code in (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE) or state == UNIQUE_VIOLATION:
        return conflict(where)
    if state == NO_PERMISSION:
        cure = "ask the owner of the database to GRANT it to this user"
        return StoreError(f"the server reports: {str(error).strip()}", where=where, cure=cure)
    # psycopg has no SQLSTATE for what the server has not reported: that it does not answer
    is_lost = getattr(error, "sqlstate", "") is None and any(
        base.__name__ == OPERATIONAL for base in type(error).__mro__
    )
    state = LOST_CONNECTION if is_lost else state
    known = SQLITE_ERRORS.get(code & 0xFF) if code is not None else SQLSTATES.get(state, SQLSTATES.get(state[:2]))
    if known is None:
        kind = InvalidQueryError if code == sqlite3.SQLITE_ERROR or state.startswith(INVALID_QUERY) else StoreError
        return kind(f"the database reports: {str(error).strip()}", where=where, cure="see the database's manual")
    kind, problem, cure = known
    return kind(problem, where=where, cure=cure)
