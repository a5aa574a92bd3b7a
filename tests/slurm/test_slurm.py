"""Searches under a real Slurm: launching, signals, time limits, and nodes that fail."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime

import pytest

from mpi_opt.core.limits import MAX_CRASHES
from mpi_opt.views.text.rank_plan import slurm_script
from tests.mpirun import patient_s
from tests.slurm.cluster import wait_until
from tests.slurm.conftest import Study

pytestmark = pytest.mark.mpi

BY_US = "exec mpi-opt search space.yaml -n {n}"
BY_MPIRUN = "exec mpirun -np {n} --with-ft ulfm python -m mpi_opt search space.yaml"
UNPROTECTED = "exec mpirun -np {n} python -m mpi_opt search space.yaml"
BY_SRUN = "exec srun --mpi=pmix python -m mpi_opt search space.yaml"
ROOT = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
"""Only for an mpirun that the user starts: mpi-opt sets these variables itself."""

thorough = pytest.mark.thorough


@pytest.fixture
def pmix(cluster):
    """Skips where this Slurm has no PMIx."""
    if cluster.completed("srun", "--mpi=pmix", "true").returncode != 0:
        pytest.skip("srun --mpi=pmix needs the library libpmix.so (Debian's libpmix-dev)")


@pytest.fixture(scope="session")
def limited(cluster) -> dict[str, tuple]:
    """Searches that run into the limit of their job, all at once, as Slurm's shortest limit is a minute."""
    found = {}
    for name, command, options in (
        ("without a signal", BY_US, ["--time=1"]),
        ("with a signal", BY_US, ["--time=1", "--signal=B:USR1@30"]),
        ("mpirun", ROOT + BY_MPIRUN, ["--time=1", "--signal=B:USR1@30"]),
    ):
        study = Study(cluster, cluster.folder / name.replace(" ", "-"), "steady", 100_000)
        found[name] = study, study.submit(command.format(n=3), "--ntasks=3", *options)
    return found


@pytest.fixture(scope="session", autouse=True)
def _limited_first(request):
    """The searches of `limited` run while the other tests do."""
    if any("limited" in getattr(test, "fixturenames", ()) for test in request.session.items):
        request.getfixturevalue("limited")


def test_the_printed_script_runs_on_the_nodes_that_slurm_chooses(study):
    one = study("steady", 40, blocks={"size": 2})
    job = one.submit_script(slurm_script("space.yaml", 9))
    assert job.wait() == ("COMPLETED", 0), job.text
    assert one.query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(40,)]
    hosts = {host for (row,) in one.query("SELECT hosts FROM attempts") for host in row.split(",")}
    assert len(hosts) >= 2
    assert "this batch job ends in 120 min" in job.text
    assert "would end this search" not in job.text  # it is protected


def test_a_killed_rank_costs_no_trial(study, cluster):
    one = study("steady", 60)
    job = one.submit(BY_US.format(n=6), "--ntasks=6", "--nodes=2")
    one.await_complete(5, job)
    node, pid = _ranks_on(cluster, job)[-1]
    cluster.run("kill", "-KILL", pid, node=node)
    assert job.wait() == ("COMPLETED", 0), job.text
    assert one.query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(60,)]
    assert one.query("SELECT count(*) FROM events WHERE kind = 'rank_lost'") == [(1,)]


def _ranks_on(cluster, job) -> list[tuple[str, int]]:
    """Node and process id of each rank of a job, by rank."""
    found = {}
    for node in cluster.run("scontrol", "show", "hostnames", job.field("NodeList")).split():
        script = "grep -lz OMPI_COMM_WORLD_RANK= /proc/[0-9]*/environ 2>/dev/null; true"
        for path in cluster.run("sh", "-c", script, node=node).split():
            words = cluster.completed("cat", path, node=node).stdout.split("\0")
            values = dict(word.split("=", 1) for word in words if "=" in word)
            if values.get("SLURM_JOB_ID") == job.number:
                found.setdefault(int(values["OMPI_COMM_WORLD_RANK"]), (node, int(path.split("/")[2])))
    return [found[rank] for rank in sorted(found)]


