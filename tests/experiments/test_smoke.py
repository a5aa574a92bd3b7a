"""The short forms of the experiments run, and print the tables of their README files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.experiments.running import EXPERIMENTS, run_experiment
from tests.mpirun import mpirun
from tests.optional_packages import needs

ROOT = EXPERIMENTS.parent
pytestmark = pytest.mark.thorough
WITH_MPI = {
    "jets/compare.py": r"\| `particle_net` \| [\d,]+ · [\d,]+ \| 0\.\d{4} ± 0\.\d{4} \|",
    "calorimeter_gan/compare.py": r"\| default \| 1 \| \d\.\d{3} \| \d+\.\d{3} \|",
    "calorimeter_gan/linear_scan.py": r"\b0 +complete +\d",
    "slow_link/search.py": r"\b1 +complete +\d",
    "slow_link/number_of_ranks.py": r"\| clusters \| 2 \| 1 \| 1 \| [\d.]+ \| [\d.]+ \| [\d.]+ \|",
    "mpi_learn/measure.py": r"\| thread \| 1 \| \d+\.\d (.|\n)*\| MPI Learn \| 1 \|(.|\n)*\| allreduce \| 2 \|",
    "pipeline/measure.py": r"\| 4 \| a function per stage (.|\n)*\| 2 \| 2 \| 1f1b \|(.|\n)*\| convolutional \|",
    "pipeline/small_messages.py": r"\| images \| 2 \| int8 \| 1 \| \d\.\d{4} \| \d\.\d{4} \| [+-]0\.\d{4} \|",
    "pipeline/split_by_time.py": r"\| perceptron \| balanced \| 1 \| \d+, \d+ \| [\d.]+ \([\d.]+ to [\d.]+\) \|",
    "pipeline/tensor_parallel.py": r"\| 64 \| .* \| \d\.\de[-+]\d+ \|(.|\n)*for a rank that has left: .*Timed out",
    "width/invariance.py": r"\| torch \| `\{total: 96, shards: 12\}`, .* \| \d\.\de[-+]\d+, \d\.\de[-+]\d+ \|",
    "width/elastic.py": r"all values equal in 1 of 1 pairs",
    "width/real_training.py": r"values equal to \d\.\de[-+]\d+",
    "width/measured_size.py": r"best size chosen in [01] of 1 settings",
    "width/balance.py": r"\| balanced, 12 shards \| \d+ \| \d+ \| \d+% \| \d\.\de[-+]\d+ \|",
    "scaling/measure.py": r"\| PyTorch, 2 ranks \| \d+\.\d \| (.|\n)*\| mlp \| PyTorch, 2 ranks \| [\d,]+ \|",
}
"""Script -> what its output must contain."""
OPTIONAL = {
    "width/invariance.py": ["torch"],
    "width/real_training.py": ["torch"],
    "width/measured_size.py": ["torch"],
    "width/balance.py": ["torch"],
    "slow_link/search.py": ["torch"],
    "slow_link/number_of_ranks.py": ["torch"],
    "jets/compare.py": ["torch", "matplotlib", "pythia8mc"],
    "mpi_learn/measure.py": ["pythia8mc"],
    "pipeline/measure.py": ["torch"],
    "pipeline/small_messages.py": ["torch"],
    "pipeline/split_by_time.py": ["torch"],
    "pipeline/tensor_parallel.py": ["torch"],
    "calorimeter_gan/compare.py": ["matplotlib"],
}
"""Script -> the optional packages that it needs."""
ONCE = {"scaling/measure.py"}
"""Scripts that take minutes, and therefore run as typed only."""


WITHOUT_MPI = {
    "search_quality/crowd.py": r"\| rates5 \| [\d.]+ \| [\d.]+ \| – \| [\d.]+ \|",
    "compression/compression.py": r"\| clusters, outer \| 2-bit \| 15.1 \| 1 \| \d\.\d{4} \| [+-]0\.\d{4} \|",
    "search_quality/fold_noise.py": r"\| branin \| uneven \| (\d\S* ± \d\S* \| ){4}\d\S* ± ",
    "search_quality/beliefs.py": r"\| branin \| wrong \| [\d.e-]+ \| [\d.e-]+ \| \S+ \| \S+ \| \d+ \(\d+ to \d+\) \|",
    "search_quality/compare.py": r"\| bayesian \| 1 \| [\d.]+ \([\d.]+ to [\d.]+\) \|",
    "fold_stopping/measure.py": r"\| bowl, noise 0.1 \| random \| 2 \| \d+% ± \d+% \| .* \| 2 of 2 \|",
    "transfer/measure.py": r"\| shifted by 0.03, 50 times as large \| 1 \| [\d.]+ \([\d.]+ to [\d.]+\) \|",
}


def marked(scripts: Iterable[str]) -> list[Any]:
    """Parameters of a test; the scripts of `OPTIONAL` have the marks of their packages."""
    return [pytest.param(script, marks=[needs(*OPTIONAL[script])] if script in OPTIONAL else []) for script in scripts]


def smoke(script: str) -> str:
    """The output of a script's short form, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(EXPERIMENTS / script), "--smoke"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.mpi
