"""The training that this experiment repeats on different numbers of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LOSSES = {"keras": "sparse_categorical_crossentropy", "torch": "cross_entropy"}
TOTAL, SHARDS = 96, 12


def training(framework: str, data: Path, **changes: Any) -> dict[str, Any]:
    """A section ``training:`` with shuffling, Adam, clipping, warm-up and a plateau schedule."""
    schedule = {"name": "plateau", "metric": "loss", "patience": 1, "min_delta": 0.1, "factor": 0.5, "warmup_epochs": 1}
    return {
        "model": f"{HERE / 'networks.py'}:build_{framework}",
        "data": {"train": [str(data)], "features": "X", "labels": "y", "validation_fraction": 0.2},
        "loss": LOSSES[framework],
        "metrics": ["accuracy"],
        "optimizer": {"name": "adam", "learning_rate": 0.01, "clip_norm": 1.0, "schedule": schedule},
        "batch_size": {"total": TOTAL, "shards": SHARDS},
        "epochs": 3,
        "seed": 5,
    } | changes
