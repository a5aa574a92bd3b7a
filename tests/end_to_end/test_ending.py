"""Searches that are asked to end, or that have a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.end_to_end.searches import (
    SEARCH,
    await_search,
    await_trials,
    children,
    n_complete,
    ranks_of,
    start,
    start_with_n,
)
from tests.mpirun import PROTECTED, SURVIVES_LOST_RANKS, mpirun, patient_s

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks"),
]


STATUS = {"SIGINT": 130, "SIGTERM": 75, "SIGUSR1": 75}
ENDLESS = {"strategy": "random", "trials": 10_000, "seed": 1}


@pytest.mark.parametrize("name", [pytest.param("SIGINT", marks=pytest.mark.thorough), "SIGTERM"])
def test_a_signal_to_rank_0_ends_the_search_in_order(name, space_file, query, tmp_path):
    process = start(3, space_file("nap", search=ENDLESS), tmp_path)
    await_trials(process, query)
    rank_0 = ranks_of(process.pid)[0]
    for _ in range(2):  # copies, as from a batch system and mpirun, are one request
        with suppress(ProcessLookupError):  # on a loaded machine the rank may have ended before the second
            os.kill(rank_0, getattr(signal, name))
        time.sleep(0.01)
    out, _ = process.communicate(timeout=patient_s(20))
    assert process.returncode == STATUS[name]
    assert "run the same command again" in out
    assert query("SELECT count(*) FROM trials WHERE state = 'running'") == [(0,)]
    assert query("SELECT kind, detail FROM events") == [("search_stopped", f"got {name}")]


@pytest.mark.parametrize("flags", [PROTECTED, ["--oversubscribe"]], ids=["protected", "unprotected"])
def test_an_mpirun_that_is_asked_to_end_leaves_time_to_requeue_trials(flags, space_file, query, tmp_path):
    search = {"strategy": "random", "trials": 12, "seed": 1}
    process = start(3, space_file("hours", search=search), tmp_path, flags)
    await_trials(process, query, 10)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=patient_s(20))
    assert process.returncode != 0
    assert query("SELECT state FROM trials WHERE number = 2") == [("queued",)]
    (error,) = query("SELECT error FROM attempts WHERE outcome = 'lost'")[0]
    assert error == "the search ended: got SIGTERM"  # which does not count against the trial


SLOW = """
import pathlib, time
from mpi_opt.strategies.designs.random_search import RandomSearch
pathlib.Path("imported").touch()
time.sleep(1.0)
"""


def test_a_signal_before_the_search_listens_is_not_lost(space_file, query, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    search = ENDLESS | {"strategy": f"{tmp_path / 'slow.py'}:RandomSearch"}
    process = start(3, space_file("nap", search=search), tmp_path)
    await_search(process, (tmp_path / "imported").exists, "the strategy is not imported", every_s=0.01)
    process.send_signal(signal.SIGUSR1)  # mpirun forwards it to all ranks
    out, _ = process.communicate(timeout=patient_s(30))
    assert process.returncode == 75
    assert "got SIGUSR1" in out
    assert n_complete(query) == 0


def test_a_search_whose_rank_0_was_killed_is_unfinished(space_file, query, tmp_path):
    process = start(3, space_file("nap", search=ENDLESS), tmp_path)
    await_trials(process, query)
    os.kill(ranks_of(process.pid)[0], signal.SIGKILL)
    process.communicate(timeout=patient_s(30))
    assert process.returncode == 75


def test_ctrl_c_at_the_terminal_ends_the_search_in_order(space_file, query, tmp_path):
    process = start_with_n(3, space_file("nap", search=ENDLESS), tmp_path)
    await_trials(process, query)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to mpi-opt and the mpirun that it started
    out, _ = process.communicate(timeout=patient_s(20))
    assert process.returncode == 130
    assert "run the same command again" in out
    assert query("SELECT count(*) FROM trials WHERE state = 'running'") == [(0,)]


@pytest.mark.parametrize(("victim", "status"), [("daemon", 75), ("rank", 0)])
def test_a_search_with_n_is_finished_only_if_its_rank_0_says_so(victim, status, space_file, query, tmp_path):
    search = {"strategy": "random", "trials": 100, "seed": 1}
    process = start_with_n(3, space_file("nap", search=search), tmp_path)
    await_trials(process, query)
    (mpirun,) = children(process.pid)
    ranks = ranks_of(mpirun)
    for rank in ranks if victim == "daemon" else [2]:  # mpirun ends with status 0 in both cases
        with suppress(ProcessLookupError):  # mpirun ends the others when it notices the first
            os.kill(ranks[rank], signal.SIGKILL)
    process.communicate(timeout=patient_s(60))
    assert process.returncode == status
    assert (n_complete(query) == 100) is (status == 0)


def test_a_second_ctrl_c_ends_the_search_at_once(space_file, query, tmp_path):
    process = start_with_n(3, space_file("hours", search={"strategy": "random", "trials": 12, "seed": 1}), tmp_path)
    await_trials(process, query, 3)
    os.killpg(process.pid, signal.SIGINT)
    lines = []
    while "no more trials start" not in (lines or [""])[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], "the search ended before it printed that it got the first signal"
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=patient_s(20))
    assert process.returncode == 130
    assert "run the same command again" not in out  # the first one alone ends the search in order
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'")[0][0] >= 3


def test_ranks_do_not_outlive_the_mpi_opt_that_started_them(space_file, query, tmp_path):
    process = start_with_n(2, space_file("nap", search=ENDLESS), tmp_path)
    await_trials(process, query)
    process.kill()
    process.communicate(timeout=patient_s(20))  # until the last rank has closed its output
    before = n_complete(query)
    time.sleep(0.5)
    assert n_complete(query) == before


@pytest.mark.parametrize("how", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.thorough), "the time limit"])
def test_a_search_of_one_process_ends_in_the_middle_of_a_trial(how, space_file, query, tmp_path):
    search = {"strategy": "random", "trials": 12, "seed": 1}
    limit = {"time_limit": "4s"} if how == "the time limit" else {}
    command = [sys.executable, *SEARCH, str(space_file("hours", search=search | limit))]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    await_trials(process, query, 2)
    if how != "the time limit":
        process.send_signal(getattr(signal, how))
    out, _ = process.communicate(timeout=patient_s(20))
    assert process.returncode == STATUS.get(how, 75)
    assert "run the same command again" in out
    assert how in out
    assert "ended: 2/12 trials" in out and "done:" not in out
    assert query("SELECT number, state FROM trials ORDER BY number") == [
        (0, "complete"),
        (1, "complete"),
        (2, "queued"),
    ]


@pytest.mark.parametrize("output", ["a closed pipe", "/dev/full"])
def test_a_search_that_cannot_print_writes_its_report_and_is_unfinished(output, space_file, tmp_path):
    if output == "/dev/full":
        writer = os.open(output, os.O_WRONLY)
    else:
        reader, writer = os.pipe()
        os.close(reader)
    command = [sys.executable, *SEARCH, str(space_file("nap", search=ENDLESS)), "--time-limit", "1s", "--report"]
    try:
        ended = subprocess.run(command, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert ended.returncode == 75, ended.stderr
    assert (tmp_path / "test.html").exists()


def test_a_time_limit_ends_the_search_in_order(space_file, query, tmp_path):
    path = space_file("long_nap", search={"strategy": "random", "trials": 10_000, "time_limit": "3s"})
    done = mpirun(3, *SEARCH, str(path), cwd=tmp_path, timeout=30)
    assert done.returncode == 75, done.stderr
    assert "after the time limit" in done.stdout
    assert query("SELECT count(*) FROM trials WHERE state = 'running'") == [(0,)]


LINGERING = (
    "import multiprocessing.util, logging; from mpi_learn.job import exit_status; exit_status.GRACE_S = 2.0; "
    "from mpi_opt.cli.main import main; main()"
)
"""A program that is ``mpi-opt``, with modules that register exit handlers before it, and a short time for its end."""


def still_alive(processes: list[int]) -> list[int]:
    """Those of `processes` that do not end within seconds. They are killed."""

    def alive() -> list[int]:
        found = []
        for pid in processes:
            with suppress(OSError):
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found.append(pid)
        return found

    until = time.monotonic() + patient_s(2)
    while alive() and time.monotonic() < until:
        time.sleep(0.05)
    left = alive()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


@pytest.mark.parametrize(
    "flags",
    [PROTECTED, pytest.param(["--oversubscribe"], marks=pytest.mark.thorough)],
    ids=["protected", "unprotected"],
)
def test_threads_handlers_and_children_of_user_code_end_before_their_rank(flags, space_file, query, tmp_path):
    done = mpirun(4, "-c", LINGERING, "search", str(space_file("lingering")), cwd=tmp_path, mpirun_flags=flags)
    children = [int(path.name.partition("-")[2]) for path in tmp_path.glob("child-*")]
    alive = still_alive(children)
    assert query("SELECT kind FROM events") == [("study_finished",)]
    assert sorted(path.name for path in tmp_path.glob("handled-*")) == ["handled-1", "handled-2", "handled-3"]
    assert not list(tmp_path.glob("folder-*"))
    assert len(children) == 4
    assert not alive
    logs = {path.stem: path.read_text() for path in (tmp_path / "test.logs").iterdir()}
    assert logs["rank-0001"] == ""
    assert "rank 2 ends: threads of user code still run 2 s after the program has ended: endless" in logs["rank-0002"]
    assert "rank 3 ends: exit handlers or child processes of user code take longer than 2 s" in logs["rank-0003"]
    if flags == PROTECTED:  # without protection, mpirun reports a rank that ends without MPI_Finalize
        assert done.returncode == 0, done.stderr


SCRIPT = """
import atexit, multiprocessing.util, os, signal, weakref
weakref.finalize(atexit, print)  # the first one registers the exit handler of all
from pathlib import Path
from mpi4py import MPI
import mpi_opt
from tests.end_to_end.objectives import lingering

atexit.register(Path(f"early-{MPI.COMM_WORLD.rank}").touch)

def objective(trial):
    if MPI.COMM_WORLD.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return lingering(trial)

space = {"x": mpi_opt.Real(0, 2)}
mpi_opt.search(objective, space=space, trials=4, strategy="random", store="sqlite:///test.db", study="test")
"""


def test_a_script_that_has_lost_a_rank_runs_its_exit_handlers(tmp_path):
    """The ranks end without ``MPI_Finalize``."""
    done = mpirun(3, "-c", SCRIPT, cwd=tmp_path, env={"PYTHONPATH": str(Path(__file__).parents[2])})
    assert done.returncode == 0, done.stderr
    found = sorted(path.name for path in tmp_path.iterdir() if path.name.partition("-")[0] in ("early", "handled"))
    assert found == ["early-0", "early-1", "handled-1"]
    assert not list(tmp_path.glob("folder-*"))
    assert not still_alive([int(path.name.partition("-")[2]) for path in tmp_path.glob("child-*")])
