"""Opens a connection to the database of a URL: checks the path and the schema, and sets the options of SQLite.

One process writes, any number of processes read. On a local disk SQLite uses a write-ahead log: readers never wait, and
a commit costs one fdatasync. The log needs memory that all processes share, which a network file system does not
provide; on these SQLite uses the rollback journal.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event, inspect, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from mpi_learn.settings.paths import expanded
from mpi_opt.errors import StoreError, without_passwords
from mpi_opt.store import schema
from mpi_opt.store.errors import StoreEmptyError, StoreOutdatedError, StoreUnreachableError, damaged, explained

# psycopg warns of each transaction that fails because of another process, which this program expects and repeats
logging.getLogger("psycopg").addHandler(logging.NullHandler())

WAIT_S = 10.0
"""How long to wait for a database that another program has locked, in seconds."""

RETRY_S = 0.01
"""How long to wait before the journal mode is set again, in seconds."""

LIMIT_PAUSE = "set_config('idle_in_transaction_session_timeout', '15s', true)"
"""PostgreSQL then ends the present transaction if its client has sent nothing for so long. Otherwise, the locks of a
process that is stopped, or whose host is lost, would keep other searches waiting for hours."""

ANSWER_S = 60
"""Time after which a server that does not answer, not even on the level of TCP, is given up, in seconds."""

LOCK_SCHEMA = {
    "sqlite": "BEGIN IMMEDIATE",
    "postgresql": f"SELECT {LIMIT_PAUSE}, pg_advisory_xact_lock(7401862209311)",
}
"""Dialect -> the statement that begins an exclusive transaction. The number identifies this program's lock."""

FILE_SUFFIXES = (".db", ".sqlite", ".sqlite3")

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs3", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "coda", "9p", "virtiofs", "davfs", "davfs2"}
    | {"lustre", "gpfs", "mmfs", "beegfs", "ceph", "glusterfs", "panfs", "pvfs2", "orangefs", "wekafs", "dvs"}
    | {"eos", "eosxd", "cvmfs2", "s3fs", "sshfs", "rclone", "mergerfs", "ocfs2", "gfs2", "lizardfs", "moosefs"}
    | {"juicefs"}
)
"""The types in /proc/mounts of network file systems, without the prefix ``fuse.`` of those in user space."""


def parsed(url: str | os.PathLike[str]) -> URL:
    """Parses a URL. A path with one of `FILE_SUFFIXES` becomes an SQLite URL; relative paths become absolute.

    Raises:
        StoreError: `url` is neither a URL of SQLAlchemy nor a path with one of `FILE_SUFFIXES`.
        ConfigurationError: The path begins with ``~`` and the name of an unknown user.
    """
    if not isinstance(url, str | os.PathLike):
        raise StoreError(f"expected the URL of a database, found {url!r}", cure="write sqlite:///results.db")
    url = os.fspath(url)
    is_path = url.endswith(FILE_SUFFIXES) and not re.match(r"[\w+]+://|(sqlite|postgresql|mysql|mariadb)\b.*:", url)
    if is_path and "?" in url:  # SQLAlchemy 2.0 cannot write it into a URL
        raise StoreError("the name of the file contains a question mark", where=url, cure="rename the file")
    try:
        address = URL.create("sqlite", database=url) if is_path else make_url(url)
        address.get_dialect()
    except (ArgumentError, NoSuchModuleError, ValueError):  # a ValueError for a port that is not a number
        cure = "write sqlite:///results.db, or postgresql://user@host/database"
        raise StoreError("this is not a database's URL", where=without_passwords(url), cure=cure) from None
    if address.drivername == "postgresql":
        address = address.set(drivername="postgresql+psycopg")
    path = file_path(address)
    return address if path is None else address.set(database=str(expanded(path).absolute()))


def without_password(address: URL) -> str:
    """`address` for error messages: without passwords."""
    return without_passwords(address.render_as_string(hide_password=True))


def is_in_memory(address: URL) -> bool:
    """Whether `address` is an SQLite database in memory, which only this process can open."""
    return address.get_backend_name() == "sqlite" and address.database in (None, "", ":memory:")


def file_path(address: URL) -> Path | None:
    """The path of an SQLite file; None for a database in memory or on a server."""
    if address.get_backend_name() != "sqlite" or is_in_memory(address):
        return None
    return Path(address.database or "")


