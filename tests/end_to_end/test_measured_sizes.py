"""Trainings are measured on the ranks of a job; a search continues with the size of blocks that it has measured."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml

from tests.mpirun import mpirun, run
from tests.optional_packages import needs

MODEL = """
from torch import nn

def build(units):
    return nn.Sequential(nn.Linear(8, units), nn.Linear(units, 2))
"""

pytestmark = [pytest.mark.mpi, needs("torch")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study of two trials of a tiny model."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"], file["y"] = np.ones((256, 8), np.float32), np.arange(256) % 2
    (tmp_path / "model.py").write_text(MODEL)
    content = {
        "study": "test",
        "store": "sqlite:///test.db",
        "space": {"units": {"type": "integer", "low": 2, "high": 8}},
        "search": {"strategy": "random", "trials": 2, "seed": 3},
        "blocks": {"size": "measured"},
        "training": {
            "model": "model.py:build",
            "data": {"train": ["a.h5"], "validation_fraction": 0.25, "features": "X", "labels": "y"},
            "loss": "cross_entropy",
            "batch_size": {"total": 32},
            "epochs": 1,
        },
    }
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(content))
    return tmp_path


def test_plan_measures_on_ranks_that_it_starts_and_extrapolates_to_more(folder):
    command = [sys.executable, "-m", "mpi_opt", "plan", "space.yaml", "-n", "9", "--measure", "--ranks", "3"]
    done = run([*command, "--html", "page.html"], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "2 trials on 9 ranks; 2 configurations measured on 1, 2 ranks" in done.stdout
    # size, blocks, trial, unit, speed-up, efficiency, communication, waiting
    rows = re.findall(r"^ +(\d+\*?) +(\d+) +\S+ \S+ +([\d.]+) +\d+% +(\d+)% +(\d+)%", done.stdout, re.MULTILINE)
    assert [row[:2] for row in rows] == [("1", "8"), ("2", "4"), ("4*", "2"), ("8*", "1")]
    assert rows[0][2:] == ("1.00", "0", "0")  # one rank exchanges nothing
    assert int(rows[1][3]) + int(rows[1][4]) > 0  # two ranks do
    assert not (folder / "test.db").exists()
    assert "4*" in (folder / "page.html").read_text()


def test_a_search_measures_the_size_of_its_blocks_and_continues_with_it(folder, query):
    done = mpirun(3, "-m", "mpi_opt", "search", "space.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    ((event,),) = query("SELECT detail FROM events WHERE kind = 'size_measured'")
    assert event in done.stdout
    size = int(event.split()[0])
    assert {row.count(",") + 1 for (row,) in query("SELECT ranks FROM attempts")} == {size}
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(2,)]  # measured points are no trials
    done = mpirun(3, "-m", "mpi_opt", "search", "space.yaml", "--trials", "4", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert f"measured before: {event}" in done.stdout
    assert query("SELECT count(*) FROM events WHERE kind = 'size_measured'") == [(1,)]
