"""Commands whose output cannot be written: to a full disk, to a reader that has ended, to nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpi_opt.store import Store
from tests.mpi_opt.store.made_up import make_study

SPACE = "objective: any.py:thing\nspace: {x: {type: real, low: 0, high: 2}}\n"
PREPARE = ["mpi_learn", "prepare"]
PLAN = ["mpi_opt", "plan", "space.yaml", "-n", "4"]
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
"""The environment of users: what is printed to a file is written when a buffer is full, or at the end."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "any.py").write_text("def thing(trial): return 0.0\n")
    return tmp_path


def run(command: list[str], folder: Path, stdout: int, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", *command], stdout=stdout, stderr=stderr, text=True, cwd=folder, env=BUFFERED
    )


@pytest.mark.parametrize(
    "command", [PREPARE, ["mpi_learn", "--version"], ["mpi_learn", "train", "--help"], PLAN, [*PLAN, "--slurm"]]
)
def test_full_disk_is_one_message_and_status_1(command, folder):
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        ended = run(command, folder, full)
    finally:
        os.close(full)
    assert ended.returncode == 1
    program = command[0].replace("_", "-")
    assert ended.stderr.splitlines() in (
        [f"{program}: [Errno 28] No space left on device"],
        [f"{program}: [Errno 28] No space left on device: 'standard output'"],
    )


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (PREPARE, 0),
        (["mpi_learn", "train", "--help"], 0),
        (PLAN, 0),
        ([*PLAN, "--slurm"], 0),
        (["mpi_opt", "results", "--store", "unfinished.db", "--finished"], 75),
    ],
)
def test_reader_of_the_output_may_end_before_it_has_read_everything(command, status, folder):
    """As with ``mpi-opt plan space.yaml -n 4 | head -1``."""
    with Store.open(str(folder / "unfinished.db")) as store:
        make_study(store, n_trials=8)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = run(command, folder, writing)
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (status, "")


def test_watching_a_search_ends_when_its_reader_ends(tmp_path):
    with Store.open(str(tmp_path / "running.db")) as store:
        make_study(store, n_trials=8)
    program = "from mpi_opt.cli.commands import study_commands as commands; commands.WATCH_S = 0.01; "
    program += "from mpi_opt.cli.main import main; main(['status', '--store', 'running.db', '--watch'])"
    watching = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=tmp_path, env=BUFFERED)
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.stdout.close()
    try:
        assert watching.wait(timeout=20) == 0
    finally:
        watching.kill()


@pytest.mark.parametrize("command", [["mpi_opt", "results", "--store", "none.db"], ["mpi_opt", "plan", "--nothing"]])
def test_status_of_an_error_does_not_need_its_message(command, folder):
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert run(command, folder, full, full).returncode == 2
    finally:
        os.close(full)


@pytest.mark.parametrize("command", ["mpi_learn prepare", "mpi_opt results --store results.db"])
def test_a_command_needs_no_standard_output(command, tmp_path):
    """Python has no ``sys.stdout`` if it was closed before."""
    with Store.open(str(tmp_path / "results.db")) as store:
        make_study(store, n_trials=8)
    closed = ["sh", "-c", f'exec "$0" -m {command} >&-', sys.executable]
    ended = subprocess.run(closed, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
