"""``population`` trains real networks under ``mpirun``: weights pass from block to block, hyperparameters change."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pytest
import yaml

from tests.optional_packages import needs
from tests.world import in_world

MODEL = """
import os
import time
from collections import Counter
from pathlib import Path

import torch

BUILDS = Path(__file__).with_name("builds")  # a line with the process for each model that is built: first the rehearsal

def build_model():
    with BUILDS.open("a") as file:
        file.write(f"{os.getpid()}\\n")
    until = time.monotonic() + 60
    while must_wait(str(os.getpid())) and time.monotonic() < until:
        time.sleep(0.01)
    torch.manual_seed(0)
    return torch.nn.Linear(4, 1)

def must_wait(process):
    processes = BUILDS.read_text().split()
    n, first = Counter(processes), processes[0]
    if process == first:  # its fourth trial waits for the first trial of the other block
        return n[process] == 5 and n.total() - n[first] < 2
    return n[process] == 1 and n[first] < 5
"""
STUDY = {
    "study": "test",
    "store": "sqlite:///test.db",
    "direction": "minimize",
    "figure_of_merit": "val_loss",
    "space": {"rate": {"type": "real", "low": 1e-4, "high": 0.3, "prior": "log-uniform"}},
    "search": {
        "strategy": "population",
        "trials": 9,
        "seed": 1,
        "options": {"population": 3, "max_budget": 3, "quantile": 0.5},
    },
    "training": {
        "model": "model.py:build_model",
        "data": {"train": ["data.npz"], "validation_fraction": 0.25, "features": "X", "labels": "y"},
        "loss": "mse",
        "optimizer": {"name": "sgd", "learning_rate": "$rate"},
        "batch_size": 16,
        "epochs": 3,
    },
}


@needs("torch")
@pytest.mark.mpi
def test_a_network_continues_with_weights_of_another_block_and_other_hyperparameters(tmp_path):
    """One block runs the first trials of all networks, so that the first trial of the other block continues one."""
    x = np.random.default_rng(0).standard_normal((200, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", X=x, y=(x @ [1.0, -2.0, 0.5, 3.0])[:, None].astype(np.float32))
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(STUDY))
    done = in_world(3, "-m", "mpi_opt", "search", "space.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(tmp_path / "test.db") as database:
        query = "SELECT number, parameters, budget, resume_from FROM trials"
        trials = {number: rest for number, *rest in database.execute(query)}
        blocks = dict(database.execute("SELECT number, block FROM attempts JOIN trials ON trials.id = trial_id"))
        curves: dict[int, list[float]] = {}
        query = "SELECT number, value FROM metrics JOIN trials ON trials.id = trial_id WHERE name = 'val_loss'"
        for number, value in database.execute(f"{query} ORDER BY epoch"):
            curves.setdefault(number, []).append(value)
    assert sorted(budget for _, budget, _ in trials.values()) == [1] * 3 + [2] * 3 + [3] * 3
    continued = {number: before for number, (_, _, before) in trials.items() if before is not None}
    for number, before in continued.items():
        n_before = int(trials[before][1])
        assert curves[number][:n_before] == curves[before]  # taken over, not trained again
        assert len(curves[number]) == n_before + 1
    rates = {number: json.loads(parameters)["rate"] for number, (parameters, _, _) in trials.items()}
    assert any(rates[number] != rates[before] for number, before in continued.items())
    assert len({blocks[number] for number in range(3)}) == 1
    assert any(blocks[number] != blocks[before] for number, before in continued.items())