@pytest.mark.parametrize("command", [BY_US, pytest.param(ROOT + BY_MPIRUN, marks=thorough)], ids=["-n", "mpirun"])
def test_a_killed_daemon_leaves_an_unfinished_study(study, cluster, command):
    one = study("steady", 60)
    job = one.submit(command.format(n=6), "--ntasks=6", "--nodes=2")
    one.await_complete(5, job)
    cluster.kill(_ranks_on(cluster, job)[-1][0], "prted")
    state, status = job.wait()
    assert one.status("results", "--finished") == 75
    if command == BY_US:
        assert (state, status) == ("FAILED", 75), job.text
        noticed_by_srun, noticed_by_mpirun = "srun returned non-zero", "a node or one of mpirun's daemons was lost"
        assert noticed_by_srun in job.text or noticed_by_mpirun in job.text
    again = one.submit(BY_US.format(n=6), "--ntasks=6")
    assert again.wait() == ("COMPLETED", 0), again.text
    assert one.query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(60,)]
    assert one.status("results", "--finished") == 0


CANCELLED = {"-n": BY_US, "unprotected": ROOT + UNPROTECTED, "mpirun": ROOT + BY_MPIRUN, "srun": BY_SRUN}


@pytest.mark.parametrize(
    ("name", "n_times"),
    [("-n", 1), ("unprotected", 1), *(pytest.param(name, MAX_CRASHES, marks=thorough) for name in CANCELLED)],
)
def test_being_cancelled_counts_against_no_trial(study, cluster, name, n_times, request):
    command = CANCELLED[name]
    if command == BY_SRUN:
        request.getfixturevalue("pmix")
    one = study("patient", 8)
    (one.folder / "patient").touch()
    for _ in range(n_times):
        job = one.submit(command.format(n=5), "--ntasks=5", "--nodes=2")
        one.await_complete(7, job)
        running = "SELECT count(*) FROM attempts WHERE outcome IS NULL"
        wait_until(lambda: one.query(running) == [(1,)], 60, f"trial 2 does not run: {job.text}")  # noqa: B023
        cluster.run("scancel", job.number)
        assert job.wait()[0] == "CANCELLED"
        assert one.query("SELECT number, state FROM trials WHERE state != 'complete'") == [(2, "queued")], job.text
    errors = {error for (error,) in one.query("SELECT error FROM attempts WHERE error IS NOT NULL")}
    lost = "a rank of its block was lost"  # Slurm may end the ranks of another node before rank 0 gets the signal
    passed_on = "the search ended: the launcher was asked to end"  # Slurm may signal the launcher first
    assert errors <= {"the search ended: got SIGTERM", passed_on, lost}
    assert one.query("SELECT DISTINCT outcome FROM attempts WHERE outcome != 'complete'") == [("lost",)]
    (one.folder / "patient").unlink()
    job = one.submit(BY_US.format(n=3), "--ntasks=3")
    assert job.wait() == ("COMPLETED", 0), job.text
    assert one.query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(8,)]


@pytest.mark.parametrize("name", ["TERM", pytest.param("USR1", marks=thorough)])
def test_a_signal_to_the_batch_script_ends_the_search_in_order(study, cluster, name):
    one = study("steady", 100_000)
    job = one.submit(BY_US.format(n=5), "--ntasks=5", "--nodes=2")
    one.await_complete(5, job)
    cluster.run("scancel", "--batch", f"--signal={name}", job.number)
    assert job.wait() == ("FAILED", 75), job.text
    assert "run the same command again" in job.text
    assert one.query("SELECT count(*) FROM trials WHERE state = 'running'") == [(0,)]


def test_srun_with_pmix_runs_blocks_of_several_ranks(study, pmix):
    one = study("steady", 12, blocks={"size": 2})
    job = one.submit(BY_SRUN, "--ntasks=5", "--nodes=2")
    assert job.wait() == ("COMPLETED", 0), job.text
    assert one.query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(12,)]
    assert one.query("SELECT count(*) FROM events WHERE kind = 'block_lost'") == [(0,)]
    assert "a lost rank would end this search" in job.text


