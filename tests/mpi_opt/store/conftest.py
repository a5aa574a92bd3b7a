"""A PostgreSQL server for this test run, if Debian's packages are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mpi_opt.store import Store
from mpi_opt.store.records import LeaseRecord
from tests.optional_packages import needs


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) if Path("/usr/lib/postgresql").exists() else []
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _as_server_user() -> list[str]:
    """PostgreSQL refuses to run as root: then it runs as the user that its package made."""
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a running server without tables, for tests that need psycopg; skips if it is not installed."""
    programs = _programs()
    if programs is None:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="postgresql-", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    user, data = _as_server_user(), folder / "data"
    quiet = {"check": True, "capture_output": True, "cwd": folder}
    subprocess.run([*user, programs / "initdb", "-D", data, "-A", "trust", "-U", "ada", "--no-sync"], **quiet)
    options = f"-k {folder} -c listen_addresses= -c fsync=off"
    subprocess.run(
        [*user, programs / "pg_ctl", "-D", data, "-o", options, "-l", folder / "log", "-w", "start"], **quiet
    )
    try:
        yield f"postgresql+psycopg://ada@/postgres?host={folder}"
    finally:
        subprocess.run([*user, programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **quiet)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["memory", "file", pytest.param("postgresql", marks=needs("psycopg"))])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind, empty."""
    if request.param == "memory":
        return "sqlite://"
    if request.param == "file":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server = request.getfixturevalue("postgresql")
    empty(server)
    return server


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty store of each kind, open. Its queries are those of another process, unless it is in memory."""
    with (ReadElsewhere if url != "sqlite://" else Store).open(url) as opened:
        yield opened


class ReadElsewhere(Store):
    """Opens the database anew for each query: changes that a call has not committed are not seen."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.leases.read = self._read_lease

    def _read_lease(self, study_id: int) -> LeaseRecord | None:
        with Store.open(self.address, read_only=True) as other:
            return other.leases.read(study_id)

    def _read(self, query: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with Store.open(self.address, read_only=True) as other:
            return other._read(query, *arguments, **options)


def empty(server: str) -> None:
    """Removes all tables."""
    import psycopg

    with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
