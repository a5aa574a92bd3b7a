"""Nothing finished is lost: killed writers, power cuts, full disks, other readers, and locks."""

from __future__ import annotations

import itertools
import os
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpi_opt.coordinator.retrying_store import RetryingStore
from mpi_opt.core.search_space.space import Real, Space
from mpi_opt.store import Store, connecting, leases, writing
from mpi_opt.store.errors import StoreFullError, StoreLockedError, StoreNotReadyError, explained
from mpi_opt.store.records import LeaseRecord, StudyRecord
from tests.mpi_opt.store.made_up import finish, start
from tests.optional_packages import needs

WRITER = """
import sys
from mpi_opt.store import Store, connecting
from tests.mpi_opt.store.made_up import finish, start
from mpi_opt.core.search_space.space import Real, Space

path, journal = sys.argv[1:]
connecting.is_on_network = lambda _: journal == "delete"
store = Store.open(path)
study = store.create_study(
    "demo", strategy="random", seed=1, configuration={}, space=Space({"x": Real(0, 1)})
)
print("ready", flush=True)
for first in range(0, 10**6, 3):
    numbers = range(first, first + 3)
    store.start(study.id, [start(n) for n in numbers])
    store.finish(study.id, [finish(n, float(n)) for n in numbers])
    print(first + 2, flush=True)
"""


ENDING = """
import sys
from mpi_opt.store import Store
from mpi_opt.core.search_space.space import Real, Space
from tests.mpi_opt.store.made_up import finish, start

store = Store.open(sys.argv[1])
study = store.create_study("demo", strategy="random", seed=1, configuration={}, space=Space({"x": Real(0, 1)}))
store.start(study.id, [start(number) for number in range(9)])
for number in range(int(sys.argv[2])):
    store.finish(study.id, [finish(number)])
"""


def create(store: Store) -> StudyRecord:
    space = Space({"x": Real(0, 1)})
    return store.create_study("demo", strategy="random", seed=1, configuration={}, space=space)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


def begin_writing(path: Path, journal: str) -> subprocess.Popen[str]:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), journal], stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "ready\n"
    return writer


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_every_end_of_a_trial_waits_for_the_disk(tmp_path: Path) -> None:
    def n_waits(n_ended: int) -> int:
        calls = tmp_path / f"calls{n_ended}"
        store = tmp_path / f"{n_ended}.db"
        command = ["strace", "-f", "-o", calls, "-e", "trace=fsync,fdatasync", sys.executable, "-c", ENDING, store]
        subprocess.run([*map(str, command), str(n_ended)], check=True)
        return sum("sync(" in line for line in calls.read_text().splitlines())

    assert n_waits(9) - n_waits(0) >= 9


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_killed_writer_loses_no_result_that_was_acknowledged(path: Path, journal: str) -> None:
    for seconds in (0.05, 0.13, 0.31):
        path.unlink(missing_ok=True)
        writer = begin_writing(path, journal)
        acknowledged = [int(writer.stdout.readline())]
        time.sleep(seconds)
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in writer.stdout.read().split()]
        writer.wait()
        with Store.open(str(path)) as store:
            assert store.sql("PRAGMA integrity_check")[1] == [("ok",)]
            study = store.study("demo")
            complete = [trial.number for trial in store.trials(study.id, ["complete"])]
            running = [trial.number for trial in store.trials(study.id, ["running"])]
            assert complete[: acknowledged[-1] + 1] == list(range(acknowledged[-1] + 1))
            store.requeue(study.id, running, "the search ended")
            following = len(complete) + len(running)
            store.start(study.id, [start(following), *(start(number, attempt=2) for number in running)])
            store.finish(study.id, [finish(following), *(finish(number, attempt=2) for number in running)])
            assert [trial.number for trial in store.trials(study.id)] == list(range(following + 1))
            assert [trial.number for trial in store.ended_trials(study.id)][-1] == (running or [following])[-1]


def test_power_cut_at_any_write_leaves_a_consistent_beginning(path: Path, tmp_path: Path) -> None:
    with Store.open(str(path)) as store:
        study = create(store)
        store._database._driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store._database._driver.execute("PRAGMA wal_autocheckpoint=0")
        for number in range(12):
            store.start(study.id, [start(number)])
            store.finish(study.id, [finish(number)])
        log = Path(f"{path}-wal").read_bytes()
        shutil.copy(path, tmp_path / "before.db")
    counts = []
    for length in [*range(0, len(log), 4999), len(log)]:
        cut = tmp_path / "cut.db"
        shutil.copy(tmp_path / "before.db", cut)
        Path(f"{cut}-wal").write_bytes(log[:length] + b"\x00" * min(4096, len(log) - length))
        with Store.open(str(cut)) as store:
            assert store.sql("PRAGMA integrity_check")[1] == [("ok",)]
            trials, attempts = store.trials(study.id), store.attempts(study.id)
            assert [trial.number for trial in trials] == list(range(len(trials)))
            assert [trial.state for trial in trials[:-1]] == ["complete"] * (len(trials) - 1 if trials else 0)
            assert [attempt.outcome == "complete" for attempt in attempts] == [t.state == "complete" for t in trials]
            counts.append(sum(trial.state == "complete" for trial in trials))
    assert counts[0] == 0 and counts[-1] == 12
    assert all(before <= after for before, after in itertools.pairwise(counts))


