"""What `mpi-opt status` reads from the store of a search that another process runs."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mpi_opt.errors import StoreError
from mpi_opt.store import Store
from mpi_opt.store.errors import StoreLockedError, StoreUnreachableError
from mpi_opt.store.records import LeaseRecord, StudyRecord
from mpi_opt.study.opening import lease as leasing
from mpi_opt.study.status import NewRuns, SearchStatus
from mpi_opt.views.text.search_summary import status_text
from tests.in_process import in_process
from tests.mpi_opt.store.made_up import finish, make_study, start


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="microseconds")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(str(path)) as opened:
        make_study(opened, n_trials=8)
        yield opened


@pytest.fixture
def study(store: Store) -> StudyRecord:
    return store.study("digits")


def owner(since_s: float, renewed_s: float) -> LeaseRecord:
    """A search on another host that began `since_s` ago and has renewed its lease `renewed_s` ago."""
    return LeaseRecord("theirs", "node9", "node9 boot", 4711, 17, ago(since_s), ago(renewed_s))


def own(store: Store, study: StudyRecord, record: LeaseRecord) -> None:
    store.leases.acquire(study.id, record, lambda present: True)


def set_times(path: Path, ended: dict[int, float], started: dict[int, float]) -> None:
    """Trials ended, and attempts started, this many seconds ago; all others an hour and more ago."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE trials SET finished_at = ?, started_at = ?", (ago(7200), ago(7300)))
        connection.execute("UPDATE attempts SET finished_at = ?, started_at = ?", (ago(7200), ago(7300)))
        for number, seconds in ended.items():
            connection.execute("UPDATE trials SET finished_at = ? WHERE number = ?", (ago(seconds), number))
        for number, seconds in started.items():
            at = (ago(seconds), number)
            connection.execute("UPDATE attempts SET started_at = ?, finished_at = NULL WHERE trial_id % 1000 = ?", at)