@pytest.mark.parametrize("script", marked(script for script in WITH_MPI if script not in ONCE))
def test_the_short_form_prints_its_table_and_writes_nothing_beside_it(script, tmp_path):
    check_short_form(script, WITH_MPI[script], tmp_path)


@pytest.mark.parametrize("script", WITHOUT_MPI)
def test_the_short_form_without_mpi_prints_its_table_and_writes_nothing_beside_it(script, tmp_path):
    check_short_form(script, WITHOUT_MPI[script], tmp_path)


def check_short_form(script: str, expected: str, cwd: Path) -> None:
    folder = (EXPERIMENTS / script).parent
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*.*")}
    output = run_experiment(script, "--smoke", cwd=cwd)
    assert re.search(expected, output), output
    assert {file: file.stat().st_mtime_ns for file in folder.glob("*.*")} == before
    assert not list(cwd.iterdir())


@pytest.mark.mpi
@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", marked(WITH_MPI))
def test_the_short_form_prints_its_table_as_typed(script):
    output = smoke(script)
    assert re.search(WITH_MPI[script], output), output


@pytest.mark.mpi
def test_the_program_of_dispatch_prints_trials_per_second(tmp_path):
    objective = f"{EXPERIMENTS / 'dispatch' / 'objectives.py'}:nothing"
    (tmp_path / "space.yaml").write_text(
        f"objective: {objective}\nspace: {{a: {{type: real, low: 0, high: 1}}}}\n"
        "search: {strategy: random, trials: 20}\n"
    )
    done = mpirun(3, str(EXPERIMENTS / "dispatch" / "timed.py"), "search", "space.yaml", cwd=tmp_path)
    assert re.search(r"^trials/s \d+$", done.stdout, re.MULTILINE), done.stdout + done.stderr


def test_the_short_form_compares_strategies_on_the_table_of_the_repository(tmp_path):
    output = run_experiment("strategies/compare.py", "--smoke", cwd=tmp_path)
    for name in ("random", "bayesian", "evolutionary", "halving"):
        assert re.search(rf"\| `{name}` \| 2 \|", output), output


@needs("torch")
def test_the_short_form_trains_replicas_of_clusters_in_one_process(tmp_path):
    file = tmp_path / "images.h5"
    with h5py.File(file, "w") as images:
        images["X"], images["y"] = np.zeros((10_300, 28, 28), np.uint8), np.zeros(10_300, np.uint8)
    output = run_experiment("slow_link/replicas.py", "--smoke", "--data", str(file), cwd=tmp_path)
    assert re.search(r"\| `allreduce` \| 256 \| 0.002 \| – \| – \| 1 \| \d\.\d{3} \|", output), output
    assert re.search(r"\| outer 0.7, 0.7 \| 32 \|", output), output
    output = run_experiment("slow_link/replicas.py", "--exact-steps", "--smoke", "--data", str(file), cwd=tmp_path)
    assert re.search(r"\| 28 \| 3 \| 0.006 cosine \| 1 \| \d\.\d{3} \| [+-]\d+\.\d %", output), output
    output = run_experiment("slow_link/replicas.py", "--inner-optimizers", "--smoke", "--data", str(file), cwd=tmp_path)
    assert re.search(r"\| all, Muon \| 128 \| 0.02 \| 5 \| 2 \| 1 \| \d\.\d{3} \|", output), output


def test_every_folder_is_listed_and_has_a_readme():
    listed = (EXPERIMENTS / "README.md").read_text()
    folders = [folder for folder in EXPERIMENTS.iterdir() if list(folder.glob("*.py")) and folder.name != "common"]
    assert folders
    for folder in folders:
        assert (folder / "README.md").is_file()
        assert f"]({folder.name}/README.md)" in listed
