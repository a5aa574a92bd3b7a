"""The blocks of a search hold their samples in one memory together."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml

from tests.mpirun import mpirun

N_SAMPLES = 40_000

PROGRAM = '''
from pathlib import Path

from torch import nn


def build(units):
    return nn.Sequential(nn.Linear(784, units), nn.Linear(units, 2))


def shared(result):
    """This process's part of the memory that it shares, as a multiple of the samples'."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("Pss_Shmem:")]
    return 1024 * int(line.split()[1]) / (40_000 * 784)
'''


@pytest.mark.mpi
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux says what memory is shared")
def test_all_blocks_of_a_host_and_all_their_folds_share_one_copy_of_the_samples(tmp_path, query):
    pytest.importorskip("torch")
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
    last = [value for (value,) in query("SELECT figure_of_merit FROM trials ORDER BY finished_at")][-2:]
    assert len(last) == 2
    assert max(last) < 0.75  # of two blocks, each one with a copy of its own would say 1.0 or more
