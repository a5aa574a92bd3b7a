"""When a job is started again, on which hosts, and when it is given up. ``mpirun`` is a script."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from mpi4py import MPI
from typer import Exit

from mpi_learn.cli import commands
from mpi_learn.cli.commands import _latest_checkpoint
from mpi_learn.cli.error_report import reported
from mpi_learn.errors import ConfigurationError, SavingError
from mpi_learn.job import exit_status, restarts, time_limits
from mpi_learn.job import launch as launching
from mpi_learn.job import restarts as module
from mpi_learn.job.exit_status import CONFIRMED, ELSEWHERE, LOST, STATUS_FILE, LaunchMode, lost
from mpi_learn.job.hosts import Host, answering, hostfile_text, hosts_of_slurm, n_ranks, read_hostfile
from mpi_learn.job.launch import Launch, check_launch_options, launch, without_launch_options
from mpi_learn.job.restarts import JobEnd, LifeWatch, Restarts, WorkDone, kill_all_with, run_with_restarts
from mpi_learn.job.started_by import REASON_VARIABLE
from mpi_learn.job.stop_request import StopRequest
from mpi_learn.mpi.communicators import agreed_errors
from mpi_opt.cli.main import _guarded
from mpi_opt.errors import RanksLost, SearchFailed
from mpi_opt.store.errors import StoreNotReadyError
from tests.mpirun import patient_s


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "POLL_S", 0.001)


def run(ends: list[JobEnd], done: list[int], most: int = 10, request: StopRequest | None = None) -> tuple[int, list]:
    """Runs a job that ends as `ends` says, and that has done `done` when it has ended; returns status and reasons."""
    reasons, progress = [], iter(done)

    def once(reason: str) -> JobEnd:
        reasons.append(reason)
        return ends[len(reasons) - 1]

    recorded = iter(range(100))  # each start records its restart
    restarts = Restarts(
        most,
        lambda: WorkDone(value := next(progress), f"{value} trials ended so far"),
        n_recorded=lambda: next(recorded),
    )
    return run_with_restarts(restarts, "mpi-opt", once, request or StopRequest()), reasons


LOSS, DONE = JobEnd(75, "rank 0 was lost"), JobEnd(0)


def test_a_job_is_started_again_until_its_work_is_done(capfd):
    assert run([LOSS, JobEnd(1, "a host was lost"), DONE], [3, 5]) == (0, ["", "rank 0 was lost", "a host was lost"])
    said = capfd.readouterr().err
    assert "mpi-opt: rank 0 was lost; 3 trials ended so far; restart 1 of 10 in" in said
    assert "mpi-opt: 2 restarts:\n  1. rank 0 was lost\n  2. a host was lost\n" in said


@pytest.mark.parametrize("end", [DONE, JobEnd(1), JobEnd(2), JobEnd(75), JobEnd(130)])
def test_a_job_that_ends_in_order_or_fails_is_not_started_again(end, capfd):
    assert run([end], []) == (end.status, [""])
    assert capfd.readouterr().err == ""


def test_a_job_without_progress_is_given_up_after_five_restarts_in_a_row(capfd, monkeypatch):
    monkeypatch.setattr(module, "_pause", lambda seconds, request: None)
    status, reasons = run([LOSS] * 20, [7] * 20)
    assert (status, len(reasons)) == (75, 6)
    said = capfd.readouterr().err
    assert "given up after 5 restarts: 5 restarts in a row without progress" in said
    assert said.count("rank 0 was lost") == 5 + 6  # each when it happens, and all in the summary
    _, reasons = run([LOSS] * 20, [1, 1, 1, 2, 2, 2, 2, 2, 2, 9])
    assert len(reasons) == 9


def test_a_start_receives_the_reasons_that_earlier_ones_have_not_recorded():
    """Two starts are lost before they open the store; before the fourth, the store cannot be read."""
    received, recorded = [], iter([7, 7, None, 10])
    losses = iter([JobEnd(75, "a"), JobEnd(75, "b"), JobEnd(75, "c"), JobEnd(75, "d"), DONE])

    def once(reason: str) -> JobEnd:
        received.append(reason)
        return next(losses)

    done = iter(range(10))
    again = Restarts(10, lambda: WorkDone(next(done), "some"), n_recorded=lambda: next(recorded))
    assert run_with_restarts(again, "mpi-opt", once, StopRequest()) == 0
    assert received == ["", "a", "a\nb", "a\nb\nc", "d"]


def test_nothing_is_read_before_a_restart_is_needed():
    """It would delay the start of each job."""
    again = Restarts(10, lambda: pytest.fail("read"), n_recorded=lambda: pytest.fail("read"))
    assert run_with_restarts(again, "mpi-opt", lambda reason: DONE, StopRequest()) == 0


@pytest.mark.parametrize(("each_s", "n_starts"), [(599.0, 6), (601.0, 11)])
def test_a_start_that_took_long_has_made_progress(each_s, n_starts, clock, monkeypatch):
    """Trials may take longer than that, and continue from their checkpoints."""
    monkeypatch.setattr(module, "_pause", lambda seconds, request: None)
    starts = []

    def once(reason: str) -> JobEnd:
        starts.append(reason)
        clock[0] += each_s
        return LOSS

    again = Restarts(10, lambda: WorkDone(7, "7 trials ended so far"), progresses_after_s=600.0)
    assert run_with_restarts(again, "mpi-opt", once, StopRequest()) == 75
    assert len(starts) == n_starts


def test_restarts_are_limited(capfd):
    status, reasons = run([LOSS] * 20, list(range(20)), most=5)
    assert (status, len(reasons)) == (75, 6)
    assert "given up after 5 restarts: no restart is left" in capfd.readouterr().err
    assert run([LOSS], [1], most=0) == (75, [""])


def test_pauses_grow_without_progress_and_end_with_a_request(monkeypatch):
    slept, request = [], StopRequest()
    monkeypatch.setattr(module, "_pause", lambda seconds, request: slept.append(seconds))
    run([LOSS] * 20, [7, 7, 7, 8, 8, 8, 8, 8, 8])
    assert slept == pytest.approx([0.01, 0.04, 0.16, 0.01, 0.04, 0.16, 0.64, 2.56])
    monkeypatch.undo()
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 1000.0)
    threading.Timer(0.05, lambda: request.ask("SIGTERM")).start()
    assert run([LOSS] * 2, [1], request=request) == (75, [""])


# the job itself


@pytest.fixture
def mpirun(tmp_path, monkeypatch):
    """Replaces ``mpirun`` by a script, which appends its arguments to a file; returns that file."""

    def replace(does: str, version: str = "5.0.11") -> Path:
        script = tmp_path / "mpirun"
        lines = ["#!/bin/bash", f'[ "$1" = --version ] && echo "mpirun (Open MPI) {version}" && exit']
        script.write_text("\n".join([*lines, f'echo "$@" >> {tmp_path}/arguments', does, ""]))
        script.chmod(0o755)
        monkeypatch.setattr(launching, "find_mpirun", lambda: str(script))
        return tmp_path / "arguments"

    return replace


def launched(most: int = 10, is_alive=lambda: True, n: int = 4, *, rank_0_trains: bool = False, **options) -> int:
    counts = iter(range(100))
    restarts = Restarts(most, lambda: WorkDone(next(counts), "some"), is_alive, rank_0_trains=rank_0_trains)
    return launch(Launch(["mpi_opt", "search", "space.yaml"], n, restarts=restarts, **options), StopRequest())


FIRST = 'if [ -z "$MPI_LEARN_RESTART" ]; then {}; fi; exit {}'
"""Does something in the first start only."""


@pytest.mark.parametrize(
    "how",
    ["exit 0", "exit 75", "exit 1", "exit 213", "kill -KILL $$", f'echo {LOST} > "${STATUS_FILE}"; exit 1'],
    ids=["daemon", "rank 0", "abort", "mpirun failed", "mpirun killed", "all ranks"],
)
def test_a_job_that_has_lost_a_process_is_started_again(mpirun, how):
    arguments = mpirun(FIRST.format(how, CONFIRMED))
    assert launched() == 0
    assert len(arguments.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("exit 0", "mpirun ended before its rank 0: a rank, a node or one of mpirun's daemons was lost"),
        ("exit 75", "rank 0 was lost"),
        ("kill -KILL $$", "mpirun was killed by SIGKILL"),
    ],
)
def test_without_restarts_a_loss_is_printed(mpirun, how, text, capfd):
    mpirun(how)
    assert launch(Launch(["mpi_opt", "search", "space.yaml"], 4), StopRequest()) != 0
    assert f"{text}; the same command continues" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("exit 2", 2),
        (f'echo 1 > "${STATUS_FILE}"; exit 1', 1),
        (f'echo 75 > "${STATUS_FILE}"; exit 75', 75),
        (f"exit {ELSEWHERE[1]}", 1),
        (f"exit {ELSEWHERE[75]}", 75),
    ],
    ids=["invalid", "failed", "time limit", "failed on another host", "time limit on another host"],
)
def test_a_job_whose_rank_0_has_decided_to_end_is_not_started_again(mpirun, how, status):
    arguments = mpirun(FIRST.format(how, CONFIRMED))
    assert launched() == status
    assert len(arguments.read_text().splitlines()) == 1


def test_a_restart_receives_its_reason(mpirun, tmp_path):
    mpirun(f'echo "[$MPI_LEARN_RESTART]" >> {tmp_path}/reasons; {FIRST.format("exit 75", CONFIRMED)}')
    assert launched() == 0
    assert (tmp_path / "reasons").read_text() == "[]\n[rank 0 was lost]\n"
    assert REASON_VARIABLE == "MPI_LEARN_RESTART"


def test_the_reason_of_a_restart_is_the_temporary_error_of_rank_0(mpirun, tmp_path, monkeypatch):
    monkeypatch.setattr(exit_status, "_loss", "")
    path = tmp_path / "status"
    path.touch()
    monkeypatch.setenv(STATUS_FILE, str(path))
    assert LaunchMode.CONFIRMED.report(lost(OSError("é.db: the disk is full\udcff\n  → free some space")), 0) == LOST
    mpirun(f'echo "[$MPI_LEARN_RESTART]" >> {tmp_path}/reasons; '
           + FIRST.format(f'cp {path} "${STATUS_FILE}"; exit {LOST}', CONFIRMED))  # fmt: skip
    assert launched() == 0
    assert (tmp_path / "reasons").read_text() == "[]\n[é.db: the disk is full?]\n"


SILENT = f'touch "${STATUS_FILE}"; sleep 1000 & echo $! > {{}}; wait'


def test_a_job_without_signs_of_life_is_killed_and_started_again(mpirun, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("MPI_LEARN_SILENCE_S", "0.2")
    monkeypatch.setattr(launching, "WATCH_S", 0.05)
    mpirun(FIRST.format(SILENT.format(tmp_path / "left"), CONFIRMED))
    assert launched() == 0
    assert "rank 0 gave no sign of life for 0.2 s" in capfd.readouterr().err
    assert has_ended(int((tmp_path / "left").read_text()))


@pytest.mark.parametrize(("n", "rank_0_trains", "limit_s"), [(4, False, 0.2), (4, True, 0.3), (1, False, 0.3)])
def test_rank_0_may_be_silent_for_longer_where_it_runs_user_code(
    n, rank_0_trains, limit_s, mpirun, tmp_path, monkeypatch, capfd
):
    """User code may hold the interpreter lock, in which there is no sign of life."""
    monkeypatch.setattr(time_limits, "SILENCE_S", 0.2)
    monkeypatch.setattr(time_limits, "USER_CODE_SILENCE_S", 0.3)
    monkeypatch.setattr(launching, "WATCH_S", 0.05)
    mpirun(FIRST.format(SILENT.format(tmp_path / "left"), CONFIRMED))
    assert launched(n=n, rank_0_trains=rank_0_trains) == 0
    assert f"rank 0 gave no sign of life for {limit_s:g} s" in capfd.readouterr().err


def test_rank_0_of_a_training_trains(tmp_path, monkeypatch):
    wanted = []
    monkeypatch.setattr(commands, "launch", lambda job, request: wanted.append(job) or 0)
    with pytest.raises(SystemExit) as ended:
        commands.main(["train", str(tmp_path / "t.yaml"), "-n", "4", "--restarts", "3"])
    assert ended.value.code == 0
    assert wanted[0].restarts.rank_0_trains


def test_processes_that_outlive_their_mpirun_are_killed_before_the_restart(mpirun, tmp_path):
    mpirun(FIRST.format(f"sleep 1000 & echo $! > {tmp_path / 'left'}; kill -KILL $$", CONFIRMED))
    assert launched() == 0
    assert has_ended(int((tmp_path / "left").read_text()))


def has_ended(process: int) -> bool:
    until = time.monotonic() + patient_s(5)
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_only_processes_of_the_job_are_killed():
    processes = [
        subprocess.Popen(["sleep", "1000"], env=os.environ | {"JOB": job}) for job in ("mine", "mine", "mine too")
    ]
    kill_all_with("JOB", "mine")
    assert [process.wait(patient_s(5)) for process in processes[:2]] == [-signal.SIGKILL] * 2
    assert processes[2].poll() is None
    processes[2].kill()
    processes[2].wait()


@pytest.fixture
def clock(monkeypatch):
    """The present time of the watch, in seconds; a test sets its first entry."""
    now = [100.0]
    monkeypatch.setattr(restarts.time, "monotonic", lambda: now[0])
    return now


def trouble_after(watch: LifeWatch, clock: list[float], seconds: int) -> str:
    """Checks the job every second; returns the first trouble."""
    for _ in range(seconds):
        clock[0] += 1
        if found := watch.trouble():
            return found
    return ""


def test_signs_of_life_have_a_limit_at_the_start_and_between_them(clock, tmp_path):
    path = tmp_path / "status"
    path.touch()
    watch = LifeWatch(path, 600.0, 60.0)
    assert trouble_after(watch, clock, 600) == ""
    assert trouble_after(watch, clock, 1) == "the job did not begin within 600 s"
    os.utime(path, (5, 5))
    assert trouble_after(watch, clock, 61) == ""
    assert trouble_after(watch, clock, 1) == "rank 0 gave no sign of life for 60 s"
    os.utime(path, (6, 6))
    assert watch.trouble() == ""


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_job_that_was_stopped_together_with_this_process_is_not_ended(has_begun, clock, tmp_path):
    path = tmp_path / "status"
    path.touch()
    watch = LifeWatch(path, 60.0, 60.0)
    if has_begun:
        os.utime(path, (5, 5))
    assert trouble_after(watch, clock, 30) == ""
    clock[0] += 3600
    assert watch.trouble() == ""
    assert trouble_after(watch, clock, 25) == ""
    assert trouble_after(watch, clock, 10) != "", "the time before the stop counts"


@pytest.mark.parametrize(
    ("alive_s", "unknown_s", "ends_s", "text"),
    [
        ([], [], 601, "the job did not begin within 600 s"),
        (range(540, 645), [], 706, "rank 0 gave no sign of life for 60 s"),  # the last one is seen at 645 s
        ([], range(1200), 1200, ""),
        ([30], range(60, 91), 151, "rank 0 gave no sign of life for 60 s"),
        ([30, 89, 150], [], 211, "rank 0 gave no sign of life for 60 s"),
    ],
)
def test_rank_0_on_another_host_has_the_same_limits(clock, alive_s, unknown_s, ends_s, text, tmp_path):
    """It is asked every 3 s; `alive_s` and `unknown_s` are the seconds at which there is a new sign, or no answer."""
    path, asked_s = tmp_path / "status", [-1.0]

    def is_alive() -> bool | None:
        at_s, before_s = clock[0] - 100, asked_s[0]
        asked_s[0] = at_s
        return None if at_s in unknown_s else before_s < 0 or any(before_s < one <= at_s for one in alive_s)

    path.touch()
    watch = LifeWatch(path, 600.0, 60.0, is_alive)
    for _ in range(1200):
        clock[0] += 1
        if found := watch.trouble():
            break
    assert (found, clock[0] - 100) == (text, ends_s)


def test_without_its_file_a_job_counts_as_alive(clock, tmp_path):
    path = tmp_path / "status"
    path.touch()
    watch = LifeWatch(path, 600.0, 60.0, lambda: False)
    path.unlink()
    assert trouble_after(watch, clock, 700) == ""


def test_an_mpirun_that_does_not_end_after_its_rank_0_is_noticed(clock, tmp_path):
    path = tmp_path / "status"
    path.touch()
    watch = LifeWatch(path, 600.0, 60.0, lambda: True)
    path.write_text("0")
    assert trouble_after(watch, clock, 76) == ""
    assert trouble_after(watch, clock, 1) == "mpirun did not end after its rank 0"


def test_rank_0_of_a_job_gives_signs_of_life(tmp_path):
    path = tmp_path / "status"
    path.touch()
    os.utime(path, (1, 1))
    program = "from mpi_learn.job.time_limits import start_limit\nwith start_limit(): pass\ninput()"
    rank_0 = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", STATUS_FILE: str(path)}
    for more, gives in (({"OMPI_COMM_WORLD_RANK": "1"}, False), ({}, True)):
        with subprocess.Popen(
            [sys.executable, "-c", program], env=os.environ | rank_0 | more, stdin=subprocess.PIPE
        ) as process:
            until = time.monotonic() + (patient_s(20) if gives else 1.0)
            while path.stat().st_mtime < 2 and time.monotonic() < until:
                time.sleep(0.01)
            process.communicate(b"\n")
        assert (path.stat().st_mtime > 2) is gives


@pytest.mark.parametrize(
    ("error", "reason", "status"),
    [
        (RanksLost("no rank is left"), "", LOST),
        (StoreNotReadyError("locked"), "rank 0 was lost", LOST),
        (SearchFailed("all trials have failed"), "", 1),
        (RanksLost("no rank is left"), None, 75),
        (StoreNotReadyError("locked"), None, 1),
    ],
)
def test_a_temporary_error_of_a_search_with_restarts_is_a_reason_for_one(monkeypatch, error, reason, status, capsys):
    monkeypatch.setattr(exit_status, "_loss", "")

    def fail() -> None:
        raise error

    monkeypatch.setattr("mpi_learn.job.started_by._reason", reason)
    assert _guarded(fail, debug=False) == status
    assert str(error) in capsys.readouterr().err
    assert exit_status._loss == ("locked" if status == LOST and isinstance(error, StoreNotReadyError) else "")


@pytest.mark.parametrize(
    ("number", "reason", "status"), [(errno.ENOSPC, "", LOST), (errno.ENOSPC, None, 1), (errno.EACCES, "", 1)]
)
def test_a_training_with_restarts_is_started_again_on_a_full_disk(monkeypatch, number, reason, status):
    monkeypatch.setattr(exit_status, "_loss", "")
    monkeypatch.setattr("mpi_learn.job.started_by._reason", reason)
    with pytest.raises(Exit) as ended, reported(None, debug=False), agreed_errors(MPI.COMM_SELF):
        raise SavingError("ck: the checkpoint cannot be written\nsee above") from OSError(number, os.strerror(number))
    assert ended.value.exit_code == status
    assert exit_status._loss == ("ck: the checkpoint cannot be written" if status == LOST else "")


@pytest.mark.parametrize(
    ("reason", "name", "status"),
    [("", "SIGTERM", LOST), ("", "SIGUSR1", 75), ("", "SIGINT", 130), (None, "SIGTERM", 75)],
)
def test_a_signal_of_mpirun_is_a_reason_for_a_restart_and_one_of_the_user_is_not(monkeypatch, reason, name, status):
    monkeypatch.setattr("mpi_learn.job.started_by._reason", reason)
    request = StopRequest()
    request.ask(name)
    assert request.status == status


# hosts


def test_hosts_are_read_from_a_host_file_and_from_slurm(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# ours\nnode1 slots=4 max_slots=8\nnode2:2\n\nnode3\nnode4\nnode4\nfd00::2 slots=3\nfd00::3\n")
    named = [Host("node1", 4), Host("node2", 2), Host("node3"), Host("node4", 2)]
    assert read_hostfile(file) == [*named, Host("fd00::2", 3), Host("fd00::3")]
    slurm = {"SLURM_JOB_NODELIST": "n[1-3,7]", "SLURM_TASKS_PER_NODE": "4(x3),1"}
    names = ["n1", "n2", "n3", "n7"]
    assert hosts_of_slurm(slurm, lambda text: names) == [Host("n1", 4), Host("n2", 4), Host("n3", 4), Host("n7", 1)]
    assert hosts_of_slurm(slurm | {"SLURM_TASKS_PER_NODE": ""}, lambda text: names) == [Host(name) for name in names]
    assert hosts_of_slurm({}) == []
    for bad in ("", "# nothing\n"):
        file.write_text(bad)
        with pytest.raises(ConfigurationError, match="names no host"):
            read_hostfile(file)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_hostfile(tmp_path / "absent")


def test_ranks_of_hosts_that_are_left_out_are_left_out():
    hosts = [Host("a", 4), Host("b", 4), Host("c", 2)]
    assert answering(hosts, lambda name: name != "b") == [hosts[0], hosts[2]]
    assert [host.name for host in answering([Host("localhost"), Host("far")], lambda name: False)] == ["localhost"]
    assert n_ranks(10, hosts, [hosts[0], hosts[2]]) == 6
    assert n_ranks(5, hosts, [hosts[0], hosts[2]]) == 5
    unknown = [Host("a"), Host("b"), Host("c")]
    assert n_ranks(9, unknown, unknown[:2]) == 6
    assert n_ranks(2, [Host("a"), Host("b"), Host("c")], unknown[:1]) == 1
    assert hostfile_text([Host("a", 4), Host("b")]) == "a slots=4\nb\n"


def test_a_restart_says_that_no_host_answers_and_tries_all_of_them(mpirun, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", "false")
    hostfile = tmp_path / "hosts"
    hostfile.write_text("one\ntwo\n")
    arguments = mpirun(FIRST.format("exit 0", CONFIRMED))
    assert launched(hostfile=hostfile) == 0
    assert all(
        line.startswith(f"--with-ft ulfm --hostfile {hostfile} -np 4 ") for line in arguments.read_text().splitlines()
    )
    assert "one, two: no answer; no other host is known" in capfd.readouterr().err


def test_this_host_is_not_asked_whatever_the_host_file_calls_it():
    here = socket.gethostname()
    own = ["localhost", here, here.partition(".")[0], f"{here.partition('.')[0]}.example.org", "127.0.0.1"]
    others = ["192.0.2.99", "nowhere.invalid", f"{here}0", "x" * 80, ".."]
    hosts = [Host(name) for name in own + others]
    assert [host.name for host in answering(hosts, lambda name: False)] == own


def test_a_restart_leaves_out_the_host_that_does_not_answer(mpirun, tmp_path, monkeypatch, capfd):
    """The program that runs commands on other hosts is a script that fails for one of them."""
    agent = tmp_path / "agent"
    agent.write_text("#!/bin/bash\n[ $1 != dead ]\n")
    agent.chmod(0o755)
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(agent))
    hostfile = tmp_path / "hosts"
    hostfile.write_text("one slots=1\ndead slots=2\ntwo slots=1\n")
    arguments = mpirun(f'cp "$4" {tmp_path}/chosen; {FIRST.format("exit 0", CONFIRMED)}')
    assert launched(hostfile=hostfile) == 0
    first, second = arguments.read_text().splitlines()
    assert first.startswith(f"--with-ft ulfm --hostfile {hostfile} -np 4 ")
    assert second.startswith("--with-ft ulfm --hostfile ") and " -np 2 " in second
    assert (tmp_path / "chosen").read_text() == "one slots=1\ntwo slots=1\n"
    assert "dead: no answer; the job continues on 2 ranks without it" in capfd.readouterr().err


# the command line


def test_options_of_the_launcher_are_not_passed_on():
    given = ["search", "s.yaml", "-n", "4", "--restarts", "3", "--trials=9", "--restarts=3", "--hostfile", "h", "-n4"]
    assert without_launch_options(given) == ["search", "s.yaml", "--trials=9"]
    for option in ({"n_restarts": 0, "hostfile": None}, {"n_restarts": None, "hostfile": Path("h")}):
        with pytest.raises(ConfigurationError, match="only together with -n"):
            check_launch_options(**option)
    check_launch_options(None, None)


def test_the_progress_of_a_training_is_its_latest_checkpoint(tmp_path):
    training = "model: m.py:build\nloss: mse\ndata: {train: [d.h5], features: X, labels: y}\n"
    (tmp_path / "training.yaml").write_text(training)
    assert _latest_checkpoint(tmp_path / "training.yaml").measure == 0
    (tmp_path / "training.yaml").write_text(f"{training}checkpoint: {{path: kept}}\n")
    assert _latest_checkpoint(tmp_path / "training.yaml").measure == 0
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "checkpoint.npz").touch()
    os.utime(tmp_path / "kept" / "checkpoint.npz", (5, 5))
    assert _latest_checkpoint(tmp_path / "training.yaml").measure == 5 * 10**9
