"""Searches that are asked to end, or that have a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.end_to_end.searches import SEARCH, n_complete, ranks_of, start, start_with_n
from tests.mpirun import SURVIVES_LOST_RANKS, mpirun, patient_s

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks"),
]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_a_signal_to_rank_0_ends_the_search_in_order(name, space_file, query, tmp_path):
    path = space_file("nap", search={"strategy": "random", "trials": 10_000, "seed": 1})
    process = start(3, path, tmp_path)
    while not n_complete(query):
        time.sleep(0.1)
    os.kill(ranks_of(process)[0], getattr(signal, name))
    out, _ = process.communicate(timeout=patient_s(20))
    assert process.returncode == 0
    assert "run the same command again" in out
    assert query("SELECT count(*) FROM trials WHERE state = 'running'") == [(0,)]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_mpirun_that_is_told_to_end_leaves_time_to_put_trials_back(name, space_file, query, tmp_path):
    process = start(3, space_file("hours", search={"strategy": "random", "trials": 12, "seed": 1}), tmp_path)
    while n_complete(query) < 10:
        time.sleep(0.1)
    process.send_signal(getattr(signal, name))
    process.communicate(timeout=patient_s(20))
    assert query("SELECT state FROM trials WHERE number = 2") == [("queued",)]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_ctrl_c_at_the_terminal_ends_the_search_in_order(name, space_file, query, tmp_path):
    process = start_with_n(3, space_file("nap", search={"strategy": "random", "trials": 10_000, "seed": 1}), tmp_path)
    while not n_complete(query):
        time.sleep(0.1)
    os.killpg(process.pid, getattr(signal, name))  # as a terminal does: to mpi-opt and the mpirun that it started
    out, _ = process.communicate(timeout=patient_s(20))
    assert process.returncode == 0
    assert "run the same command again" in out
    assert query("SELECT count(*) FROM trials WHERE state = 'running'") == [(0,)]


def test_a_second_ctrl_c_ends_the_search_at_once(space_file, query, tmp_path):
    process = start_with_n(3, space_file("hours", search={"strategy": "random", "trials": 12, "seed": 1}), tmp_path)
    while n_complete(query) < 3:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    began = time.monotonic()
    process.communicate(timeout=patient_s(20))
    assert process.returncode == 130
    assert time.monotonic() - began < 10
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'")[0][0] >= 3


def test_ranks_do_not_outlive_the_mpi_opt_that_started_them(space_file, query, tmp_path):
    process = start_with_n(2, space_file("nap", search={"strategy": "random", "trials": 10_000, "seed": 1}), tmp_path)
    while not n_complete(query):
        time.sleep(0.1)
    process.kill()
    process.communicate(timeout=patient_s(20))  # until the last rank has closed what it writes to
    before = n_complete(query)
    time.sleep(0.5)
    assert n_complete(query) == before


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "the time limit"])
def test_a_search_of_one_process_ends_in_the_middle_of_a_trial(how, space_file, query, tmp_path):
    search = {"strategy": "random", "trials": 12, "seed": 1}
    limit = {"time_limit": "4s"} if how == "the time limit" else {}
    command = [sys.executable, *SEARCH, str(space_file("hours", search=search | limit))]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    while n_complete(query) < 2:
        time.sleep(0.1)
    if how != "the time limit":
        process.send_signal(getattr(signal, how))
    out, _ = process.communicate(timeout=patient_s(20))
    assert process.returncode == 0
    assert "run the same command again" in out
    assert how in out
    assert query("SELECT number, state FROM trials ORDER BY number") == [
        (0, "complete"),
        (1, "complete"),
        (2, "queued"),
    ]


def test_a_time_limit_ends_the_search_in_order(space_file, query, tmp_path):
    path = space_file("long_nap", search={"strategy": "random", "trials": 10_000, "time_limit": "3s"})
    done = mpirun(3, *SEARCH, str(path), cwd=tmp_path, timeout=30)
    assert done.returncode == 0, done.stderr
    assert "after the time limit" in done.stdout
    assert query("SELECT count(*) FROM trials WHERE state = 'running'") == [(0,)]
