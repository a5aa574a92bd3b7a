"""Writes a finished training where it can be used again: the model, its training.yaml, its history."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import yaml

from mpi_learn.configuration import TrainingConfiguration
from mpi_learn.errors import ConfigurationError
from mpi_learn.result import Result


def make_folder(folder: Path, key: str) -> None:
    """Makes a folder and tries to write there: said before a training, not after it.

    Raises:
        ConfigurationError: It cannot be made or written to; names `key`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"nothing can be written there: {error.strerror or error}",
            where=f"{key}: {folder}",
            cure="name a folder where you may write",
        ) from error


def save_result(folder: Path, configuration: TrainingConfiguration, result: Result) -> Path:
    """Writes ``model.keras`` (or ``model.pt``), ``training.yaml`` and ``history.json``; returns the model's file.

    In the history null stands where nothing was measured, or what was is no number: JSON knows no NaN.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = configuration.model_dump(mode="json", exclude_unset=True)
    write_whole(folder / "training.yaml", yaml.safe_dump(content, sort_keys=False))
    columns = {
        name: [value if math.isfinite(value) else None for value in values] for name, values in result.history.items()
    }
    write_whole(folder / "history.json", json.dumps(columns, indent=1))
    return result.save_model(folder / "model")


def write_whole(path: Path, text: str) -> None:
    """Writes aside and renames, so that the file is there whole or not at all."""
    aside = path.with_name(f".{path.name}.writing")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