def may_exist(url: str) -> bool:
    """Whether the database can contain a study: False for a missing file and for a database in memory."""
    address = parsed(url)
    path = file_path(address)
    return not is_in_memory(address) if path is None else path.exists()


def is_same(url: str, other: str) -> bool:
    """Whether two URLs name the same database."""
    return parsed(url) == parsed(other)


def connect(address: URL, *, read_only: bool, lock_timeout_s: float | None = None) -> Connection:
    """Opens a connection; unless `read_only`, creates or migrates the tables.

    Args:
        address: The URL of the database.
        read_only: Whether to refuse every change.
        lock_timeout_s: For a second connection of this process: the time limit for a locked SQLite file, in seconds.

    Raises:
        StoreError: Names the URL, the problem and its cure.
    """
    path = file_path(address)
    if path is not None:
        try:
            _check_path(path, address, read_only)
        except OSError as error:  # the folder may not be searched, or its file system does not answer
            problem = f"the file cannot be opened: {error.strerror}"
            raise StoreError(
                problem, where=without_password(address), cure="check the permissions of its folders"
            ) from None
    try:
        engine = _engine(address, read_only, lock_timeout_s)
    except ImportError as error:
        raise StoreError(
            f"the driver is not installed: {error}", where=without_password(address), cure="install it with pip"
        ) from None
    try:
        connection = engine.connect()
        _check_schema(connection, address, read_only)
    except DBAPIError as error:
        engine.dispose()
        raise _refused(error, address) from error
    except StoreError:
        engine.dispose()
        raise
    except (ValueError, TypeError) as error:  # invalid text, or a version that is not a number
        engine.dispose()
        raise damaged(str(error), without_password(address)) from error
    return connection


def file_system(path: Path, mounts: str) -> str:
    """The type of the file system of an absolute path, according to `mounts`, the content of /proc/mounts."""
    found, length = "", -1
    for line in mounts.split("\n"):
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1])  # a space is written as \040
        if path.is_relative_to(point) and len(point) >= length:
            found, length = fields[2], len(point)
    return found


def is_on_network(path: Path) -> bool:
    """Whether `path` is on a network file system, according to /proc/mounts; False without this file."""
    mounts = Path("/proc/mounts")
    return (
        mounts.exists()
        and file_system(path.resolve(), os.fsdecode(mounts.read_bytes())).removeprefix("fuse.") in NETWORK_FILE_SYSTEMS
    )


def _check_path(path: Path, address: URL, read_only: bool) -> None:
    place = without_password(address)
    if path.is_dir():
        raise StoreError(
            "expected a file, found a directory", where=place, cure=f"write {address.set(database='results.db')}"
        )
    if read_only and not path.exists():
        raise StoreError("there is no such file", where=place, cure="name the store of a search with --store")
    if not path.parent.is_dir():
        raise StoreError(f"the directory {path.parent} does not exist", where=place, cure=f"mkdir -p {path.parent}")
    if not read_only and not os.access(path if path.exists() else path.parent, os.W_OK):
        cure = "name a file that you may write to with --store"
        raise StoreError("no permission to write to it", where=place, cure=cure)


def _engine(address: URL, read_only: bool, lock_timeout_s: float | None) -> Engine:
    if address.get_backend_name() == "postgresql" and read_only:
        # transactions are read-only; a prepared query is a single statement: it cannot commit and then write
        return create_engine(
            address.set(drivername="postgresql+psycopg"),
            execution_options={"postgresql_readonly": True},
            connect_args={"prepare_threshold": 0},
        )
    if address.drivername == "postgresql+psycopg":
        # without them, a search waits for up to two hours for a server whose host is lost
        limits = {"keepalives_idle": ANSWER_S // 2, "keepalives_interval": ANSWER_S // 6, "keepalives_count": 3}
        limits |= {"tcp_user_timeout": ANSWER_S * 1000}
        return create_engine(address, connect_args={key: limits[key] for key in limits if key not in address.query})
    if address.get_backend_name() != "sqlite":
        return create_engine(address)
    path = file_path(address)
    if path is None:
        return create_engine(address, poolclass=StaticPool)
    if read_only:
        return _reading_engine(path)
    wait_s, synchronous = (WAIT_S, "FULL") if lock_timeout_s is None else (lock_timeout_s, "NORMAL")
    engine = create_engine(address, poolclass=StaticPool, connect_args={"timeout": wait_s})
    journal = "DELETE" if is_on_network(path) else "WAL"

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: Any) -> None:
        _set_journal(connection, journal, wait_s)
        connection.execute(f"PRAGMA synchronous={synchronous}")

    return engine


