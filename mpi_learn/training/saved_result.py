"""Writes a finished training: the model, its training.yaml and its history."""

from __future__ import annotations

import json
import math
from pathlib import Path

import yaml

from mpi_learn.settings.paths import write_whole
from mpi_learn.training.configuration import TrainingConfiguration
from mpi_learn.training.result import Result


def save_result(folder: Path, configuration: TrainingConfiguration, result: Result) -> Path:
    """Writes ``model.keras`` (or ``model.pt``), ``training.yaml`` and ``history.json``; returns the model's file.

    NaN and infinite values of the history become null, because JSON has no such numbers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = configuration.model_dump(mode="json", exclude_unset=True)
    write_whole(folder / "training.yaml", yaml.safe_dump(content, sort_keys=False))
    columns = {
        name: [value if math.isfinite(value) else None for value in values] for name, values in result.history.items()
    }
    write_whole(folder / "history.json", json.dumps(columns, indent=1))
    return result.save_model(folder / "model")
