"""What started this process; and starting ``mpirun``, here a script that ends as a test wants."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mpi_learn.cli.commands import main as mpi_learn
from mpi_learn.errors import UserError
from mpi_learn.job import launch as launching
from mpi_learn.job import time_limits
from mpi_learn.job.exit_status import CONFIRMED, STATUS_FILE, VARIABLE, LaunchMode
from mpi_learn.job.launch import Launch, launch
from mpi_learn.job.started_by import (
    LAUNCHERS,
    all_ranks_live,
    check_allocation,
    check_world,
    is_started_by_srun,
    launched,
    n_hosts,
)
from mpi_learn.job.stop_request import StopRequest
from mpi_learn.job.time_limits import job_end_s, margin_s, seconds_left
from mpi_opt.cli.main import main as mpi_opt

SRUN = {"SLURM_NTASKS": "5", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "5"}
BATCH = {"SLURM_NTASKS": "5", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}


@pytest.fixture
def environment(monkeypatch):
    """Sets only the variables of one launcher."""
    for name in {name for one in LAUNCHERS for name in (one.size, one.rank)} | set(BATCH):
        monkeypatch.delenv(name, raising=False)

    def set_all(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_all


@pytest.mark.parametrize(
    ("variables", "by", "rank", "size"),
    [
        ({}, "", 0, 1),
        (BATCH, "", 0, 1),
        ({**BATCH, "SLURM_STEP_NUM_TASKS": "1"}, "", 0, 1),  # srun --pty bash
        (SRUN, "srun", 3, 5),
        ({**SRUN, "OMPI_COMM_WORLD_SIZE": "9", "OMPI_COMM_WORLD_RANK": "8"}, "mpirun", 8, 9),
        ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, "mpirun", 0, 1),
        ({**SRUN, "PMI_SIZE": "12", "PMI_RANK": "11"}, "mpiexec", 11, 12),
        ({"PALS_RANKID": "2"}, "mpiexec", 2, 3),
        ({"JSM_NAMESPACE_SIZE": "4", "JSM_NAMESPACE_RANK": "0"}, "jsrun", 0, 4),
        ({"PMIX_RANK": "1"}, "a PMIx launcher", 1, 2),
    ],
)
def test_the_launcher_is_recognised_by_its_variables(variables, by, rank, size):
    found = launched(variables)
    assert (found.by, found.rank, found.size) == (by, rank, size)


PMI_2 = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_MPI_TYPE": "pmi2", "PMI_RANK": "0", "PMI_SIZE": "4"}


@pytest.mark.parametrize(
    ("variables", "is_srun"),
    [
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, True),
        (PMI_2, True),
        (PMI_2 | {"SLURM_STEP_NUM_TASKS": "2"}, False),  # mpiexec, which has started a daemon on each of two nodes
        (PMI_2 | {"SLURM_MPI_TYPE": "none"}, False),
        (PMI_2 | {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}, False),
        ({}, False),
    ],
)
def test_srun_is_recognised_also_if_it_sets_the_variables_of_mpich(variables, is_srun):
    assert is_started_by_srun(variables) is is_srun


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (SRUN, ["srun started 5 processes", "srun --mpi=pmix", "Open MPI 5"]),
        ({"PMI_SIZE": "4", "PMI_RANK": "0"}, ["mpiexec started 4 processes", "mpi-learn train and mpi-opt"]),
        ({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "1"}, ["mpirun started 3 processes"]),
        ({"PALS_RANKID": "2"}, ["started 3 processes"]),
    ],
)
def test_processes_that_mpi_did_not_connect_are_refused(environment, variables, words):
    environment(variables)
    with pytest.raises(UserError) as raised:
        check_world(1, "Open MPI 5")
    assert all(word in str(raised.value) for word in words)
    check_world(launched().size, "Open MPI 5")


def test_one_process_in_a_job_of_several_tasks_is_refused_unless_a_launcher_started_it():
    with pytest.raises(UserError, match="this Slurm job has 5 tasks") as raised:
        check_allocation(BATCH)
    assert "-n 5" in str(raised.value)
    for variables in ({}, BATCH | {"SLURM_NTASKS": "1"}, SRUN, BATCH | {"OMPI_COMM_WORLD_SIZE": "1"}):
        check_allocation(variables)


def test_hosts_of_a_batch_job_are_counted(tmp_path):
    (tmp_path / "nodes").write_text("n1\nn1\nn2\n")
    (tmp_path / "hosts").write_text("n1 8 all.q\nn2 8 all.q\nn3 8 all.q\n")
    assert n_hosts({}) == 1
    assert n_hosts({"SLURM_JOB_NUM_NODES": "3"}) == 3
    assert n_hosts({"PBS_NODEFILE": str(tmp_path / "nodes")}) == 2
    assert n_hosts({"PE_HOSTFILE": str(tmp_path / "hosts")}) == 3
    assert n_hosts({"LSB_MCPU_HOSTS": "n1 8 n2 8"}) == 2
    (tmp_path / "node").write_text("n1\nn1\n\n")
    assert n_hosts({"PBS_NODEFILE": str(tmp_path / "node")}) == n_hosts({"LSB_MCPU_HOSTS": "n1 8"}) == 1
    assert n_hosts({"PBS_NODEFILE": str(tmp_path / "absent")}) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1:30", 90), ("2:00:05\n", 7205), ("1-02:03:04", 93784), ("UNLIMITED", None), ("NOT_SET", None), ("", None)],
)
def test_slurms_time_left_is_read(text, seconds):
    assert seconds_left(text) == seconds


def test_the_end_of_the_job_is_read_from_slurm():
    asked = []

    def ask(job: str) -> str:
        asked.append(job)
        return "1:00\n"

    assert job_end_s({}, ask) is None
    assert job_end_s({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "10000"}, ask) == 10000
    assert not asked
    assert job_end_s({"SLURM_JOB_ID": "7"}, ask, now_s=500.0) == 560  # as under Slurm 22.05
    assert asked == ["7"]
    assert job_end_s({"SLURM_JOB_ID": "7"}, lambda job: "UNLIMITED") is None


def test_a_short_job_loses_little_time_to_the_margin():
    assert [margin_s(left_s) for left_s in (10.0, 120.0, 86400.0)] == [5.0, 12.0, 30.0]


@pytest.fixture
def mpirun(tmp_path, monkeypatch, environment):
    """Replaces ``mpirun`` by a script that records its arguments and runs given commands."""

    def replace(does: str, version: str = "5.0.11") -> Path:
        script = tmp_path / "mpirun"
        lines = ["#!/bin/bash", f'[ "$1" = --version ] && echo "mpirun (Open MPI) {version}" && exit']
        script.write_text("\n".join([*lines, f'echo "$@" > {tmp_path}/arguments', does, ""]))
        script.chmod(0o755)
        monkeypatch.setattr(launching, "find_mpirun", lambda: str(script))
        return tmp_path / "arguments"

    return replace


WANTED = Launch(["mpi_opt", "search", "space.yaml"], 3)


@pytest.mark.parametrize(
    ("version", "status", "expected"),
    [
        ("5.0.11", CONFIRMED, 0),
        ("5.0.11", 0, 75),  # a daemon was killed: rank 0 has not confirmed
        ("5.0.11", 75, 75),
        ("5.0.11", 2, 2),
        ("5.0.11", 1, 1),
        ("5.0.11", 137, 1),
        ("4.1.5", 0, 0),
        ("4.1.5", 75, 75),
    ],
)
def test_mpiruns_status_becomes_one_of_ours(mpirun, version, status, expected, capfd):
    mpirun(f"exit {status}", version)
    assert launch(WANTED, StopRequest()) == expected
    assert ("a node or one of mpirun's daemons was lost" in capfd.readouterr().err) is (status == 0 and expected == 75)


@pytest.mark.parametrize("mpiruns", [0, 1, 213])
@pytest.mark.parametrize(("version", "written", "expected"), [("5.0.11", 0, 0), ("5.0.11", 75, 75), ("4.1.5", 0, 0)])
def test_an_mpirun_that_fails_while_its_ranks_end_does_not_change_the_status(
    mpirun, version, written, expected, mpiruns
):
    mpirun(f'echo {written} > "${STATUS_FILE}"; exit {mpiruns}', version)
    assert launch(WANTED, StopRequest()) == expected


@pytest.mark.parametrize(
    ("written", "mpiruns", "expected"),
    [(1, 1, 1), (2, 2, 2), (75, 75, 130), (0, 1, 0), ("", 1, 130), ("", 2, 2)],
    ids=["disk full", "invalid", "ended in order", "finished", "a signal has ended the ranks", "invalid, lost"],
)
def test_a_failure_of_rank_0_after_a_request_to_end_decides_the_status(mpirun, written, mpiruns, expected):
    """A script that starts the program again after status 75 would repeat a failure forever."""
    write = f'[ "{written}" ] && echo {written} > "${STATUS_FILE}"'
    mpirun(f"trap '{write}; exit {mpiruns}' USR1; kill -INT $PPID; for i in {{1..100}}; do sleep 0.05; done")
    with StopRequest().listening() as request:
        assert launch(WANTED, request) == expected


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_job_that_is_asked_to_end_before_it_has_begun_does_not_wait_for_its_ranks(mpirun, monkeypatch, has_begun):
    """The signal may have killed a rank that did not handle it yet, and MPI does not start without it."""
    monkeypatch.setattr(launching, "WATCH_S", 0.05)
    monkeypatch.setattr(launching, "ASKED_S", 0.1)
    begin = f'touch "${STATUS_FILE}"' if has_begun else ":"
    beside = mpirun(f"trap '' USR1; trap 'touch $0.ended; exit 9' HUP; {begin}; kill -INT $PPID\n"
                    "for i in {1..20}; do sleep 0.05; done").parent  # fmt: skip
    with StopRequest().listening() as request:
        assert launch(WANTED, request) == 130
    assert (beside / "mpirun.ended").exists() is not has_begun


@pytest.mark.parametrize(("handler", "is_alone"), [(signal.SIG_IGN, True), (signal.SIG_DFL, False)])
def test_a_closed_terminal_does_not_end_a_job_that_was_started_with_nohup(mpirun, handler, is_alone):
    """`mpirun` handles SIGHUP even if it was ignored. A terminal sends it to the process group of the command."""
    beside = mpirun(f"echo $(ps -o pgid= $$) > $0.group; exit {CONFIRMED}").parent
    before = signal.signal(signal.SIGHUP, handler)
    try:
        assert launch(WANTED, StopRequest()) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (int((beside / "mpirun.group").read_text()) != os.getpgrp()) is is_alone


SPACE = """
study: parabola
store: sqlite:///parabola.db
objective: objective.py:objective
space: {x: {type: real, low: 0.0, high: 2.0}}
search: {strategy: random, trials: 2}
"""


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["mpi_opt", "search", "space.yaml"], 0), (["mpi_learn", "train", "absent.yaml"], 2)],
    ids=["mpi-opt", "mpi-learn"],
)
def test_rank_0_writes_its_status(mpirun, tmp_path, monkeypatch, arguments, status):
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "objective.py").write_text("def objective(trial):\n    return trial.parameters['x']\n")
    monkeypatch.chdir(tmp_path)
    mpirun('until [ "$1" = -np ]; do shift; done; shift 2; "$@"; exit 213')  # one rank, without MPI
    assert launch(Launch(arguments, 1), StopRequest()) == status


@pytest.mark.parametrize(
    ("main", "module", "command"),
    [(mpi_opt, "mpi_opt", "search"), (mpi_learn, "mpi_learn", "train")],
    ids=["mpi-opt", "mpi-learn"],
)
def test_n_starts_the_command_that_a_program_passes_to_main(mpirun, main, module, command):
    arguments = mpirun(f"exit {CONFIRMED}")
    with pytest.raises(SystemExit) as end:
        main([command, "file.yaml", "-n", "2", "--debug"])
    assert end.value.code == 0
    assert arguments.read_text().split(" -m ")[1].split() == [module, command, "file.yaml", "--debug"]


def test_ranks_confirm_their_end_if_mpirun_survives_lost_ranks(mpirun):
    mpirun(f'[ "${VARIABLE}" = confirmed ] && exit {CONFIRMED}')
    assert launch(WANTED, StopRequest()) == 0
    mpirun(f'[ "${VARIABLE}" = shielded ] && exit 0; exit 1', "4.1.5")
    assert launch(WANTED, StopRequest()) == 0


@pytest.mark.parametrize(("name", "expected"), [("SIGINT", 130), ("SIGTERM", 75), ("SIGUSR1", 75)])
def test_a_signal_reaches_the_ranks_as_sigusr1_and_decides_the_status(mpirun, name, expected):
    ready = mpirun("trap 'exit 0' USR1; trap 'exit 9' INT TERM; touch $0.ready; for i in {1..100}; do sleep 0.05; done")
    request = StopRequest()

    def send() -> None:
        while not (ready.parent / "mpirun.ready").exists():
            pass
        os.kill(os.getpid(), getattr(signal, name))

    with request.listening():
        threading.Thread(target=send).start()
        assert launch(WANTED, request) == expected


def test_a_request_before_mpirun_starts_starts_nothing(mpirun):
    arguments = mpirun("exit 0")
    request = StopRequest()
    request.ask("SIGTERM")
    assert launch(WANTED, request) == 75
    assert not arguments.exists()


def test_on_several_hosts_of_a_batch_job_nothing_is_oversubscribed(mpirun, environment):
    arguments = mpirun(f"exit {CONFIRMED}")
    launch(WANTED, StopRequest())
    assert arguments.read_text().startswith("--oversubscribe --with-ft ulfm -np 3 ")
    environment({"SLURM_JOB_NUM_NODES": "2"})
    launch(WANTED, StopRequest())
    assert arguments.read_text().startswith("--with-ft ulfm -np 3 ")


def test_child_processes_do_not_inherit_the_launch_mode():
    program = (
        "from mpi_learn.job.exit_status import LaunchMode as Mode; import os\n"
        f"print(Mode.from_environment(), {VARIABLE!r} in os.environ, Mode.from_environment())"
    )
    environment = os.environ | {VARIABLE: "confirmed"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "confirmed False direct\n"


def test_rank_0_on_another_host_leaves_no_status_file(tmp_path, monkeypatch):
    monkeypatch.setenv(STATUS_FILE, str(tmp_path / "status"))
    assert [LaunchMode.CONFIRMED.report(status, 0) for status in (0, 1, 2, 75)] == [CONFIRMED, 102, 2, 103]
    assert not list(tmp_path.iterdir())


def test_only_a_finished_rank_0_confirms():
    for mode in LaunchMode:
        expected = CONFIRMED if mode is LaunchMode.CONFIRMED else 0
        assert [mode.report(0, 0), mode.report(0, 1), mode.report(75, 0)] == [expected, 0, 75]


@pytest.mark.parametrize("text", ["10m", "0", "-5", "nan", "1e12", ""])
def test_a_time_limit_of_the_start_that_is_no_time_is_a_message(monkeypatch, capsys, text):
    monkeypatch.setenv("MPI_LEARN_START_S", text)
    monkeypatch.setattr(time_limits, "is_launched", lambda: True)
    with pytest.raises(SystemExit) as ended, time_limits.start_limit():
        pass
    assert ended.value.code == UserError.exit_status
    message = capsys.readouterr().err
    assert f"MPI_LEARN_START_S: expected a number of seconds above 0 and below 1e+09, found {text!r}" in message
    assert "→ unset the variable" in message


def test_it_is_unknown_whether_ranks_live_whose_parent_is_gone(environment, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
    monkeypatch.setattr("os.getppid", lambda: 2**22 + 1)  # above the largest number of a process
    assert not all_ranks_live()


def test_ranks_are_not_known_to_live_where_proc_cannot_be_read(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1")
    assert all_ranks_live()

    def fail(path):
        raise PermissionError(path)

    monkeypatch.setattr(Path, "iterdir", fail)
    assert not all_ranks_live()
