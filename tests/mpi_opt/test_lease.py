"""One search owns a study: how it keeps the lease, and when another search gets it."""

from __future__ import annotations

import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mpi_opt import Real, search
from mpi_opt.store import Store
from mpi_opt.store.errors import StoreFullError, StoreLockedError, StudyOwnedError
from mpi_opt.store.leases import Leases
from mpi_opt.store.records import LeaseRecord, StudyRecord, now
from mpi_opt.study.opening import lease as module
from mpi_opt.study.opening.lease import Lease, leased, owner_as_text
from tests.mpi_opt.store.made_up import finish, make_study, start
from tests.mpirun import patient_s

OWNER = """
import sys, time
from mpi_opt.store import Store
from mpi_opt.study.opening.lease import leased
with Store.open(sys.argv[1]) as store, leased(store, store.study("digits")):
    print("owned", flush=True)
    time.sleep(60)
"""

RENEW = Leases.renew


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds become hundredths of seconds, except those after which an owner is gone: a loaded machine may pause."""
    for name, seconds in (("RENEW_S", 0.03), ("RETRY_S", 0.02), ("GONE_S", 2.5), ("POLL_S", 0.01)):
        monkeypatch.setattr(module, name, seconds)


@pytest.fixture
def soon_gone(fast: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which no owner renews its lease."""
    monkeypatch.setattr(module, "GONE_S", 0.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(str(path)) as opened:
        make_study(opened, n_trials=2)
        yield opened


@pytest.fixture
def study(store: Store) -> StudyRecord:
    return store.study("digits")


def elsewhere(token: str = "theirs") -> LeaseRecord:
    """A search on another machine."""
    return LeaseRecord(token, "node9", "node9 boot", 4711, 17, "2026-02-03T04:05:06.123456+00:00", now())


@contextmanager
def owner_in_another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "owned\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def renewing(path: Path, study_id: int, clock: Callable[[], str] = now) -> Iterator[None]:
    """A search on another machine renews its lease; it has renewed it once before the block begins."""
    is_over, has_begun = threading.Event(), threading.Event()

    def renew() -> None:
        with Store.open(str(path)) as theirs:
            while not is_over.wait(0.02):
                theirs.leases.renew(study_id, "theirs", clock())
                has_begun.set()

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        assert has_begun.wait(patient_s(10))
        yield
    finally:
        is_over.set()
        thread.join()


def until(condition, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_lease_is_there_while_the_search_runs_and_gone_afterwards(store, study):
    with leased(store, study):
        owner = store.leases.read(study.id)
        assert (owner.process, owner.since) == (os.getpid(), owner.renewed_at)
    assert store.leases.read(study.id) is None


def test_an_owner_that_was_killed_died_at_its_last_renewal(fast, store, study, path):
    with owner_in_another_process(path) as process:
        process.kill()
        process.wait()
        renewed_at = store.leases.read(study.id).renewed_at
        with leased(store, study) as lease:
            assert lease.died_at == renewed_at
    assert until(lambda: store.leases.read(study.id) is None)  # a thread releases it
    with leased(store, study) as lease:
        assert lease.died_at is None


def test_second_search_names_the_owner_of_the_study(store, study, path):
    with owner_in_another_process(path) as process:
        began = time.monotonic()
        with pytest.raises(StudyOwnedError) as caught, leased(store, study):
            pass
        assert time.monotonic() - began < module.GONE_S / 2  # its own machine says at once whether the owner exists
        owner = store.leases.read(study.id)
    assert f"process {process.pid} on {owner.host}" in caught.value.problem
    assert owner.since[:10] in caught.value.problem and "UTC" in caught.value.problem
    assert "--wait" in caught.value.cure and "--study" in caught.value.cure
    assert "study digits" in caught.value.where and str(path) in caught.value.where


def test_second_search_of_the_same_process_is_refused(store, study, path):
    with leased(store, study), Store.open(str(path)) as other, pytest.raises(StudyOwnedError), leased(other, study):
        pass


@pytest.mark.parametrize("is_reaped", [True, False])
def test_lease_of_a_killed_process_is_taken_over_at_once(store, study, path, is_reaped):
    with owner_in_another_process(path) as process:
        process.send_signal(signal.SIGKILL)
        if is_reaped:
            process.wait()
        else:  # its parent has not noticed yet
            assert until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        began = time.monotonic()
        with leased(store, study) as lease:
            assert time.monotonic() - began < module.GONE_S / 2
            lease.check()
            assert store.leases.read(study.id).process == os.getpid()


def test_process_that_got_the_number_of_the_owner_is_not_the_owner(store, study):
    with subprocess.Popen(["sleep", "60"]) as other:
        mine = module._new_record()
        theirs = replace(mine, token="theirs", process=other.pid, process_began=1)
        store.leases.acquire(study.id, theirs, lambda owner: True)
        with leased(store, study) as lease:
            assert store.leases.read(study.id).token == lease.record.token
        store.leases.acquire(study.id, replace(theirs, process_began=module._began(other.pid)), lambda owner: True)
        with pytest.raises(StudyOwnedError), leased(store, study):
            pass
        other.kill()


def test_process_of_another_user_that_proc_hides_is_running(store, study, monkeypatch):
    theirs = replace(module._new_record(), token="theirs", process=4711, process_began=17)
    store.leases.acquire(study.id, theirs, lambda owner: True)
    monkeypatch.setattr(module, "_began", lambda process: None)

    def kill(process, number) -> None:
        assert (process, number) == (4711, 0)
        raise PermissionError

    monkeypatch.setattr(module.os, "kill", kill)
    with pytest.raises(StudyOwnedError), leased(store, study):
        pass


def test_lease_that_this_process_could_not_release_is_no_obstacle(store, study):
    store.leases.acquire(study.id, module._new_record(), lambda owner: True)  # of an earlier search in a notebook
    with leased(store, study) as lease:
        assert store.leases.read(study.id).token == lease.record.token


def test_living_owner_on_another_machine_is_recognised_by_its_signs_of_life(fast, store, study, path):
    store.leases.acquire(study.id, elsewhere(), lambda owner: True)
    notes, alive = [], renewing(path, study.id)
    with alive, pytest.raises(StudyOwnedError) as caught, leased(store, study, note=notes.append):
        pass
    assert "process 4711 on node9, since 2026-02-03 04:05:06 UTC" in caught.value.problem
    (note,) = notes
    assert "checking for up to 2.5 s" in note


def test_owner_on_another_machine_without_signs_of_life_is_replaced_but_not_before(soon_gone, store, study):
    store.leases.acquire(study.id, elsewhere(), lambda owner: True)
    began, notes = time.monotonic(), []
    with leased(store, study, note=notes.append) as lease:
        assert 0.5 <= time.monotonic() - began < patient_s(2.5)
        assert store.leases.read(study.id).token == lease.record.token
    (note,) = notes
    assert "process 4711 on node9" in note


def test_clocks_of_other_machines_do_not_matter(fast, store, study, path):
    times = (f"1999-01-01T00:00:00.{microseconds:06d}+00:00" for microseconds in range(1_000_000))
    store.leases.acquire(study.id, replace(elsewhere(), renewed_at=next(times)), lambda owner: True)
    alive = renewing(path, study.id, lambda: next(times))
    with alive, pytest.raises(StudyOwnedError), leased(store, study):
        pass


def test_search_that_waits_gets_the_study_when_it_is_free(fast, store, study, path):
    store.leases.acquire(study.id, elsewhere(), lambda owner: True)
    notes, got = [], []

    def wait() -> None:
        with Store.open(str(path)) as other, leased(other, study, wait=True, note=notes.append) as lease:
            got.append(lease.record.token)

    thread = threading.Thread(target=wait)
    with renewing(path, study.id):
        thread.start()
        assert until(lambda: notes)
        time.sleep(module.GONE_S + 0.2)
        assert got == []
    store.leases.release(study.id, "theirs")
    thread.join(patient_s(10))
    assert len(got) == 1
    assert notes[-1].startswith("waiting for the search that runs this study: process 4711 on node9")


def test_search_that_is_asked_to_end_does_not_wait_any_longer(fast, store, study, path):
    store.leases.acquire(study.id, elsewhere(), lambda owner: True)
    looks = iter(range(10))
    with renewing(path, study.id), leased(store, study, wait=True, is_ending=lambda: next(looks) == 9) as lease:
        assert lease is None
    assert store.leases.read(study.id).token == "theirs"


def test_locked_store_proves_nothing_about_the_owner(soon_gone, monkeypatch, store, study, path):
    monkeypatch.setattr(module, "SLOW_S", 0.3)
    store.leases.acquire(study.id, elsewhere(), lambda owner: True)
    locker, released = sqlite3.connect(path, check_same_thread=False), []

    def lock(text: str) -> None:
        """Locks the store after the first query, for longer than an owner may be silent."""
        locker.execute("BEGIN IMMEDIATE")
        threading.Timer(1.0, release).start()

    def release() -> None:
        released.append(time.monotonic())
        locker.rollback()

    with leased(store, study, wait=True, note=lock):
        assert time.monotonic() - released[0] >= 0.5
    locker.close()


def test_a_store_that_cannot_be_read_proves_nothing_about_the_owner(soon_gone, monkeypatch, store, study):
    """It raises an error at once, for longer than an owner may be silent."""
    store.leases.acquire(study.id, elsewhere(), lambda owner: True)
    acquire, notes, raised_s = store.leases.acquire, [], []

    def acquire_or_raise(*arguments):
        if notes and len(raised_s) < 5:
            raised_s.append(time.monotonic())
            time.sleep(module.GONE_S / 4)
            raise StoreFullError("the disk is full")
        return acquire(*arguments)

    monkeypatch.setattr(store.leases, "acquire", acquire_or_raise)
    with leased(store, study, wait=True, note=notes.append):
        assert time.monotonic() - raised_s[-1] >= module.GONE_S
    assert len(raised_s) == 5


def test_another_owner_is_not_taken_for_a_sign_of_life(soon_gone):
    """A lease that passes from one dead search to the next was not renewed by either."""
    watch = module.OwnerWatch()
    for owner in (elsewhere("first"), elsewhere("second")):
        watch.begin_read()
        assert not watch.is_gone(owner)
    assert not watch.is_alive(owner)


def test_owner_gives_signs_of_life_while_its_main_thread_is_busy(fast, store, study):
    with leased(store, study):
        first = store.leases.read(study.id).renewed_at
        until_s = time.monotonic() + 0.5
        while time.monotonic() < until_s:
            sum(range(1000))
        assert store.leases.read(study.id).renewed_at > first


@pytest.mark.parametrize("trouble", ["locked", "full"])
def test_lease_is_renewed_after_the_store_was_locked_or_full(fast, monkeypatch, store, study, path, trouble):
    with leased(store, study) as lease:
        assert until(lambda: store.leases.read(study.id).renewed_at > lease.record.since)
        if trouble == "locked":
            locker = sqlite3.connect(path)
            locker.execute("BEGIN IMMEDIATE")
        else:
            monkeypatch.setattr(Leases, "renew", _refuse)
        before = store.leases.read(study.id).renewed_at
        time.sleep(0.3)
        assert store.leases.read(study.id).renewed_at == before
        lease.check()  # no other search has taken the study: this one continues
        if trouble == "locked":
            locker.rollback()
            locker.close()
        else:
            monkeypatch.setattr(Leases, "renew", RENEW)
        assert until(lambda: store.leases.read(study.id).renewed_at > before)
        lease.check()


def _refuse(*_: object) -> None:
    raise StoreFullError("the disk is full")


def test_search_whose_study_was_taken_over_ends(fast, store, study):
    with leased(store, study) as lease:
        store.leases.acquire(study.id, elsewhere(), lambda owner: True)
        assert until(lambda: lease._is_lost)
        with pytest.raises(StudyOwnedError) as caught:
            lease.check()
    assert "process 4711 on node9" in caught.value.problem
    assert "did not renew its lease" in caught.value.problem
    assert "wait until that search has ended, or add --wait" in caught.value.cure
    assert store.leases.read(study.id).token == "theirs"  # the lease of another search is not released


def suspend(monkeypatch, clock: str) -> None:
    """The machine was suspended for longer than `GONE_S`; one of its clocks shows it, and `time.monotonic` does not."""
    real = getattr(time, clock)
    monkeypatch.setattr(time, clock, lambda *which: real(*which) + module.GONE_S + 1)


def test_search_whose_lease_was_removed_ends(store, study, monkeypatch):
    with leased(store, study) as lease:
        store.leases.release(study.id, lease.record.token)
        suspend(monkeypatch, "time")
        with pytest.raises(StudyOwnedError, match="the lease of this search was removed from the store"):
            lease.check()


@pytest.mark.parametrize("clock", ["time", "clock_gettime"])
def test_search_that_was_suspended_checks_its_lease_before_it_writes(clock, store, study, monkeypatch):
    with leased(store, study) as lease:  # its thread has not noticed the loss yet
        store.leases.acquire(study.id, elsewhere(), lambda owner: True)
        lease.check()
        suspend(monkeypatch, clock)
        with pytest.raises(StudyOwnedError):
            lease.check()


def test_search_that_is_suspended_within_a_call_of_the_store_writes_nothing(store, study, monkeypatch):
    """It has checked its lease before the call, and is suspended before the store is locked for it."""
    with leased(store, study), Store.open(store.address) as other:
        store.event(study.id, "study_resumed", "the first one")
        other.leases.acquire(study.id, elsewhere(), lambda owner: True)
        suspend(monkeypatch, "time")
        with pytest.raises(StudyOwnedError, match="another search has taken the study over"):
            store.event(study.id, "study_resumed", "the second one")
    assert [event.detail for event in store.events(study.id)] == ["the first one"]


WRITER = """
import sys, time
from mpi_opt.store import Store
from mpi_opt.store.errors import StudyOwnedError
from mpi_opt.study.opening import lease as module
module.GONE_S, module.RENEW_S, module.RETRY_S = 0.2, 0.05, 0.0
with Store.open(sys.argv[1]) as store:
    study = store.study("digits")
    for line in sys.stdin:
        try:
            with module.leased(store, study) as lease:
                print("owned", flush=True)
                while True:
                    lease.check()
                    store.event(study.id, "written", line.strip())
        except StudyOwnedError:
            print("lost", flush=True)
"""


@pytest.mark.parametrize("n", [5, pytest.param(100, marks=pytest.mark.thorough)])
def test_search_that_wakes_up_after_another_has_taken_over_writes_nothing(store, study, path, n):
    """A process that writes all the time is stopped at random instructions."""

    def is_stopped() -> bool:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def taken_over() -> bool:
        """Stops the writer and takes the study over; False if the writer has been stopped within a transaction."""
        time.sleep(random.uniform(0.0, 0.05))
        process.send_signal(signal.SIGSTOP)
        assert until(is_stopped)
        try:
            other.acquire(study.id, elsewhere(), lambda owner: True)
        except StoreLockedError:
            process.send_signal(signal.SIGCONT)
            return False
        return True

    command, other = [sys.executable, "-c", WRITER, str(path)], Leases.open(store.address, 0.05)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        try:
            for _ in range(n):
                process.stdin.write("another round\n")
                assert process.stdout.readline() == "owned\n"
                while not taken_over():
                    pass
                time.sleep(0.25)  # longer than the writer's GONE_S
                n_written = len(store.events(study.id))
                process.send_signal(signal.SIGCONT)
                assert process.stdout.readline() == "lost\n"
                assert len(store.events(study.id)) == n_written
                other.release(study.id, "theirs")
        finally:
            process.kill()  # the block waits for its end, which a stopped process does not reach
    other.close()


def test_search_checks_its_lease_before_each_outcome_is_recorded(monkeypatch, path):
    def check(lease):
        if has_run:
            raise StudyOwnedError("another search has taken the study over", cure="")

    def objective(trial):
        has_run.append(trial.number)
        return 1.0

    has_run = []
    monkeypatch.setattr(Lease, "check", check)
    with pytest.raises(StudyOwnedError):
        search(
            objective, space={"x": Real(0, 1)}, trials=4, strategy="random", study="owned", store=f"sqlite:///{path}"
        )
    with Store.open(str(path)) as store:
        assert store.study("owned").n_ended == 0


def test_study_in_memory_needs_no_signs_of_life(fast):
    with Store.open("sqlite://") as store:
        study = make_study(store, n_trials=1)
        with leased(store, study) as lease:
            time.sleep(0.2)
            lease.check()
            store.start(study.id, [start(7)])
            store.finish(study.id, [finish(7)])
        assert not lease._thread.is_alive()


def test_thread_ends_with_the_lease(fast, store, study):
    with leased(store, study) as lease:
        assert until(lambda: store.leases.read(study.id).renewed_at > lease.record.since)
    assert not lease._thread.is_alive()
    store.close()
    assert [file.suffix for file in Path(store._address.database).parent.iterdir()] == [".db"]


def test_text_about_an_owner_names_process_host_and_time():
    assert owner_as_text(elsewhere()) == "process 4711 on node9, since 2026-02-03 04:05:06 UTC"


def test_a_machine_without_proc_is_known_by_its_name(monkeypatch):
    def fail(path, *arguments, **more):
        raise FileNotFoundError(path)

    assert len(module.machine().split()) == 3
    monkeypatch.setattr(Path, "readlink", fail)
    assert len(module.machine().split()) == 2
    monkeypatch.setattr(Path, "read_text", fail)
    assert module.machine() == socket.gethostname()
