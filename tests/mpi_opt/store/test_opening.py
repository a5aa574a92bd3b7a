"""Errors in the URL or file of a store, each with its own message and cure."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mpi_opt.errors import ConfigurationError, StoreError
from mpi_opt.store import Store, connecting, schema
from mpi_opt.store.errors import StoreUnreachableError
from tests.mpi_opt.store.conftest import empty
from tests.mpi_opt.store.made_up import make_study
from tests.optional_packages import needs


def refused(url: object, *, read_only: bool = False) -> StoreError:
    with pytest.raises(StoreError) as caught:
        Store.open(str(url), read_only=read_only)
    assert caught.value.where and caught.value.cure
    return caught.value


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plain_path_is_relative_to_the_current_directory(in_folder: Path) -> None:
    with Store.open("results.db") as store:
        make_study(store, n_trials=4)
    assert (in_folder / "results.db").exists()
    with Store.open("sqlite:///results.db", read_only=True) as store:
        assert store.study("digits").counts


@pytest.mark.parametrize("name", ["run:1.db", "a#b %41.db", "50%.sqlite"])
def test_name_of_a_file_may_contain_characters_of_urls(in_folder: Path, name: str) -> None:
    with Store.open(name) as store:
        make_study(store, n_trials=4)
        address = store.address
    assert [path.name for path in in_folder.iterdir()] == [name]
    for url in (name, address):
        with Store.open(url, read_only=True) as store:
            assert store.study("digits").counts


def test_name_of_a_file_with_a_question_mark_is_refused(in_folder: Path) -> None:
    with pytest.raises(StoreError, match="question mark"):
        Store.open("a?b.db")


def test_text_that_is_not_unicode_is_no_damage(in_folder: Path) -> None:
    with Store.open("results.db") as store:
        make_study(store, n_trials=4)
        for read in (store.study, store.sql):
            with pytest.raises(StoreError, match="not valid text"):
                read("select '\udcff'")


@pytest.mark.parametrize(
    "url",
    ["results", "", "mangodb://host/x", "postgresql://me@host:port/db", "://", "sqlite:/results.db", "x+y://host/z.db"],
)
def test_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="not a database's URL"):
        Store.open(url)


def test_home_directory_of_an_unknown_user_is_reported(in_folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no home directory ~nosuchuser"):
        Store.open("~nosuchuser/results.db")


def test_missing_directory_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "there") in refused(tmp_path / "there" / "results.db").problem


def test_directory_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    assert "directory" in refused(f"sqlite:///{tmp_path}").problem


def test_reading_a_missing_file_does_not_create_it(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "results.db", read_only=True).problem
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("read_only", [False, True])
def test_file_that_is_no_database_is_refused_and_not_changed(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "notes.db"
    path.write_text("these are my notes, not a database\n" * 100)
    assert "not an SQLite database" in refused(path, read_only=read_only).problem
    assert path.read_text().startswith("these are my notes")


@pytest.mark.parametrize("read_only", [False, True])
def test_database_of_another_program_is_refused(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE trials (trial_id INTEGER)")
    connection.close()
    assert "other tables (trials)" in refused(path, read_only=read_only).problem


def test_read_only_file_is_refused_for_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.db"
    with Store.open(str(path)) as store:
        make_study(store, n_trials=4)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write to everything
    assert "no permission to write" in refused(path).problem


def test_store_in_a_folder_without_permission_to_write_is_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.db"
    with Store.open(str(path)) as store:
        make_study(store, n_trials=4)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Store.open(str(path), read_only=True) as store:
        assert store.study("digits").counts["complete"] > 0


@pytest.mark.parametrize("is_on_network", [False, True])
def test_reader_without_permission_to_write_to_the_folder_sees_the_changes_of_a_running_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on_network: bool
) -> None:
    monkeypatch.setattr(connecting, "is_on_network", lambda _: is_on_network)
    path = str(tmp_path / "results.db")
    with Store.open(path) as search:
        make_study(search, "first", n_trials=4)
        monkeypatch.setattr(os, "access", lambda *_: False)
        with Store.open(path, read_only=True) as store:
            assert [study.name for study in store.studies()] == ["first"]
            make_study(search, "second", n_trials=4)
            assert [study.name for study in store.studies()] == ["first", "second"]


def test_file_in_the_mode_of_the_log_is_readable_without_the_files_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.db"
    with Store.open(str(path)) as store:
        make_study(store, n_trials=4)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Store.open(str(path), read_only=True) as store:
        assert store.study("digits").counts["complete"] > 0
        assert [file.name for file in tmp_path.iterdir()] == ["results.db"]  # nothing that needs permission to write


def test_newer_schema_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    Store.open(str(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    connection.close()
    assert "schema 99" in refused(path).problem
    assert "schema 99" in refused(path, read_only=True).problem


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE schema_version SET version = 'two'",
        "UPDATE studies SET space = 'x'",
        "UPDATE studies SET configuration = '{'",
        "UPDATE trials SET parameters = '{'",
    ],
)
def test_store_with_invalid_content_is_reported(tmp_path: Path, change: str) -> None:
    path = tmp_path / "results.db"
    with Store.open(str(path)) as store:
        make_study(store, n_trials=4)
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    with pytest.raises(StoreError, match="damaged") as caught, Store.open(str(path), read_only=True) as store:
        store.trials(store.studies()[0].id)
    assert "recover" in caught.value.cure


def test_older_schema_is_brought_up_to_date_when_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.db"
    with Store.open(str(path)) as store:
        make_study(store, n_trials=12)
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 2)
    steps = {
        schema.VERSION - 2: ("ALTER TABLE events ADD COLUMN colour TEXT",),
        schema.VERSION - 1: ("UPDATE events SET colour = 'red'", "CREATE INDEX by_colour ON events (colour)"),
    }
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS | steps)
    assert "older schema" in refused(path, read_only=True).problem
    with Store.open(str(path)) as store:
        assert store.sql("SELECT DISTINCT colour FROM events")[1] == [("red",)]
        assert len(store.trials(1)) == 12
    with Store.open(str(path), read_only=True) as store:
        assert store.sql("SELECT version FROM schema_version")[1] == [(schema.VERSION,)]


def test_store_of_version_3_gets_the_tables_of_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with Store.open(str(path)) as store:
        make_study(store, n_trials=3)
        query = "SELECT name, type FROM pragma_table_info('{}')".format
        new = {name: store.sql(query(name))[1] for name in schema.metadata.tables}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE codes")
        connection.execute("ALTER TABLE attempts DROP COLUMN code")
        connection.execute("ALTER TABLE trials DROP COLUMN note")
        connection.execute("ALTER TABLE studies DROP COLUMN commands")
        connection.execute("UPDATE schema_version SET version = 3")
    with Store.open(str(path)) as store:
        for name, columns in new.items():
            assert sorted(store.sql(query(name))[1]) == sorted(columns), name
        assert [trial.code for trial in store.trials(1)] == [None] * 3
        assert store.codes(1) == []


def test_migration_that_fails_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.db"
    Store.open(str(path)).close()
    old = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", old + 1)
    monkeypatch.setattr(schema, "MIGRATIONS", {old: ("ALTER TABLE events ADD COLUMN colour TEXT", "NONSENSE")})
    with pytest.raises(StoreError, match="NONSENSE"):
        Store.open(str(path))
    monkeypatch.setattr(schema, "VERSION", old)
    with Store.open(str(path)) as store:
        assert "colour" not in store.sql("SELECT * FROM events")[0]


def _open_with_others(url: str, journal: str, barrier: Any, failures: Any) -> None:
    connecting.is_on_network = lambda _: journal == "delete"
    try:
        barrier.wait(30)
        with Store.open(url) as store:
            store.studies()
    except Exception as error:  # noqa: BLE001 - for the parent to show
        failures.put(f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("kind", ["wal", "delete", pytest.param("postgresql", marks=needs("psycopg"))])
def test_processes_that_create_a_store_at_once_get_the_same_one(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgresql") if kind == "postgresql" else None
    context = multiprocessing.get_context("fork")
    for attempt in range(8):
        if server is not None:
            empty(server)
        url = server or f"sqlite:///{tmp_path / f'{attempt}.db'}"
        barrier, failures = context.Barrier(6), context.SimpleQueue()
        processes = [context.Process(target=_open_with_others, args=(url, kind, barrier, failures)) for _ in range(6)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert failures.empty(), failures.get()
        with Store.open(url) as store:
            assert store.sql("SELECT version FROM schema_version")[1] == [(schema.VERSION,)]
            make_study(store, n_trials=1)


@needs("psycopg")
def test_server_that_is_not_there_is_named_without_the_password() -> None:
    error = refused("postgresql://ada:secret@127.0.0.1:1/studies")
    assert isinstance(error, StoreUnreachableError)
    assert "no connection" in error.problem
    assert "secret" not in str(error)


def test_missing_driver_is_named() -> None:
    assert "driver" in refused("oracle://ada@host/x").problem


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/ada/x.db", "ext4"),
        ("/lustre/project/x.db", "lustre"),
        ("/lustreless/x.db", "ext4"),
        ("/data/my disk/x.db", "nfs4"),
        ("/data/x.db", "xfs"),
        ("/mnt/données/x.db", "cifs"),
        ("/mnt/a\N{NO-BREAK SPACE}b/x.db", "smb3"),
        ("/mnt/\\x41/x.db", "beegfs"),
    ],
)
def test_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    mounts = ["/dev/sda / ext4 rw 0 0", "mds:/p /lustre lustre rw 0 0", "/dev/b /data xfs rw 0 0"]
    mounts += ["nas:/x /data/my\\040disk nfs4 rw 0 0", "nas:/d /mnt/données cifs rw 0 0"]
    mounts.append("nas:/a /mnt/a\N{NO-BREAK SPACE}b smb3 rw 0 0")
    mounts.append("nas:/b /mnt/\\134x41 beegfs rw 0 0")  # the kernel writes a backslash as \\134
    assert connecting.file_system(Path(path), "\n".join(mounts)) == kind


@pytest.mark.parametrize(("is_on_network", "journal"), [(True, "delete"), (False, "wal")])
def test_journal_suits_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on_network: bool, journal: str
) -> None:
    monkeypatch.setattr(connecting, "is_on_network", lambda _: is_on_network)
    with Store.open(str(tmp_path / "results.db")) as store:
        assert store.sql("PRAGMA journal_mode")[1] == [(journal,)]
        assert store.sql("PRAGMA synchronous")[1] == [(2,)]
        make_study(store, n_trials=8)
        assert store.sql("PRAGMA synchronous")[1] == [(2,)]


def test_closed_store_is_a_single_file(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "results.db")) as store:
        make_study(store, n_trials=8)
    assert [path.name for path in tmp_path.iterdir()] == ["results.db"]


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM trials",
        "DROP TABLE trials",
        "UPDATE trials SET figure_of_merit = 0",
        "ATTACH DATABASE 'stolen.db' AS other",
        "VACUUM INTO 'stolen.db'",
        "PRAGMA journal_mode = DELETE; DELETE FROM trials",
        "CREATE TABLE mine (x)",
    ],
)
def test_nothing_can_be_changed_through_a_store_open_for_reading(in_folder: Path, query: str) -> None:
    with Store.open("results.db") as store:
        make_study(store, n_trials=8)
    before = Path("results.db").read_bytes()
    with Store.open("results.db", read_only=True) as store:
        store.sql("PRAGMA query_only = OFF")
        with pytest.raises(StoreError):
            store.sql(query)
    assert Path("results.db").read_bytes() == before
    assert not Path("stolen.db").exists()


@needs("psycopg")
def test_nothing_can_be_changed_through_a_server_open_for_reading(postgresql: str) -> None:
    with Store.open(postgresql) as store:
        name = f"study {len(store.studies())}"
        make_study(store, name, n_trials=8)
    with Store.open(postgresql, read_only=True) as store:
        n_metrics = store.sql("SELECT count(*) FROM metrics")[1]
        for query in (
            "DELETE FROM metrics",
            "COMMIT; DELETE FROM metrics",
            "ROLLBACK; DROP TABLE metrics",
            "SET TRANSACTION READ WRITE; DELETE FROM metrics; COMMIT",
            "COMMIT; BEGIN READ WRITE; DELETE FROM metrics; COMMIT",
            "DO $$ BEGIN DELETE FROM metrics; END $$",
        ):
            with pytest.raises(StoreError):
                store.sql(query)
        for query in ("COMMIT", "SET TRANSACTION READ WRITE", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE"):
            store.sql(query)
            with pytest.raises(StoreError, match="open for reading only"):
                store.sql("DELETE FROM metrics")
        assert store.sql("SELECT count(*) FROM metrics WHERE name LIKE '%'")[1] == n_metrics


@needs("psycopg")
def test_missing_permission_on_a_server_is_not_a_wrong_query(postgresql: str) -> None:
    import psycopg

    with Store.open(postgresql) as store:
        make_study(store, f"study {len(store.studies())}", n_trials=1)
    with psycopg.connect(postgresql.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE ROLE eve LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA public TO eve")
        connection.execute("GRANT SELECT ON schema_version TO eve")
    theirs = postgresql.replace("ada@", "eve@")
    with Store.open(theirs, read_only=True) as store, pytest.raises(StoreError, match="permission denied") as caught:
        store.sql("SELECT * FROM metrics")
    assert "GRANT" in caught.value.cure
    assert "views and tables" not in str(caught.value)


def test_warnings_of_the_driver_about_transactions_that_are_repeated_are_not_printed() -> None:
    code = "import logging, mpi_opt.store; logging.getLogger('psycopg').warning('pipeline aborted')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_that_may_not_be_searched_is_named(tmp_path, monkeypatch):
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(StoreError, match=r"results\.db: the file cannot be opened: Permission denied\n  → check"):
        Store.open(f"sqlite:///{tmp_path / 'results.db'}", read_only=True)