@pytest.mark.parametrize("plugin", ["none", pytest.param("pmi2", marks=thorough)])
def test_srun_without_pmix_is_refused(study, plugin):
    one = study("steady", 12)
    job = one.submit(BY_SRUN.replace("pmix", plugin), "--ntasks=5")
    assert job.wait() == ("FAILED", 2), job.text
    assert job.text.count("started 5 processes") == 1
    assert "srun --mpi=pmix" in job.text
    assert one.query("SELECT * FROM trials") == []


def test_a_batch_script_that_forgets_to_start_ranks_is_refused(study):
    one = study("steady", 12)
    job = one.submit("exec mpi-opt search space.yaml", "--ntasks=5")
    assert job.wait() == ("FAILED", 2)
    assert "this Slurm job has 5 tasks" in job.text
    assert "-n 5" in job.text


@pytest.mark.parametrize(("option", "statuses"), [("", [0, 2]), pytest.param("--wait", [0, 0], marks=thorough)])
def test_the_jobs_of_an_array_do_not_search_one_study_at_the_same_time(study, option, statuses):
    one = study("steady", 60)
    job = one.submit(f"{BY_US.format(n=3)} {option}", "--ntasks=3", "--array=0-1")
    jobs = [type(job)(job.cluster, f"{job.number}_{index}", job.output) for index in range(2)]
    assert sorted(one.wait()[1] for one in jobs) == statuses, job.text
    assert one.query("SELECT count(*), count(DISTINCT number) FROM trials WHERE state = 'complete'") == [(60, 60)]
    assert one.query("SELECT count(*) FROM attempts") == [(60,)]


@pytest.mark.parametrize("name", ["without a signal", "with a signal", "mpirun"])
def test_a_search_uses_the_time_of_its_job_and_ends_in_order(limited, name):
    one, job = limited[name]
    state, status = job.wait(150)
    assert (state, status) == ("FAILED", 75), job.text
    assert "the batch job is about to end" in job.text or "likely end after the time limit" in job.text
    lasted_s = _seconds(job.field("RunTime"))
    assert 40 < lasted_s < 61
    began, ended = one.query("SELECT min(started_at), max(finished_at) FROM attempts WHERE outcome = 'complete'")[0]
    searched = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    assert searched.total_seconds() > lasted_s - 25  # without the start of the ranks, and the margin
    assert one.query("SELECT count(*) FROM trials WHERE state IN ('running', 'failed')") == [(0,)]


def _seconds(text: str) -> int:
    hours, minutes, seconds = map(int, re.fullmatch(r"(\d+):(\d+):(\d+)", text).groups())
    return 3600 * hours + 60 * minutes + seconds


@thorough
@pytest.mark.parametrize("how", ["off", "cut", "frozen"])
def test_a_search_continues_on_the_nodes_that_are_left(study, cluster, how):
    """Each node has three ranks; some blocks of two ranks are on two nodes."""
    one = study("steady", 400, blocks={"size": 2, "silence": "6s"}, trial={"retries": 5})
    job = one.submit_script(slurm_script("space.yaml", 9), "--nodes=3", "--ntasks-per-node=3")
    one.await_complete(5, job)
    lost = _ranks_on(cluster, job)[-1][0]
    {"off": cluster.power_off, "cut": cluster.cut, "frozen": cluster.freeze}[how](lost)
    n, began = one.query("SELECT count(*) FROM attempts")[0][0], time.monotonic()
    try:
        wait_until(lambda: one.query("SELECT count(*) FROM attempts")[0][0] > n + 9, 120, job.text)
        print(f"{how}: continued after {time.monotonic() - began:.1f} s")
        assert job.wait(300) == ("COMPLETED", 0), job.text
        print(f"{how}: ended after {time.monotonic() - began:.1f} s", one.query("SELECT kind, detail FROM events"))
        assert job.field("Restarts") == "0"
        assert one.query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(400,)]
        assert one.query("SELECT count(*) FROM attempts WHERE outcome = 'complete'") == [(400,)]
    finally:
        if how == "off":
            cluster.power_on(lost)
        elif how == "cut":
            cluster.mend(lost)
        else:
            cluster.freeze(lost, thaw=True)
        wait_until(cluster._is_idle, 120, "the node did not come back")