def test_a_search_with_more_trials_than_before_is_compared_with_its_own_number(tmp_path):
    (tmp_path / "objective.py").write_text("def value(trial):\n    return trial.parameters['x']\n")
    content = "objective: objective.py:value\nstudy: more\nspace: {x: {type: real, low: 0, high: 1}}\n"
    (tmp_path / "space.yaml").write_text(
        content + "search: {strategy: random, trials: 2}\nstore: 'sqlite:///more.db'\n"
    )
    for n_trials in (2, 5):
        done = in_process("search", "space.yaml", "--trials", str(n_trials), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        with Store.open(f"sqlite:///{tmp_path / 'more.db'}", read_only=True) as store:
            assert SearchStatus.read(store, "more").wanted == n_trials


def test_a_study_without_a_search_has_none(store, study):
    found = SearchStatus.read(store, "digits")
    assert (found.activity, found.host, found.blocks, found.expected_end) == ("not running", None, [], None)
    assert found.trials == study.counts
    assert found.n_ended == 8
    store.event(study.id, "study_finished", "all trials have ended")
    assert SearchStatus.read(store, None).activity == "finished"


def test_a_search_on_another_host_is_judged_by_its_signs_of_life(store, study):
    own(store, study, owner(600, 4))
    found = SearchStatus.read(store, None)
    assert (found.activity, found.host, found.process) == ("running", "node9", 4711)
    assert 4 <= found.silent_s < 60
    own(store, study, owner(600, 120))
    silent = SearchStatus.read(store, None)
    assert silent.activity == "silent"
    assert "no sign of life: process 4711 on node9" in status_text(silent)
    assert "last sign of life 2 min" in status_text(silent)


def test_a_search_on_this_host_is_judged_by_its_process(store, study):
    mine = replace(owner(600, 120), machine=leasing.machine(), process_began=None)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        own(store, study, replace(mine, process=process.pid, process_began=leasing._began(process.pid)))
        assert SearchStatus.read(store, None).activity == "running"
        process.communicate(b"\n")
    lost = SearchStatus.read(store, None)
    assert (lost.activity, lost.blocks, lost.trials_per_hour, lost.expected_end) == ("not running", [], None, None)
    assert "was lost" in status_text(lost)


def test_speed_and_expected_end_are_those_of_the_present_search(store, study, path):
    own(store, study, owner(600, 0))
    set_times(path, {5: 500, 6: 300, 7: 10}, {})  # 3 trials in 600 s; the others are of an earlier search
    found = SearchStatus.read(store, None)
    assert found.trials_per_hour == pytest.approx(18, rel=0.05)
    left_s = (datetime.fromisoformat(found.expected_end) - datetime.now(UTC)).total_seconds()
    assert left_s == pytest.approx(52 * 200, rel=0.05)  # the study wants 60 trials
    assert found.wanted == 60
    text = status_text(found)
    assert "trials        8 of 60 ended" in text
    assert f"{found.trials_per_hour:,.4g} trials per hour" in text


def test_the_speed_of_a_long_search_is_that_of_its_latest_trials(store, study, path, monkeypatch):
    monkeypatch.setattr("mpi_opt.study.status.N_RECENT", 4)
    own(store, study, owner(100_000, 0))
    set_times(path, {4: 100, 5: 70, 6: 40, 7: 10}, {})
    assert SearchStatus.read(store, None).trials_per_hour == pytest.approx(3600 * 3 / 100, rel=0.05)


def test_the_speed_of_trials_that_end_together_is_that_of_several_such_waves(store, study, path, monkeypatch):
    monkeypatch.setattr("mpi_opt.study.status.N_RECENT", 2)
    monkeypatch.setattr("mpi_opt.study.status.N_WAVES", 2)
    store.start(study.id, [start(8, block=0), start(9, block=3)])
    own(store, study, owner(100_000, 0))
    set_times(path, {4: 1010, 5: 1010, 6: 10, 7: 10}, {8: 10, 9: 10})
    assert SearchStatus.read(store, None).trials_per_hour == pytest.approx(3600 * 3 / 1010, rel=0.05)


def test_the_time_before_the_first_trial_does_not_count(store, study, path):
    own(store, study, owner(600, 0))
    set_times(path, {5: 100, 6: 80, 7: 10}, {})
    with closing(sqlite3.connect(path)) as connection, connection:  # trial 5 began in an earlier search
        connection.execute("UPDATE trials SET started_at = ? WHERE number IN (6, 7)", (ago(300),))
    assert SearchStatus.read(store, None).trials_per_hour == pytest.approx(3600 * 3 / 300, rel=0.05)


def test_a_large_speed_has_no_exponent(store, study, path):
    own(store, study, owner(1, 0))
    set_times(path, dict.fromkeys(range(8), 0), {})
    found = replace(SearchStatus.read(store, None), trials_per_hour=12_840.3)
    assert "12,840 trials per hour" in status_text(found)


def test_the_new_runs_of_the_best_points_are_a_part_of_the_search(tmp_path):
    (tmp_path / "objective.py").write_text("def value(trial):\n    return trial.parameters['x']\n")
    (tmp_path / "space.yaml").write_text(
        "objective: objective.py:value\nstudy: more\nspace: {x: {type: real, low: 0, high: 1}}\n"
        "search: {strategy: random, trials: 3, confirm: 2}\nstore: 'sqlite:///more.db'\n"
    )
    assert in_process("search", "space.yaml", cwd=tmp_path).returncode == 0
    path = tmp_path / "more.db"
    with Store.open(str(path)) as store:
        done = SearchStatus.read(store, None)
        assert (done.activity, done.new_runs) == ("finished", NewRuns("more.confirm3", 8, 8))
        assert "new runs      8 of 8 ended (study more.confirm3)" in status_text(done)
        again = store.study("more.confirm3")
        last = store.latest_ended(again.id, 1)[0].number
        with closing(sqlite3.connect(path)) as connection, connection:  # it runs the last new run
            where = "WHERE study_id = ? AND number = ?"
            connection.execute(
                f"UPDATE trials SET state = 'running', finished_at = NULL, ended = NULL {where}", (again.id, last)
            )
            of_trial = f"WHERE trial_id = (SELECT id FROM trials {where})"
            connection.execute(f"UPDATE attempts SET outcome = NULL, finished_at = NULL {of_trial}", (again.id, last))
            connection.execute("DELETE FROM events WHERE study_id = ?", (again.id,))
            connection.execute("UPDATE trials SET started_at = ? WHERE study_id = ?", (ago(300), again.id))
        assert SearchStatus.read(store, None).activity == "not running"
        own(store, store.study("more"), owner(600, 0))
        assert SearchStatus.read(store, "more").expected_end is None, "all trials have ended"
        own(store, again, owner(310, 0))
        running = SearchStatus.read(store, "more")
    assert (running.activity, running.n_ended, running.new_runs) == ("running", 3, NewRuns("more.confirm3", 7, 8))
    assert [block.number for block in running.blocks] == [last]
    left_s = (datetime.fromisoformat(running.expected_end) - datetime.now(UTC)).total_seconds()
    assert left_s == pytest.approx(300 / 7, abs=5)


def test_blocks_are_those_of_the_present_search(store, study, path):
    store.start(study.id, [start(8, block=0), start(9, block=3)])
    own(store, study, owner(600, 0))
    set_times(path, {6: 30, 7: 20}, {8: 5, 9: 4})
    with closing(sqlite3.connect(path)) as connection, connection:  # two trials of this search on blocks 2 and 3
        connection.execute("UPDATE attempts SET started_at = ? WHERE trial_id % 1000 IN (6, 7)", (ago(50),))
        connection.execute("UPDATE attempts SET finished_at = ? WHERE trial_id % 1000 IN (6, 7)", (ago(20),))
    blocks = SearchStatus.read(store, None).blocks
    assert [(block.block, block.number) for block in blocks] == [(0, 8), (2, None), (3, 9)]
    assert blocks[0].ranks == "1-3"
    lines = [line.split() for line in status_text(SearchStatus.read(store, None)).splitlines()]
    assert next(line for line in lines if "trial" in line and "8" in line)[:5] == ["0", "1-3", "node1", "trial", "8"]
    assert any(line[:4] == ["2", "7-9", "node1", "idle"] for line in lines)


def test_blocks_whose_ranks_now_belong_to_another_block_are_not_idle(store, study, path):
    store.start(study.id, [start(8, block=4)])
    own(store, study, owner(600, 0))
    set_times(path, {5: 40, 6: 30, 7: 20}, {8: 5})
    with closing(sqlite3.connect(path)) as connection, connection:
        for number, begun, ended, ranks in ((5, 90, 80, "1,2"), (6, 60, 30, "2,3"), (7, 50, 20, "4,5")):
            values = (ago(begun), ago(ended), ranks, number)
            connection.execute(
                "UPDATE attempts SET started_at = ?, finished_at = ?, ranks = ? WHERE trial_id % 1000 = ?", values
            )
        connection.execute("UPDATE attempts SET ranks = '3,6' WHERE trial_id % 1000 = 8")
    blocks = SearchStatus.read(store, None).blocks
    assert [(block.ranks, block.number) for block in blocks] == [("4,5", None), ("3,6", 8)]


def test_trials_of_a_workload_system_run_without_a_search(store, study):
    store.start(study.id, [start(8)])
    assert status_text(SearchStatus.read(store, None)).startswith(
        "study         digits: not running; a workload system runs 1 trial\n"
    )


def test_the_best_value_of_several_figures_of_merit_has_a_name(store):
    found = replace(SearchStatus.read(store, None), figures_of_merit=("loss", "auc"), best=0.25, best_number=3)
    assert "best          0.25 (trial 3); loss, the first of 2 figures of merit" in status_text(found)
    assert "figures of merit" not in status_text(SearchStatus.read(store, None))


def test_restarts_are_counted_and_the_latest_event_is_first(store, study):
    for number in range(12):
        store.event(study.id, "search_restarted", f"restart {number}")
    found = SearchStatus.read(store, None)
    assert found.n_restarts == 12
    assert [event.detail for event in found.events] == [f"restart {number}" for number in range(11, 1, -1)]
    assert "restarts      12" in status_text(found)
    assert "event at (UTC) " in status_text(found)


def test_the_command_prints_text_or_json(store, study, path):
    own(store, study, owner(600, 4))
    done = in_process("status", "--store", str(path), cwd=path.parent)
    assert done.returncode == 0
    assert done.stdout.startswith("study         digits: running, process 4711 on node9")
    found = json.loads(in_process("status", "--store", str(path), "--json", cwd=path.parent).stdout)
    assert found["activity"] == "running"
    assert found["trials"]["complete"] == study.counts["complete"]
    assert in_process("status", "--store", str(path), "--study", "absent", cwd=path.parent).returncode == 2


def test_watching_ends_when_the_study_is_finished(store, study, path, monkeypatch):
    states = iter(["running", "not running", "finished"])
    known = SearchStatus.read(store, None)
    monkeypatch.setattr(SearchStatus, "read", lambda *_: replace(known, activity=next(states)))
    monkeypatch.setattr("mpi_opt.cli.commands.study_commands.WATCH_S", 0.0)
    done = in_process("status", "--store", str(path), "--watch", "--json", cwd=path.parent)
    lines = [json.loads(line)["activity"] for line in done.stdout.splitlines()]
    assert lines == ["running", "not running", "finished"]


def test_watching_waits_for_a_server_that_was_reachable_before(store, path, monkeypatch):
    known = SearchStatus.read(store, None)

    def read(*_: object) -> SearchStatus:
        found = reads.pop(0)
        if isinstance(found, StoreError):
            raise found
        return found

    monkeypatch.setattr(SearchStatus, "read", read)
    monkeypatch.setattr("mpi_opt.cli.commands.study_commands.WATCH_S", 0.0)
    for error in (StoreUnreachableError("no connection"), StoreLockedError("another program is writing to it")):
        reads = [known, error, replace(known, activity="finished")]
        done = in_process("status", "--store", str(path), "--watch", "--json", cwd=path.parent)
        assert (done.returncode, len(done.stdout.splitlines()), reads) == (0, 2, [])
        assert str(error) in done.stderr
    reads = [StoreUnreachableError("no connection")]
    assert in_process("status", "--store", str(path), "--watch", cwd=path.parent).returncode == 2


def test_a_study_that_was_just_created_has_a_status(path):
    with Store.open(str(path)) as store:
        study = make_study(store, n_trials=0)
        store.start(study.id, [start(0)])
        own(store, study, replace(owner(1, 0), machine=leasing.machine(), process=os.getpid()))
        text = status_text(SearchStatus.read(store, None))
        assert "0 of 60 ended; 1 running" in text
        store.finish(study.id, [finish(0)])
        assert "1 of 60 ended; 1 complete" in status_text(SearchStatus.read(store, None))
