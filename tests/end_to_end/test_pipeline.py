"""A search whose models are in stages: blocks of folds × replicas × stages, also after a rank is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.end_to_end.searches import await_search, await_trials, ranks_of, start
from tests.mpirun import SURVIVES_LOST_RANKS, patient_s
from tests.optional_packages import needs

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.thorough,
    pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks"),
]
MODELS = Path(__file__).parents[1] / "mpi_learn" / "pipeline"
LOSSES = {"torch": "cross_entropy", "keras": "sparse_categorical_crossentropy"}


def space(folder: Path, framework: str) -> Path:
    random = np.random.default_rng(0)
    x = random.normal(size=(240, 12)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, y=(x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0))
    content = {
        "study": "test",
        "store": "sqlite:///test.db",
        "direction": "minimize",
        "figure_of_merit": "val_loss",
        "space": {"rate": {"type": "real", "low": 0.003, "high": 0.03, "prior": "log-uniform"}},
        "search": {"strategy": "random", "trials": 6, "keep": "best"},
        "blocks": {"size": 8},
        "folds": 2,
        "training": {
            "model": f"{MODELS / f'{framework}_models.py'}:build",
            "data": {"train": [str(folder / "data.npz")], "features": "x", "labels": "y"},
            "loss": LOSSES[framework],
            "optimizer": {"name": "adam", "learning_rate": "$rate"},
            "batch_size": 16,
            "epochs": 4,
            "pipeline": {"stages": 2, "micro_batches": 2},
        },
    }
    (folder / "space.yaml").write_text(yaml.safe_dump(content))
    return folder / "space.yaml"


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("framework", [pytest.param(name, marks=needs(name)) for name in LOSSES])
def test_a_search_of_models_in_stages_survives_a_killed_rank_and_keeps_a_whole_model(framework, query, tmp_path):
    """17 ranks: 2 blocks of 8 = 2 folds × 2 replicas × 2 stages."""
    process = start(17, space(tmp_path, framework), tmp_path)
    try:
        await_trials(process, query, 1)
        running = "SELECT block FROM attempts WHERE finished_at IS NULL"
        await_search(process, lambda: len(query(running)) > 0, "no trial is running")
        (ranks,) = query("SELECT ranks FROM attempts WHERE finished_at IS NULL LIMIT 1")[0]
        killed = max(map(int, str(ranks).replace("[", "").replace("]", "").replace("-", ",").split(",")))
        os.kill(ranks_of(process.pid)[killed], signal.SIGKILL)
        out, _ = process.communicate(timeout=patient_s(400))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, out
    assert query("SELECT state, count(*) FROM trials GROUP BY state") == [("complete", 6)]
    assert query("SELECT count(*) FROM events WHERE kind = 'rank_lost'") == [(1,)]
    (best,) = query("SELECT number FROM trials ORDER BY figure_of_merit LIMIT 1")[0]
    folders = sorted(tmp_path.rglob("model.*"))
    assert len(folders) == 2, folders  # one for each fold
    assert all(f"{best:05d}" in str(file) for file in folders)
    for file in folders:
        assert outputs(framework, file).shape == (5, 3)


def outputs(framework: str, file: Path) -> np.ndarray:
    """What the model in a file computes, read by the framework alone."""
    x = np.ones((5, 12), np.float32)
    if framework == "keras":
        import keras

        return np.asarray(keras.saving.load_model(file)(x))
    import torch

    from tests.mpi_learn.pipeline.torch_models import build

    model = build()
    model.load_state_dict(torch.load(file))
    return model(torch.from_numpy(x)).detach().numpy()
