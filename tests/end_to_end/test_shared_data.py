"""The blocks of a search share one copy of the samples in memory."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml

from tests.mpirun import mpirun
from tests.optional_packages import needs

N_SAMPLES = 40_000

PROGRAM = '''
import os
import time
from pathlib import Path

from torch import nn


def build(units):
    return nn.Sequential(nn.Linear(784, units), nn.Linear(units, 2))


def shared(result):
    """Appends the anonymous file of each large mapping to mappings.txt; waits for the other process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, _, _, device, file, *_ = line.split()
        first, end = (int(address, 16) for address in addresses.split("-"))
        if "/memfd:" in line and end - first >= 40_000 * 784:
            with open("mappings.txt", "a") as mappings:
                mappings.write(f"{os.getpid()} {device}:{file}\\n")
    deadline = time.monotonic() + 100
    while len({line.split()[0] for line in open("mappings.txt")}) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return 0.0
'''


@needs("torch")
@pytest.mark.mpi
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux lists the mappings of a process")
def test_all_blocks_of_a_host_and_all_their_folds_share_one_copy_of_the_samples(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"], file["y"] = np.ones((N_SAMPLES, 784), np.uint8), np.arange(N_SAMPLES) % 2
    (tmp_path / "program.py").write_text(PROGRAM)
    content = {
        "study": "test",
        "store": "sqlite:///test.db",
        "space": {"units": {"type": "integer", "low": 1, "high": 8}},
        "figure_of_merit": "program.py:shared",
        "search": {"strategy": "random", "trials": 4, "seed": 3},
        "folds": 2,
        "training": {
            "model": "program.py:build",
            "data": {"train": ["a.h5"], "features": "X", "labels": "y"},
            "loss": "cross_entropy",
            "batch_size": 4000,
        },
    }
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(content))
    done = mpirun(3, "-m", "mpi_opt", "search", "space.yaml", cwd=tmp_path, timeout=150)
    assert done.returncode == 0, done.stderr
    mappings = {tuple(line.split()) for line in (tmp_path / "mappings.txt").read_text().splitlines()}
    assert len({process for process, _ in mappings}) == 2
    assert len({file for _, file in mappings}) == 1
