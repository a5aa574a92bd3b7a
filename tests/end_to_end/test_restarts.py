"""Searches whose job is started again, because a process was killed or stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from mpi_learn.job.launch import launch_environment
from tests.end_to_end.searches import SEARCH, await_search, await_trials, children, n_complete, ranks_of
from tests.mpirun import SURVIVES_LOST_RANKS, patient_s

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks"),
]

ELASTIC = Path(__file__).with_name("elastic_objectives.py")
N_TRIALS = 120
SILENCE_S = 4.0


def start(n: int, path: Path, cwd: Path, *options: str) -> subprocess.Popen:
    command = [sys.executable, *SEARCH, str(path), "-n", str(n), *options]
    environment = launch_environment() | {"MPI_LEARN_SILENCE_S": str(SILENCE_S)}
    return subprocess.Popen(command, cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True)


def mpirun_of(process: subprocess.Popen, before: int = 0) -> int:
    """The process id of the ``mpirun`` that was started after `before`; 0 if there is none yet."""
    return next((pid for pid in children(process.pid) if pid != before), 0)


REASONS = "rank 0 was lost", "mpirun was killed by SIGKILL", f"rank 0 gave no sign of life for {SILENCE_S:g} s"


@pytest.mark.parametrize("n_faults", [1, pytest.param(3, marks=pytest.mark.thorough)])
def test_a_search_is_finished_although_its_processes_are_killed_and_stopped(n_faults, space_file, query, tmp_path):
    process = start(3, space_file("nap", search={"strategy": "random", "trials": N_TRIALS, "seed": 1}), tmp_path,
                    "--restarts", "10")  # fmt: skip
    mpirun, n = 0, 0
    faults: tuple[Callable[[int], object], ...] = (
        lambda mpirun: os.kill(ranks_of(mpirun)[0], signal.SIGKILL),
        lambda mpirun: os.kill(mpirun, signal.SIGKILL),
        lambda mpirun: os.kill(ranks_of(mpirun)[0], signal.SIGSTOP),
    )
    for fault in faults[:n_faults]:
        await_trials(process, query, n + 1)
        await_search(process, lambda before=mpirun: mpirun_of(process, before) > 0, "mpirun has not started again")
        mpirun, n = mpirun_of(process, mpirun), n_complete(query)
        await_search(process, lambda one=mpirun: 0 in ranks_of(one), "rank 0 has not started")
        await_trials(process, query, n + 1)
        fault(mpirun)
        n = n_complete(query)
    _, said = process.communicate(timeout=patient_s(60))
    assert process.returncode == 0, said
    rows = query("SELECT number, state FROM trials ORDER BY number")
    assert rows == [(number, "complete") for number in range(N_TRIALS)]
    done = query("SELECT count(*) FROM attempts WHERE outcome = 'complete'")
    assert done == [(N_TRIALS,)]
    reasons = query("SELECT detail FROM events WHERE kind = 'search_restarted'")
    assert tuple(detail for (detail,) in reasons) == REASONS[:n_faults]
    assert f"mpi-opt: {n_faults} restart{'s' if n_faults > 1 else ''}:" in said


IS_WIDE = "state = 'running' AND outcome IS NULL AND ranks LIKE '%,%'"
IS_MOVING = "state = 'queued' AND outcome = 'moved'"


@pytest.mark.parametrize("when", [IS_WIDE, pytest.param(IS_MOVING, marks=pytest.mark.thorough)])
def test_rank_0_dies_while_a_trial_has_the_ranks_of_others(when, space_file, query, tmp_path):
    path = space_file("summed", ELASTIC, search={"strategy": "random", "trials": 3}, blocks={"elastic": True})
    process = start(4, path, tmp_path, "--restarts", "10")
    await_trials(process, query)
    sql = (
        "SELECT count(*) FROM trials t JOIN attempts a ON a.trial_id = t.id AND a.attempt = t.attempts "
        f"WHERE t.number = 0 AND {when}"
    )
    await_search(process, lambda: query(sql) == [(1,)], "trial 0 gets no ranks of others", every_s=0.001)
    os.kill(ranks_of(mpirun_of(process))[0], signal.SIGKILL)
    _, said = process.communicate(timeout=patient_s(60))
    assert process.returncode == 0, said
    figures = [value for (value,) in query("SELECT figure_of_merit FROM trials ORDER BY number")]
    assert figures == pytest.approx([sum(1 / epoch for epoch in range(1, total + 1)) for total in (40, 3, 3)])
    assert query("SELECT count(*) FROM attempts WHERE outcome = 'complete'") == [(3,)]
    assert query("SELECT detail FROM events WHERE kind = 'search_restarted'") == [("rank 0 was lost",)]


def test_ranks_on_a_host_that_ssh_reaches_have_the_variables_of_the_job(space_file, query, tmp_path, monkeypatch):
    """The program in place of ssh runs commands on this host, with an environment of its own as ssh does."""
    agent, hosts = tmp_path / "agent", tmp_path / "hosts"
    agent.write_text(f'#!/bin/sh\nshift\nexec env -i HOME=/ PATH={os.environ["PATH"]} sh -c "$*"\n')
    agent.chmod(0o755)
    hosts.write_text("far slots=3\n")
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(agent))
    path = space_file("nap", search={"strategy": "random", "trials": N_TRIALS, "seed": 1})
    process = start(3, path, tmp_path, "--restarts", "2", "--hostfile", str(hosts))
    await_trials(process, query)
    ((rank_0,),) = query("SELECT process FROM leases")
    os.kill(rank_0, signal.SIGKILL)
    _, said = process.communicate(timeout=patient_s(60))
    assert process.returncode == 0, said
    assert query("SELECT detail FROM events WHERE kind = 'search_restarted'") == [("rank 0 was lost",)]


@pytest.mark.thorough  # test_silent_ranks protects the same
def test_a_stopped_rank_is_given_up_and_the_search_continues_without_it(space_file, query, tmp_path):
    search = {"strategy": "random", "trials": 60, "seed": 1}
    process = start(5, space_file("unhurried", search=search, blocks={"size": 2, "silence": "4s"}), tmp_path)
    await_trials(process, query, 3)
    stopped = ranks_of(mpirun_of(process))[3]
    os.kill(stopped, signal.SIGSTOP)
    try:
        _, said = process.communicate(timeout=patient_s(90))
    finally:
        with suppress(ProcessLookupError):  # mpirun, or mpi-opt, has killed it
            os.kill(stopped, signal.SIGKILL)
    assert process.returncode == 0, said
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(60,)]
    lost = [detail for (detail,) in query("SELECT detail FROM events WHERE kind = 'rank_lost'")]
    assert len(lost) == 1
    assert lost[0].startswith("rank 3, of block 1 on ")
    assert lost[0].endswith(": no sign of life for 4 s (blocks.silence)")
    assert query("SELECT count(*) FROM events WHERE kind = 'search_restarted'") == [(0,)]


def test_a_request_to_end_ends_the_restarts(space_file, query, tmp_path):
    process = start(2, space_file("nap", search={"strategy": "random", "trials": 10_000, "seed": 1}), tmp_path,
                    "--restarts", "10")  # fmt: skip
    await_trials(process, query)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=patient_s(20))
    assert process.returncode == 75
    assert query("SELECT kind FROM events") == [("search_stopped",)]
