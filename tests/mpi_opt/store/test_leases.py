"""The lease of a study in the store: one owner at a time, in all databases."""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mpi_opt.store import Store
from mpi_opt.store.errors import StoreLockedError
from mpi_opt.store.leases import Leases
from mpi_opt.store.records import LeaseRecord, now
from mpi_opt.study.opening import lease
from tests.mpi_opt.store.made_up import SEVERAL_SESSIONS, make_study
from tests.mpirun import patient_s
from tests.optional_packages import needs

ONE = LeaseRecord("one", "node1", "node1 boot", 17, 5, "2026-01-01T00:00:00", "2026-01-01T00:00:00")
OTHER = replace(ONE, token="other", host="node2")


def never(owner: LeaseRecord) -> bool:
    return False


def always(owner: LeaseRecord) -> bool:
    return True


def test_free_study_is_given_to_the_search_that_asks(store: Store) -> None:
    study = make_study(store, n_trials=1).id
    assert store.leases.read(study) is None
    assert store.leases.acquire(study, ONE, never) is ONE
    assert store.leases.read(study) == ONE


def test_owned_study_is_given_to_another_search_only_if_the_owner_is_gone(store: Store) -> None:
    study = make_study(store, n_trials=1).id
    store.leases.acquire(study, ONE, never)
    assert store.leases.acquire(study, OTHER, never) == ONE
    assert store.leases.acquire(study, OTHER, always) is OTHER
    assert store.leases.read(study) == OTHER


def test_only_the_owner_renews_a_lease(store: Store) -> None:
    study = make_study(store, n_trials=1).id
    store.leases.acquire(study, ONE, never)
    assert store.leases.renew(study, "one", "later")
    assert store.leases.read(study).renewed_at == "later"
    assert not store.leases.renew(study, "other", "never")
    store.leases.acquire(study, OTHER, always)
    assert not store.leases.renew(study, "one", "never")
    assert store.leases.read(study) == OTHER


def test_only_the_owner_releases_a_lease(store: Store) -> None:
    study = make_study(store, n_trials=1).id
    store.leases.acquire(study, ONE, never)
    store.leases.release(study, "other")
    assert store.leases.read(study) == ONE
    store.leases.release(study, "one")
    assert store.leases.read(study) is None


def test_studies_of_a_store_have_leases_of_their_own(store: Store) -> None:
    first, second = make_study(store, "a", n_trials=1).id, make_study(store, "b", n_trials=1).id
    store.leases.acquire(first, ONE, never)
    assert store.leases.acquire(second, OTHER, never) is OTHER
    assert store.leases.read(first) == ONE


@SEVERAL_SESSIONS
def test_only_one_of_many_searches_gets_the_study(url: str) -> None:
    with Store.open(url) as store:
        study = make_study(store, n_trials=1).id
    interval, barrier, owners = sys.getswitchinterval(), threading.Barrier(6), []

    def ask(token: str) -> None:
        leases = Leases.open(url, 10.0)
        barrier.wait()
        owners.append(leases.acquire(study, replace(ONE, token=token), never).token)
        leases.close()

    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=ask, args=(str(index),)) for index in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(owners) == 6
    assert len(set(owners)) == 1


@SEVERAL_SESSIONS
def test_no_search_takes_a_study_over_while_its_owner_writes(url: str) -> None:
    taken = threading.Event()

    def take_over() -> None:
        with Store.open(url) as other:
            other.leases.acquire(study, OTHER, always)
        taken.set()

    def verify(read: Callable[[], LeaseRecord | None]) -> None:
        assert read() == ONE
        if not thread.is_alive():
            thread.start()
            assert not taken.wait(0.5)

    thread = threading.Thread(target=take_over)
    with Store.open(url) as store:
        study = make_study(store, n_trials=1).id
        store.leases.acquire(study, ONE, never)
        with store.leases.verified(study, verify):
            store.event(study, "still mine", "")
        assert taken.wait(patient_s(10.0))
        assert store.leases.read(study) == OTHER
    thread.join()


@needs("psycopg")
def test_lease_is_renewed_after_the_server_has_closed_the_connections(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    for name in ("RENEW_S", "RETRY_S"):
        monkeypatch.setattr(lease, name, 0.05)
    with Store.open(postgresql) as store:
        study = make_study(store, f"study {len(store.studies())}", n_trials=1)
        with lease.leased(store, study) as owned:
            assert _until(lambda: store.leases.read(study.id).renewed_at > owned.record.since)
            with psycopg.connect(postgresql.replace("+psycopg", ""), autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            before = now()
            with Store.open(postgresql) as watching:
                assert _until(lambda: watching.leases.read(study.id).renewed_at > before)
        with Store.open(postgresql) as watching:
            assert watching.leases.read(study.id) is None


def _until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_second_connection_does_not_wait_long_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Store.open(str(path)) as store:
        study = make_study(store, n_trials=1).id
        store.leases.acquire(study, ONE, never)
        beside = Leases.open(str(path), 0.1)
        other = sqlite3.connect(path)
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(StoreLockedError):
            beside.renew(study, "one", "later")
        assert time.monotonic() - began < patient_s(2.0)
        other.close()
        assert beside.renew(study, "one", "later")
        beside.close()
