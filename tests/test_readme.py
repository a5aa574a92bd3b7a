"""The examples of the README work."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpi_opt.cli.main import run as run_command
from tests.docs.running import run_command_here
from tests.mpirun import run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_quick_start_holds_exactly_two_commands_and_make_knows_them():
    start = README.partition("## Quick start")[2].partition("## ")[0]
    commands = re.findall(r"^make \w+", start, flags=re.MULTILINE)
    assert commands == ["make demo", "make test"]
    for command in commands:
        subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


def test_the_demo_runs_the_mpirun_that_the_readme_prints():
    printed = next(block.strip() for block in blocks("bash") if block.startswith("mpirun -np 5"))
    dry = subprocess.run(["make", "--dry-run", "demo"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert printed in dry.stdout


@pytest.mark.mpi
def test_an_mpirun_works_as_printed_once_the_environment_is_activated(tmp_path):
    activate = Path(sys.prefix) / "bin" / "activate"
    if "OMPI_ALLOW_RUN_AS_ROOT" not in (activate.read_text() if activate.exists() else ""):
        pytest.skip("this environment was not made by make")
    command = f". {activate} && mpirun -np 5 python -m mpi_opt search {ROOT}/searchspaces/function.yaml --trials 5"
    done = run(["env", "-i", f"HOME={tmp_path}", "PATH=/usr/bin:/bin", "bash", "-c", command], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the best trials:" in done.stdout


@pytest.mark.mpi
def test_the_way_to_ones_own_model_leads_to_a_report(tmp_path):
    block = next(one for one in blocks("bash") if "mpi-opt new" in one)
    first, *commands = (shlex.split(line, comments=True) for line in block.splitlines())
    assert first == ["source", ".venv/bin/activate"]
    printed = [run_command_here(words, tmp_path) for words in commands]
    assert "the best trials:" in "".join(printed)
    assert "<html" in (tmp_path / "tagger.html").read_text()


def test_the_example_is_valid(tmp_path, monkeypatch, capsys):
    (tmp_path / "jets.yaml").write_text(blocks("yaml")[0])
    (tmp_path / "jets.py").write_text(blocks("python")[0])
    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "data" / "jets_1.h5", "w") as file:
        file["X"], file["y"] = np.zeros((40, 6), "f4"), np.arange(40) % 5
    monkeypatch.chdir(tmp_path)
    plan = run_command(["search", "jets.yaml"])
    assert plan.space["momentum"].when == {"optimizer": "sgd"}, capsys.readouterr().err
    assert run_command(["plan", "jets.yaml", "-n", "41"]) == 0
    assert "10 blocks of 4 ranks" in capsys.readouterr().out


def test_the_python_example_finds_the_minimum(tmp_path):
    (tmp_path / "example.py").write_text(blocks("python")[1])
    done = run([sys.executable, "example.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 0.01


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target
