"""The options of both programs, and what a command must not import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mpi4py import MPI

from mpi_learn.cli.commands import main as mpi_learn
from mpi_learn.mpi import one_process
from mpi_opt import __version__
from mpi_opt.cli.main import main as mpi_opt
from tests.optional_packages import needs

OBJECTIVE = "def objective(trial):\n    return trial.parameters['x']\n"
STUDY = {
    "store": "sqlite:///one.db",
    "objective": "objective.py:objective",
    "space": {"x": {"type": "real", "low": 0.0, "high": 1.0}},
    "search": {"strategy": "random", "trials": 2},
}
PROGRAMS = {"mpi-opt": mpi_opt, "mpi-learn": mpi_learn}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "objective.py").write_text(OBJECTIVE)
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(STUDY))
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(STUDY | {"direction": "up"}))
    return tmp_path


def status(program: str, *arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        PROGRAMS[program](list(arguments))
    return ended.value.code


@pytest.mark.parametrize("program", PROGRAMS)
def test_version_is_printed(program, capsys):
    assert status(program, "--version") == 0
    assert capsys.readouterr().out == f"{program} {__version__}\n"


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_names_the_options_of_the_program(program, capsys):
    assert status(program, "--help") == 0
    printed = capsys.readouterr().out
    assert "--version" in printed and "--debug" in printed


@pytest.mark.parametrize("arguments", [("--debug", "search", "one.yaml"), ("search", "one.yaml", "--debug")])
def test_search_runs_with_debug_before_and_after_the_command(arguments, folder, capsys):
    assert status("mpi-opt", *arguments) == 0
    assert "done: 2/2 trials" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("mpi-opt", ("search", "bad.yaml")),
        ("mpi-opt", ("check", "bad.yaml")),
        ("mpi-learn", ("train", "bad.yaml")),
        ("mpi-learn", ("trace", "nowhere")),
    ],
)
def test_debug_shows_the_traceback_before_and_after_the_command(program, command, folder, capsys):
    assert status(program, *command) == 2
    assert "Traceback" not in capsys.readouterr().err
    for arguments in (("--debug", *command), (*command, "--debug")):
        assert status(program, *arguments) == 2
        assert "Traceback" in capsys.readouterr().err


CHECK = """
import sys
sys.modules["mpi4py"] = None  # an import of it raises
from mpi_opt.cli.main import run
for file in sys.argv[1:]:
    assert run(["check", file, "--folds", "3"]) == 0, file
assert not [name for name in sys.modules if name.startswith("mpi4py.")]
"""


@needs("keras")
def test_check_builds_model_and_data_without_mpi(folder):
    """As on a laptop where no MPI library is installed."""
    assert status("mpi-opt", "new", "digits") == 0
    command = [sys.executable, "-c", CHECK, "one.yaml", "digits.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": valid") == 2
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert [line for line in lines if line.startswith("one batch of the first fold with ")]
    assert "training 958 samples, 15 steps of 64 per epoch on one rank" in lines  # 80 % of 1,797, in three folds
    assert "validation 480 samples" in lines


def test_substitute_behaves_like_mpi_on_one_rank():
    for module in (MPI, one_process):
        comm = module.COMM_SELF
        answers = [
            (comm.rank, comm.size),
            comm.bcast("a"),
            comm.gather("a"),
            comm.allgather("a"),
            [comm.allreduce(2, op=getattr(module, name)) for name in ("SUM", "MIN", "MAX")],
            [part.allgather(1) for part in (comm.Dup(), comm.Split(0, 0), comm.Split_type(module.COMM_TYPE_SHARED))],
            comm.Barrier(),
        ]
        assert answers == [(0, 1), "a", ["a"], ["a"], [2, 2, 2], [[1]] * 3, None]