def test_sqlite3_reads_while_the_search_writes(path: Path) -> None:
    program = shutil.which("sqlite3") or pytest.skip("needs the program sqlite3: apt-get install sqlite3")
    writer = begin_writing(path, "wal")
    try:
        counts = []
        writer.stdout.readline()
        for _ in range(5):
            query = "SELECT count(*) FROM study_demo WHERE state = 'complete'"
            answer = subprocess.run([program, str(path), query], capture_output=True, text=True, check=False)
            assert answer.returncode == 0, answer.stderr
            counts.append(int(answer.stdout))
            time.sleep(0.05)
        assert counts == sorted(counts) and counts[0] < counts[-1]
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()


def test_long_reading_does_not_hold_the_search_up(path: Path) -> None:
    with Store.open(str(path)) as store:
        study = create(store)
        store.start(study.id, [start(0)])
        reader = sqlite3.connect(path)
        cursor = reader.execute("SELECT * FROM trials, trials AS again")
        cursor.fetchone()
        began = time.perf_counter()
        for number in range(1, 200):
            store.start(study.id, [start(number)])
            store.finish(study.id, [finish(number)])
        assert time.perf_counter() - began < 5
        reader.close()


def test_lock_of_another_program_is_waited_for(path: Path) -> None:
    with Store.open(str(path)) as store:
        study = create(store)
        other = sqlite3.connect(path, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.3, other.rollback)
        release.start()
        began = time.perf_counter()
        store.start(study.id, [start(0)])
        assert 0.2 < time.perf_counter() - began < 5
        release.join()
        other.close()


def test_lasting_lock_is_reported_and_the_call_can_be_repeated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "WAIT_S", 0.1)
    with Store.open(str(path)) as store:
        study = create(store)
        other = sqlite3.connect(path)
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with pytest.raises(StoreLockedError):
                store.start(study.id, [start(0)])
        other.close()
        store.start(study.id, [start(0)])
        store.finish(study.id, [finish(0)])
        assert store.study("demo").counts == {"complete": 1}


def test_full_disk_is_reported_and_the_call_can_be_repeated_later(path: Path) -> None:
    with Store.open(str(path)) as store:
        study = create(store)
        store._database._driver.execute("PRAGMA max_page_count=40")
        number = 0
        with pytest.raises(StoreFullError) as caught:
            for number in range(10_000):
                store.start(study.id, [start(number)])
                store.finish(study.id, [finish(number)])
        assert "free some space" in caught.value.cure
        before = store.trials(study.id)
        assert len(before) in (number, number + 1)
        store._database._driver.execute("PRAGMA max_page_count=1000000")
        if len(before) == number:
            store.start(study.id, [start(number)])
        store.finish(study.id, [finish(number)])
        assert store.study("demo").counts == {"complete": number + 1}
        assert [trial.number for trial in store.ended_trials(study.id)] == list(range(number + 1))


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        with Store.open(str(disk / "results.db")) as store:
            study = create(store)
            (disk / "ballast").write_bytes(b"x" * 40_000)
            with pytest.raises(StoreFullError):
                for number in range(10_000):
                    store.start(study.id, [start(number)])
                    store.finish(study.id, [finish(number)])
            (disk / "ballast").unlink()
            n_complete = store.study("demo").counts["complete"]
            if len(store.trials(study.id)) == n_complete:
                store.start(study.id, [start(n_complete)])
            store.finish(study.id, [finish(n_complete)])
            assert store.study("demo").counts == {"complete": n_complete + 1}
    finally:
        subprocess.run(["umount", disk], check=True)


