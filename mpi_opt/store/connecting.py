"""From a URL to an open connection: what can be wrong with it, and what SQLite must be told.

One process writes, any number reads. SQLite on a local disk keeps a write-ahead log: readers never wait, and a commit
costs one fdatasync. That needs shared memory between all who open it, which network file systems do not give: there it
keeps the rollback journal.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event, inspect, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from mpi_opt.errors import without_passwords
from mpi_opt.store import schema
from mpi_opt.store.errors import StoreError, damaged, explained

WAIT_S = 10.0
"""How long to wait for a database that another program has locked, in seconds."""

LOCK_SCHEMA = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "SELECT pg_advisory_xact_lock(7401862209311)"}
"""By dialect: begins a transaction that one process has at a time. The number names this program's lock."""

FILE_SUFFIXES = (".db", ".sqlite", ".sqlite3")

# kinds of /proc/mounts; those in user space stand there with "fuse." before
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs",
        "nfs3",
        "nfs4",
        "cifs",
        "smb2",
        "smb3",
        "smbfs",
        "afs",
        "coda",
        "9p",
        "virtiofs",
        "davfs",
        "davfs2",
        "sshfs",
    }
    | {"lustre", "gpfs", "mmfs", "beegfs", "ceph", "glusterfs", "panfs", "pvfs2", "orangefs", "wekafs", "dvs"}
    | {"eos", "eosxd", "cvmfs2", "s3fs", "rclone", "mergerfs", "ocfs2", "gfs2", "lizardfs", "moosefs", "juicefs"}
)


def parsed(url: str) -> URL:
    """`url` as SQLAlchemy takes it; a plain path that ends in .db becomes an SQLite URL, and paths become absolute.

    Raises:
        StoreError: It is neither.
    """
    if ":" not in url and url.endswith(FILE_SUFFIXES):
        url = f"sqlite:///{url}"
    try:
        address = make_url(url)
        address.get_dialect()
    except (ArgumentError, NoSuchModuleError):
        cure = "write sqlite:///results.db, or postgresql://user@host/database"
        raise StoreError("this is not a database's URL", where=without_passwords(url), cure=cure) from None
    if address.drivername == "postgresql":
        address = address.set(drivername="postgresql+psycopg")
    if address.get_backend_name() == "sqlite" and address.database not in (None, "", ":memory:"):
        address = address.set(database=str(Path(address.database).expanduser().absolute()))
    return address


def where(address: URL) -> str:
    """`address` as errors name it: without its passwords."""
    return without_passwords(address.render_as_string(hide_password=True))


def is_in_memory(address: URL) -> bool:
    """Whether it is an SQLite database in memory, which this process alone can open."""
    return address.get_backend_name() == "sqlite" and address.database in (None, "", ":memory:")


def is_file(address: URL) -> bool:
    """Whether it is an SQLite file (not in memory, no server)."""
    return address.get_backend_name() == "sqlite" and not is_in_memory(address)


def may_exist(url: str) -> bool:
    """Whether there can be a study: False for a file that does not exist and for a database in memory."""
    address = parsed(url)
    return Path(address.database).exists() if is_file(address) else not is_in_memory(address)


def is_same(url: str, other: str) -> bool:
    """Whether two URLs are the same database."""
    return parsed(url) == parsed(other)


def connect(address: URL, *, read_only: bool, beside_s: float | None = None) -> Connection:
    """An open connection to a database of this program's schema, which is created or migrated when writing.

    Args:
        address: The database's.
        read_only: Open it so that nothing can be changed.
        beside_s: See `Database`.

    Raises:
        StoreError: Names the URL, the problem and its cure.
    """
    if is_file(address):
        _check_path(Path(address.database), address, read_only)
    try:
        engine = _engine(address, read_only, beside_s)
    except ImportError as error:
        raise StoreError(f"its driver is not installed: {error}", where=where(address), cure="pip install it") from None
    try:
        connection = engine.connect()
        _check_schema(connection, address, read_only)
    except DBAPIError as error:
        engine.dispose()
        raise _refused(error, address) from error
    except StoreError:
        engine.dispose()
        raise
    except (ValueError, TypeError) as error:  # bytes that are no text, a version that is no number
        engine.dispose()
        raise damaged(str(error), where(address)) from error
    return connection


def file_system(path: Path, mounts: str) -> str:
    """The type of the file system that holds `path`.

    Args:
        path: Absolute.
        mounts: What /proc/mounts says.
    """
    found, length = "", -1
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].encode().decode("unicode_escape")  # a space in a path stands there as \040
        if path.is_relative_to(point) and len(point) >= length:
            found, length = fields[2], len(point)
    return found


