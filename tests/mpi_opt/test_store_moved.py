"""A store that is deleted, replaced or damaged while a search runs."""

from __future__ import annotations

import re
import sqlite3
import time
from pathlib import Path

import pytest

import mpi_opt
from mpi_opt.coordinator.study_state import StudyState
from mpi_opt.errors import StoreError
from mpi_opt.store import Store
from mpi_opt.store.errors import StoreMovedError, StudyOwnedError
from mpi_opt.study.opening import lease

SETTINGS = {"space": {"x": mpi_opt.Real(0, 1)}, "strategy": "random", "trials": 6, "seed": 1, "study": "s"}


def delete(path: Path) -> None:
    path.unlink()


def delete_with_log(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other")
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    other.replace(path)


@pytest.mark.parametrize(
    ("break_", "connects_s"), [(delete, 60.0), (delete_with_log, 60.0), (replace, 60.0), (delete, 0.7)]
)
def test_results_of_a_store_that_was_deleted_or_replaced_are_in_a_new_file(break_, connects_s, tmp_path, monkeypatch):
    """The thread that renews the lease opens its connection after `connects_s`, or at the end."""
    monkeypatch.setattr(lease, "RETRY_S", connects_s)
    path = tmp_path / "results.db"

    def objective(trial) -> float:
        if trial.number == 3 and not list(tmp_path.glob("*rescued*")):
            break_(path)
            time.sleep(1.0 if connects_s < 1 else 0.1)
        return trial.parameters["x"]

    with pytest.raises(StoreMovedError, match="replaced by another" if break_ is replace else "deleted") as raised:
        mpi_opt.search(objective, store=f"sqlite:///{path}", **SETTINGS)
    assert raised.value.exit_status == 1
    (rescued,) = tmp_path.glob("results-rescued-*.db")
    assert str(rescued) in raised.value.cure
    assert path.exists() == (break_ is replace)  # no empty store in the place of the deleted one
    if path.exists():
        assert sqlite3.connect(path).execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    with Store.open(str(rescued)) as store:
        states = [trial.state for trial in store.trials(1)]
    assert states[:3] == ["complete"] * 3
    assert states[3] in ("complete", "queued")
    study = mpi_opt.search(objective, store=str(rescued), **SETTINGS)
    assert [trial.state for trial in study.trials] == ["complete"] * 6


def test_a_damaged_store_ends_the_search_with_the_status_of_a_failure(tmp_path):
    """A table that is gone cannot be copied from anywhere."""
    path = tmp_path / "results.db"

    def objective(trial) -> float:
        if trial.number == 3:
            with sqlite3.connect(path) as connection:
                connection.execute("DROP TABLE folds")
        return trial.parameters["x"]

    with pytest.raises(StoreError, match="no such table: folds") as raised:
        mpi_opt.search(objective, store=str(path), **SETTINGS)
    assert raised.value.exit_status == 1
    assert not re.search("rescued|new file", str(raised.value))
    assert not list(tmp_path.glob("*rescued*"))


def test_a_search_that_was_taken_over_is_unfinished(tmp_path, monkeypatch):
    def record(state, ended, started):
        raise StudyOwnedError("another search has taken the study over", cure="wait")

    monkeypatch.setattr(StudyState, "record", record)
    with pytest.raises(StudyOwnedError) as raised:
        mpi_opt.search(lambda trial: 1.0, store=str(tmp_path / "results.db"), **SETTINGS)
    assert raised.value.exit_status == 75