@thorough
@pytest.mark.parametrize("rank", [0, -1], ids=["with the batch script", "another"])
def test_a_lost_node_is_replaced_and_the_search_continues(study, cluster, rank):
    one = study("steady", 150)
    job = one.submit(BY_US.format(n=9), "--ntasks=9", "--open-mode=append")
    one.await_complete(5, job)
    first = job.field("NodeList")
    lost = _ranks_on(cluster, job)[rank][0]
    cluster.power_off(lost)
    try:
        assert job.wait(200) == ("COMPLETED", 0), job.text
        assert job.field("Restarts") == "1"
        assert job.field("NodeList") != first
        assert one.query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(150,)]
        assert "study resumed" in job.text  # and the output of the first run is still there
    finally:
        cluster.power_on(lost)


@thorough
def test_a_job_that_has_lost_the_node_with_its_batch_script_is_requeued(study, cluster):
    """With --no-kill, Slurm does not requeue it by itself; a process on another node asks it to."""
    one = study("steady", 150)
    job = one.submit_script(slurm_script("space.yaml", 9))
    one.await_complete(5, job)
    lost = job.field("BatchHost")
    cluster.power_off(lost)
    try:
        assert job.wait(350) == ("COMPLETED", 0), job.text
        assert lost not in job.field("NodeList")
        assert one.query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(150,)]
        assert "trials finished before" in job.text
    finally:
        cluster.power_on(lost)


@thorough
def test_a_killed_slurmd_does_not_lose_a_trial(study, cluster):
    one = study("steady", 150)
    job = one.submit_script(slurm_script("space.yaml", 9))
    one.await_complete(5, job)
    node = _ranks_on(cluster, job)[-1][0]
    cluster.kill(node, "slurmd -D")
    try:
        assert job.wait(200) == ("COMPLETED", 0), job.text
        assert one.query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(150,)]
    finally:
        cluster.run("slurmd", "-N", node, node=node)


N_SEARCHES = int(os.environ.get("SLURM_SEARCHES", "20"))
N_STARTS = int(os.environ.get("SLURM_STARTS", "200"))
"""Numbers of starts in the two tests of blocks across nodes."""
RECORD = os.environ.get("SLURM_RECORD")
"""File to which the first one appends its starts, so that several runs are one series; see `tests.slurm.starts`."""


@thorough
@pytest.mark.timeout(0)  # each start has a limit
def test_blocks_across_nodes_form_in_every_start(study):
    """The ranks do nothing else, so that many starts take minutes."""
    one = study("quick", 4)
    limit_s = patient_s(30)
    starts = f"python -m tests.slurm.starts {N_STARTS} {limit_s:.0f} {RECORD or one.folder / 'starts.jsonl'}"
    job = one.submit(f"{ROOT}exec {starts}", "--ntasks=7", "--nodes=3")
    ended = job.wait(60 + limit_s * N_STARTS)
    print(job.text)
    assert ended == ("COMPLETED", 0), job.text


@thorough
@pytest.mark.timeout(120 + 60 * N_SEARCHES)
def test_searches_whose_block_is_on_several_nodes_end_without_an_incident(study):
    one = study("quick", 4, blocks={"size": 6})
    loop = f"for i in $(seq {N_SEARCHES}); do mpi-opt search space.yaml -n 7 --study start-$i || exit; done"
    job = one.submit(loop, "--ntasks=7", "--nodes=3")
    assert job.wait(60 + 60 * N_SEARCHES) == ("COMPLETED", 0), job.text
    assert one.query("SELECT state, count(*) FROM trials GROUP BY state") == [("complete", 4 * N_SEARCHES)]
    assert one.query("SELECT kind, detail FROM events WHERE kind != 'study_finished'") == []  # no block hung
    hosts = [row for (row,) in one.query("SELECT DISTINCT hosts FROM attempts")]
    assert all("," in row for row in hosts), hosts
