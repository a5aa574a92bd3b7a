"""``population`` trains real networks under ``mpirun``: weights pass from block to block, hyperparameters change."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pytest
import yaml

from tests.world import in_world

MODEL = """
import torch

def build_model():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 1)
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
        "options": {"population": 3, "max_budget": 3, "quantile": 0.5},  # odd: two blocks that alternate swap networks
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


@pytest.mark.mpi
def test_a_network_continues_with_weights_of_another_block_and_other_hyperparameters(tmp_path):
    pytest.importorskip("torch")
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
    assert any(blocks[number] != blocks[before] for number, before in continued.items())