def _set_journal(connection: sqlite3.Connection, journal: str, wait_s: float) -> None:
    """Sets the journal mode. SQLite does not wait while another process changes the mode of the same file."""
    until_s = time.monotonic() + wait_s
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode={journal}")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until_s:
                raise
            time.sleep(RETRY_S)


def _reading_engine(path: Path) -> Engine:
    """An engine that reads an SQLite file; it cannot write, and cannot attach other files."""

    def reader() -> sqlite3.Connection:
        # the shared memory of the log is a file, which cannot be created in a directory without write permission
        is_immutable = not os.access(path.parent, os.W_OK) and _is_wal_without_log(path)
        uri = f"{path.as_uri()}?mode=ro{'&immutable=1' if is_immutable else ''}"
        connection = sqlite3.connect(uri, uri=True, timeout=WAIT_S, check_same_thread=False)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        return connection

    return create_engine("sqlite://", creator=reader, poolclass=StaticPool)


def _is_wal_without_log(path: Path) -> bool:
    """Whether an SQLite file is in the mode of the write-ahead log, but has no log: no process has it open."""
    if Path(f"{path}-wal").exists():
        return False
    try:
        with path.open("rb") as file:
            return file.read(20)[18:] == b"\2\2"  # the versions of the format for writing and reading
    except OSError:
        return False


def _check_schema(connection: Connection, address: URL, read_only: bool) -> None:
    """Checks the schema; unless `read_only`, creates or migrates the tables.

    One process at a time does this: otherwise several could find the same empty database and create its tables.

    Raises:
        StoreError: The database has other tables, an older schema and `read_only`, or a newer schema.
    """
    if not read_only and connection.dialect.name in LOCK_SCHEMA:
        connection.exec_driver_sql(LOCK_SCHEMA[connection.dialect.name])
    tables = set(inspect(connection).get_table_names())
    version = connection.scalar(select(schema.schema_version.c.version)) if "schema_version" in tables else None
    if version is None:
        _check_without_version(tables & set(schema.metadata.tables), without_password(address), read_only)
    else:
        _check_version(version, without_password(address), read_only)
    if not read_only:
        _create_or_migrate(connection, version)
        connection.commit()
    connection.rollback()


def _check_without_version(known_names: set[str], place: str, read_only: bool) -> None:
    """Verifies that a database without a schema version can become a store.

    `known_names` are those of its tables that have the name of a table of a store; there must be none.
    """
    if not known_names and not read_only:
        return
    kind = StoreError if known_names else StoreEmptyError
    problem = f"other tables ({', '.join(sorted(known_names))})" if known_names else "no studies"
    raise kind(f"the database contains {problem}: not a store of MPI Opt", where=place, cure="name another --store")


def _check_version(version: int, place: str, read_only: bool) -> None:
    if version > schema.VERSION:
        problem = f"the store was written by a newer version (schema {version}; this version reads {schema.VERSION})"
        raise StoreError(problem, where=place, cure="pip install --upgrade mpi-opt")
    if version < schema.VERSION and read_only:
        problem = f"the store has an older schema ({version}; this version reads {schema.VERSION})"
        cure = "open it once for writing: mpi-opt search, ask or tell, or Store.open(url)"
        raise StoreOutdatedError(problem, where=place, cure=cure)


def _create_or_migrate(connection: Connection, version: int | None) -> None:
    """Creates the tables, or migrates them step by step from `version`, within the transaction of the caller."""
    if version is None:
        schema.metadata.create_all(connection)
        connection.execute(schema.schema_version.insert().values(version=schema.VERSION))
        return
    for step in range(version, schema.VERSION):
        for statement in schema.MIGRATIONS[step]:
            connection.execute(text(statement))
    if version < schema.VERSION:
        connection.execute(schema.schema_version.update().values(version=schema.VERSION))


def _refused(error: DBAPIError, address: URL) -> StoreError:
    if address.get_backend_name() != "sqlite" and not getattr(error.orig, "sqlstate", None):
        problem = f"no connection: {without_passwords(str(error.orig).strip().splitlines()[0])}"
        return StoreUnreachableError(
            problem,
            where=without_password(address),
            cure="check host, port, user and password, and that the server runs",
        )
    return explained(error.orig, without_password(address))