def is_on_network(path: Path) -> bool:
    """Whether `path` lies on a network file system, as far as /proc/mounts tells."""
    mounts = Path("/proc/mounts")
    return (
        mounts.exists()
        and file_system(path.resolve(), mounts.read_text()).removeprefix("fuse.") in NETWORK_FILE_SYSTEMS
    )


def _check_path(path: Path, address: URL, read_only: bool) -> None:
    place = where(address)
    if path.is_dir():
        raise StoreError(
            "this is a directory, not a file", where=place, cure=f"write {address.set(database='results.db')}"
        )
    if read_only and not path.exists():
        raise StoreError("there is no such file", where=place, cure="name the store of a search with --store")
    if not path.parent.is_dir():
        raise StoreError(f"the directory {path.parent} does not exist", where=place, cure=f"mkdir -p {path.parent}")
    if not read_only and not os.access(path if path.exists() else path.parent, os.W_OK):
        cure = "name a file that you may write to with --store"
        raise StoreError("no permission to write to it", where=place, cure=cure)


def _engine(address: URL, read_only: bool, beside_s: float | None) -> Engine:
    if address.get_backend_name() == "postgresql" and read_only:
        # read-only transactions, and each query prepared, for then it cannot hold a COMMIT and a second statement
        return create_engine(
            address.set(drivername="postgresql+psycopg"),
            execution_options={"postgresql_readonly": True},
            connect_args={"prepare_threshold": 0},
        )
    if address.get_backend_name() != "sqlite":
        return create_engine(address)
    if not is_file(address):
        return create_engine(address, poolclass=StaticPool)
    if read_only:
        return _reading_engine(Path(address.database))
    wait_s, synchronous = (WAIT_S, "FULL") if beside_s is None else (beside_s, "NORMAL")
    engine = create_engine(address, poolclass=StaticPool, connect_args={"timeout": wait_s})
    journal = "DELETE" if is_on_network(Path(address.database)) else "WAL"

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: Any) -> None:
        connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute(f"PRAGMA synchronous={synchronous}")

    return engine


def _reading_engine(path: Path) -> Engine:
    """Reads an SQLite file and can do nothing else: no writing, no attaching of other files."""

    def reader() -> sqlite3.Connection:
        # a log that nobody writes needs no shared memory beside it, which a directory without write permission refuses
        is_at_rest = not Path(f"{path}-wal").exists() and not os.access(path.parent, os.W_OK)
        uri = f"{path.as_uri()}?mode=ro{'&immutable=1' if is_at_rest else ''}"
        connection = sqlite3.connect(uri, uri=True, timeout=WAIT_S, check_same_thread=False)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        return connection

    return create_engine("sqlite://", creator=reader, poolclass=StaticPool)


def _check_schema(connection: Connection, address: URL, read_only: bool) -> None:
    """Creates the tables or migrates them; one process at a time, because several may find an empty database.

    Raises:
        StoreError: The database has other tables, an older schema and `read_only`, or a newer schema.
    """
    if not read_only and connection.dialect.name in LOCK_SCHEMA:
        connection.exec_driver_sql(LOCK_SCHEMA[connection.dialect.name])
    tables = set(inspect(connection).get_table_names())
    version = connection.scalar(select(schema.schema_version.c.version)) if "schema_version" in tables else None
    ours = tables & set(schema.metadata.tables)
    if version is None and (ours or read_only):
        problem = f"it holds other tables ({', '.join(sorted(ours))})" if ours else "it holds no studies"
        raise StoreError(f"{problem}: not a store of this program", where=where(address), cure="name another --store")
    if version is not None and version > schema.VERSION:
        problem = f"it was written by a newer version (schema {version}; this one knows {schema.VERSION})"
        raise StoreError(problem, where=where(address), cure="pip install --upgrade mpi-opt")
    if version is not None and version < schema.VERSION and read_only:
        problem = f"it has an older schema ({version}; this version reads {schema.VERSION})"
        raise StoreError(
            problem, where=where(address), cure="open it once for writing: mpi-opt search, or Store.open(url)"
        )
    if not read_only:
        _bring_up_to_date(connection, version)
        connection.commit()
    connection.rollback()


def _bring_up_to_date(connection: Connection, version: int | None) -> None:
    """Creates the tables, or migrates them step by step from `version`, within the caller's transaction."""
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
        return StoreError(
            problem, where=where(address), cure="look at host, port, user, password and that the server runs"
        )
    return explained(error.orig, where(address))
