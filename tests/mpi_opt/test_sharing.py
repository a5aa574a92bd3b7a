"""A search and a workload system work on one study at the same time."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mpi_opt.study.study import Study

SPACE = """
study: shared
store: sqlite:///shared.db
objective: objective.py:slow
direction: minimize
space:
  x: {{type: real, low: -5.0, high: 10.0}}
search: {{strategy: {strategy}, trials: {trials}, seed: 3, target: {target}}}
"""

OBJECTIVE = """
import time
from pathlib import Path
def slow(trial):
    time.sleep(0.5 if Path("patient").exists() else 0.05)
    return trial.parameters["x"] ** 2
"""


@pytest.fixture
def searching(tmp_path):
    """Begins a search in the background; ended with the test."""
    begun = []

    def begin(strategy="random", trials=40, target="null"):
        text = SPACE.format(strategy=strategy, trials=trials, target=target)
        (tmp_path / "space.yaml").write_text(text)
        (tmp_path / "objective.py").write_text(OBJECTIVE)
        command = [sys.executable, "-m", "mpi_opt", "search", "space.yaml"]
        with (tmp_path / "out").open("a") as out:
            begun.append(subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out))
        return begun[-1]

    yield begin
    for process in begun:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)


def wait_for(folder, n_ended: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if (folder / "shared.db").exists():
            try:
                with sqlite3.connect(f"file:{folder}/shared.db?mode=ro", uri=True) as database:
                    if database.execute("SELECT count(*) FROM trials WHERE state='complete'").fetchone()[0] >= n_ended:
                        return
            except sqlite3.OperationalError:
                pass
        time.sleep(0.02)
    raise AssertionError("the search does not get on")


@contextmanager
def patience(folder) -> Iterator[None]:
    """Makes trials slow, because `ask` takes seconds on a busy machine and the search must not end before."""
    (folder / "patient").touch()
    yield
    (folder / "patient").unlink()


def trials(folder) -> list:
    return Study.open(f"sqlite:///{folder}/shared.db", "shared").trials


@pytest.mark.parametrize("strategy", ["random", "evolutionary"])
def test_a_search_continues_while_a_workload_system_asks_and_tells(program, searching, tmp_path, strategy):
    asked = []
    with patience(tmp_path):
        process = searching(strategy)
        wait_for(tmp_path, 3)
        for _ in range(3):
            _, proposals, _ = program("ask", "space.yaml", "-k", "2")
            asked += proposals
            for one in proposals:
                program("tell", "space.yaml", "--number", str(one["number"]), "--value", "1e-3")
    assert process.wait(60) == 0, (tmp_path / "out").read_text()
    ended = trials(tmp_path)
    assert len(asked) == 6
    assert [trial.number for trial in ended] == list(range(40))
    assert {trial.state for trial in ended} == {"complete"}
    assert [ended[one["number"]].parameters for one in asked] == [one["parameters"] for one in asked]
    assert all(ended[one["number"]].figure_of_merit == 1e-3 for one in asked)
    assert max(Counter(trial.parameters["x"] for trial in ended).values()) == 1, "a point was tried twice"
    with sqlite3.connect(tmp_path / "shared.db") as database:
        attempts = database.execute("SELECT trial_id, count(*) FROM attempts GROUP BY 1 HAVING count(*) > 1").fetchall()
    assert attempts == []


def test_a_search_ends_without_waiting_for_trials_of_a_workload_system(program, searching, tmp_path):
    with patience(tmp_path):
        process = searching(trials=10)
        wait_for(tmp_path, 1)
        _, (theirs,), _ = program("ask", "space.yaml")
    assert process.wait(60) == 75, (tmp_path / "out").read_text()  # the study is not finished
    assert "a workload system still runs 1" in (tmp_path / "out").read_text()
    assert Counter(trial.state for trial in trials(tmp_path)) == {"complete": 9, "running": 1}
    assert searching(trials=10).wait(60) == 75  # again: nothing is left for it
    assert trials(tmp_path)[theirs["number"]].state == "running"
    assert not Study.open(f"sqlite:///{tmp_path}/shared.db", "shared").is_finished
    assert program("tell", "space.yaml", "--number", str(theirs["number"]), "--value", "2")[0] == 0
    assert {trial.state for trial in trials(tmp_path)} == {"complete"}
    assert Study.open(f"sqlite:///{tmp_path}/shared.db", "shared").is_finished


def test_a_trial_that_others_lost_is_run_by_the_search(program, searching, tmp_path):
    with patience(tmp_path):
        process = searching(trials=60)
        wait_for(tmp_path, 2)
        _, (theirs,), _ = program("ask", "space.yaml")
        wait_for(tmp_path, theirs["number"] + 2)
        status, told, _ = program("tell", "space.yaml", "--number", str(theirs["number"]), "--lost", "the site is down")
    assert (status, told["told"]) == (0, [theirs["number"]])
    assert process.wait(60) == 0, (tmp_path / "out").read_text()
    one = trials(tmp_path)[theirs["number"]]
    assert (one.state, one.attempts) == ("complete", 2)
    assert one.figure_of_merit == pytest.approx(theirs["parameters"]["x"] ** 2)


def test_a_target_that_others_reach_ends_the_search(program, searching, tmp_path):
    process = searching(trials=2000, target="1.0e-9")
    wait_for(tmp_path, 2)
    _, (theirs,), _ = program("ask", "space.yaml")
    wait_for(tmp_path, theirs["number"] + 2)
    program("tell", "space.yaml", "--number", str(theirs["number"]), "--value", "0")
    assert process.wait(60) == 0, (tmp_path / "out").read_text()
    assert len(trials(tmp_path)) < 2000
    assert f"trial {theirs['number']} reached the target" in (tmp_path / "out").read_text()
