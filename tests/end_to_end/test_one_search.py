"""One search at a time runs a study. Others report its owner, wait, or take over after a crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

MPI_OPT = (sys.executable, "-m", "mpi_opt")


class Program:
    """Commands of a test in its folder. Those that are still running at the end of the test are killed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._started = folder, []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self._started.append(subprocess.Popen([*MPI_OPT, *arguments], cwd=self.folder, **pipes))
        return self._started[-1]

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        output = process.communicate(timeout=60)[0]
        return process.returncode, output

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path)
    yield program
    program.end()


def until(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def running(query: Callable[[str], list[tuple]], number: int) -> Callable[[], bool]:
    def is_running() -> bool:
        try:
            return query(f"SELECT state FROM trials WHERE number = {number}") == [("running",)]
        except Exception:  # noqa: BLE001 - the store does not exist yet
            return False

    return is_running


def test_second_search_and_results_for_its_trials_do_not_disturb_a_search(program, space_file, query, tmp_path):
    path = str(space_file("gated", search={"strategy": "random", "trials": 3, "seed": 3}))
    first = program.start("search", path)
    until(running(query, 0))
    status, output = program.run("search", path)
    assert status == 2, output
    owner = f"process {first.pid} on {os.uname().nodename}"
    assert f"another search runs this study: {owner}, since 20" in output
    assert "--wait" in output and "Traceback" not in output
    status, output = program.run("tell", path, "--number", "0", "--value", "7")
    assert status == 2, output
    assert f"trial 0 belongs to the search of {owner}" in output
    status, output = program.run("ask", path)
    assert [one["number"] for one in json.loads(output)] == [1]
    assert program.run("tell", path, "--number", "1", "--value", "0.5")[0] == 0
    waiting = program.start("search", path, "--wait", "--trials", "4")
    assert f"waiting for the search that runs this study: {owner}" in waiting.stdout.readline()
    (tmp_path / "gate").touch()
    outputs = [search.communicate(timeout=60)[0] for search in (first, waiting)]
    assert waiting.returncode == first.returncode == 0, outputs
    rows = query("SELECT state, figure_of_merit = x FROM study_test ORDER BY number")
    assert rows == [("complete", 1), ("complete", 0), ("complete", 1), ("complete", 1)]
    assert query("SELECT attempts FROM trials") == [(1,)] * 4
    assert query("SELECT * FROM leases") == []


@pytest.mark.timing
def test_search_takes_over_at_once_from_one_that_was_killed(program, space_file, query, tmp_path):
    path = str(space_file("gated", search={"strategy": "random", "trials": 2, "seed": 3}))
    killed = program.start("search", path)
    until(running(query, 0))
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert query("SELECT process FROM leases") == [(killed.pid,)]
    (tmp_path / "gate").touch()
    began_at, began = datetime.now(UTC).isoformat(), time.monotonic()
    status, output = program.run("search", path)
    assert status == 0, output
    assert time.monotonic() - began < 12  # the time to start; an owner elsewhere would be watched for 15 s
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(2,)]
    ((died_at,),) = query("SELECT finished_at FROM attempts WHERE outcome = 'killed'")
    assert died_at < began_at


@pytest.mark.mpi
def test_only_one_of_two_jobs_that_start_at_once_runs_the_study(program, space_file, query):
    path = str(space_file("nap", search={"strategy": "random", "trials": 60, "seed": 3}))
    jobs = [program.start("search", path, "-n", "2") for _ in range(2)]
    outputs = [job.communicate(timeout=100)[0] for job in jobs]
    assert sorted(job.returncode for job in jobs) == [0, 2], outputs
    refused = next(output for job, output in zip(jobs, outputs, strict=True) if job.returncode == 2)
    assert refused.count("another search runs this study") == 1
    assert query("SELECT count(*), max(attempts) FROM trials WHERE state = 'complete'") == [(60, 1)]