@needs("psycopg")
def test_server_that_comes_back_is_used_again(postgresql: str) -> None:
    import psycopg

    with Store.open(postgresql) as store:
        name = f"study {len(store.studies())}"
        space = Space({"x": Real(0, 1)})
        study = store.create_study(name, strategy="random", seed=1, configuration={}, space=space)
        with psycopg.connect(postgresql.replace("+psycopg", ""), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        with pytest.raises(StoreNotReadyError):
            store.start(study.id, [start(0)])
        store.start(study.id, [start(0)])
        store.finish(study.id, [finish(0)])
        assert store.study(name).counts == {"complete": 1}


class CutConnections(threading.Thread):
    """Passes connections on to the server, and cuts the present one at a message of the client.

    Attributes:
        port: On which it listens.
        n_left: The number of messages before that one; negative: none is cut.
        passes_it_on: Whether the server receives this message, whose answer is then lost.
    """

    def __init__(self, server: str) -> None:
        super().__init__(daemon=True)
        self._server, self._listening = server, socket.create_server(("127.0.0.1", 0))
        self.port, self.n_left, self.passes_it_on = self._listening.getsockname()[1], -1, False

    def run(self) -> None:
        while True:
            client, _ = self._listening.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            while True:
                for source in select.select([client, server], [], [])[0]:
                    if not (content := source.recv(65536)):
                        return
                    self.n_left -= source is client
                    is_cut = source is client and self.n_left == -1
                    if not is_cut or self.passes_it_on:
                        (server if source is client else client).sendall(content)
                    if is_cut:
                        server.recv(65536) if self.passes_it_on else None  # it has done what it was asked to
                        return


@needs("psycopg")
@pytest.mark.parametrize("passes_it_on", [False, True], ids=["the message is lost", "the answer is lost"])
def test_outcomes_are_stored_once_whenever_the_connection_is_cut(
    postgresql: str, passes_it_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpi_opt.coordinator.retrying_store.PAUSE_S", 0.0)
    between = CutConnections(f"{postgresql.partition('host=')[2]}/.s.PGSQL.5432")
    between.start()
    with Store.open(f"postgresql://ada@127.0.0.1:{between.port}/postgres") as store:
        space, name = Space({"x": Real(0, 1)}), f"study {len(store.studies())}"
        study = store.create_study(name, strategy="random", seed=1, configuration={}, space=space)
        notes: list[str] = []
        search = RetryingStore(store, study.id, SimpleNamespace(note=notes.append), lambda: False)
        search.record([], [start(0)])
        for number in itertools.count():
            between.passes_it_on, between.n_left = passes_it_on, number
            search.record([finish(number)], [start(number + 1)])
            was_cut, between.n_left = between.n_left < 0, -1
            if not was_cut:
                break
        assert len(notes) == number > 5
        assert "the connection to the server was lost" in notes[0]
        ended = [(one.number, one.outcome) for one in store.attempts(study.id)]
        assert ended == [(one, "complete") for one in range(number + 1)] + [(number + 1, None)]
        assert store.study(name).counts == {"complete": number + 1, "running": 1}


@needs("psycopg")
def test_a_process_that_is_stopped_in_a_transaction_keeps_no_other_waiting(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "LIMIT_PAUSE", connecting.LIMIT_PAUSE.replace("15s", "200ms"))
    with Store.open(postgresql) as store, Store.open(postgresql) as other:
        space, name = Space({"x": Real(0, 1)}), f"study {len(store.studies())}"
        study = store.create_study(name, strategy="random", seed=1, configuration={}, space=space)
        with pytest.raises(StoreNotReadyError), store._database.writing() as connection:
            writing.note(connection, study.id, 0, "")
            leases._lock(connection, study.id)
            mine = LeaseRecord("one", "node1", "node1 boot", 17, 5, "", "")
            assert other.leases.acquire(study.id, mine, lambda owner: False) is mine
            writing.add_event(connection, study.id, "note", "the server has ended this transaction")
        assert store.events(study.id) == []


@needs("psycopg")
@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ("53100", "the server has no space left"),
        ("53200", "the server has too little memory"),
        ("53300", "the server has reached a limit"),
        ("57014", "the server has cancelled the query"),
        ("57P01", "the server is shutting down or starting"),
    ],
)
def test_problem_of_the_server_is_named_and_the_call_can_be_repeated(postgresql: str, state: str, problem: str) -> None:
    failure = f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$"
    with Store.open(postgresql) as store, pytest.raises(StoreNotReadyError) as caught:
        store.sql(failure)
    assert problem in caught.value.problem
    assert isinstance(caught.value, StoreFullError) == (state == "53100")


@needs("psycopg")
def test_time_limit_of_the_server_is_reported_as_such(postgresql: str) -> None:
    with Store.open(postgresql) as store, pytest.raises(StoreNotReadyError, match="cancelled the query") as caught:
        store.sql("SET statement_timeout = '20ms'; SELECT pg_sleep(5)")
    assert "statement_timeout" in caught.value.cure


def test_a_process_that_is_frozen_while_it_holds_a_lock_of_the_log_is_waited_for() -> None:
    error = sqlite3.OperationalError("locking protocol")
    error.sqlite_errorcode = sqlite3.SQLITE_PROTOCOL
    assert isinstance(explained(error, "sqlite:///results.db"), StoreLockedError)  # which searches wait for
