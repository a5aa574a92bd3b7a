"""What the database can refuse, as a tree.

mpi_opt.errors.StoreError   the user must mend something: URL, directory, permission, version
└── StoreNotReadyError          nothing was written; the same call may be made again, later
    ├── StoreFullError              no room on the disk, or over the quota
    └── StoreLockedError            another program holds the database for writing
"""

from __future__ import annotations

import sqlite3

from mpi_opt.errors import StoreError

__all__ = ["StoreError", "StoreFullError", "StoreLockedError", "StoreNotReadyError", "damaged", "explained"]


class StoreNotReadyError(StoreError):
    """The database cannot take this now. Nothing of the call was written: make the same call again, later."""


class StoreFullError(StoreNotReadyError):
    """There is no room for the database."""


class StoreLockedError(StoreNotReadyError):
    """Another program holds the database for writing."""


RECOVER = "save what is left: sqlite3 FILE .recover | sqlite3 NEW.db"

SQLITE_ERRORS: dict[int, tuple[type[StoreError], str, str]] = {
    sqlite3.SQLITE_FULL: (StoreFullError, "there is no room on the disk", "free some space"),
    sqlite3.SQLITE_IOERR: (
        StoreFullError,
        "the disk refuses to write or read",
        "look for a full quota or a lost mount",
    ),
    sqlite3.SQLITE_BUSY: (
        StoreLockedError,
        "another program is writing to it",
        "end or commit that program's transaction",
    ),
    sqlite3.SQLITE_LOCKED: (
        StoreLockedError,
        "another program is writing to it",
        "end or commit that program's transaction",
    ),
    sqlite3.SQLITE_READONLY: (
        StoreError,
        "it may not be written to",
        "chmod u+w it, or name another file as the store",
    ),
    sqlite3.SQLITE_PERM: (StoreError, "it may not be opened", "look at its permissions"),
    sqlite3.SQLITE_CANTOPEN: (StoreError, "it cannot be opened", "look at the path and its permissions"),
    sqlite3.SQLITE_NOTADB: (StoreError, "it is not a SQLite database", "name another file as the store"),
    sqlite3.SQLITE_CORRUPT: (StoreError, "it is damaged", RECOVER),
}

SQLSTATES: dict[str, tuple[type[StoreError], str, str]] = {
    "53": (StoreFullError, "the server has no room", "free some space there"),
    "55": (StoreLockedError, "another program holds it", "end or commit that program's transaction"),
    "40": (StoreLockedError, "another program's transaction got in the way", "try again"),
    "08": (StoreNotReadyError, "the connection to the server was lost", "see that the server runs"),
    "57": (StoreNotReadyError, "the server is shutting down or starting", "see that the server runs"),
}
"""By the first two characters of PostgreSQL's SQLSTATE, its class of errors."""

READ_ONLY_TRANSACTION = "25006"
"""PostgreSQL's SQLSTATE for an attempt to write in a transaction that may only read."""

TWICE = "this study or trial stands there already"


def damaged(how: str, where: str) -> StoreError:
    """What stands in the database is nothing that this program wrote."""
    return StoreError(f"it is damaged: {how}", where=where, cure=RECOVER)


def explained(error: Exception, where: str, *, read_only: bool = False) -> StoreError:
    """What a driver's `error` means to a user.

    Args:
        error: As the DBAPI raised it.
        where: The store's URL.
        read_only: Whether the store was opened for reading.
    """
    code = getattr(error, "sqlite_errorcode", None)
    state = getattr(error, "sqlstate", None) or ""
    if state == READ_ONLY_TRANSACTION or (read_only and code is not None and code & 0xFF == sqlite3.SQLITE_READONLY):
        return StoreError("this would change it, and it is open for reading only", where=where, cure="write a SELECT")
    if code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY or code == sqlite3.SQLITE_CONSTRAINT_UNIQUE or state == "23505":
        return StoreError(TWICE, where=where, cure="see that only one search runs this study, or use another --study")
    known = SQLITE_ERRORS.get(code & 0xFF) if code is not None else SQLSTATES.get(state[:2])
    if known is None:
        return StoreError(f"the database says: {str(error).strip()}", where=where)
    kind, problem, cure = known
    return kind(problem, where=where, cure=cure)
