"""Finds and loads the models that a search has kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mpi_opt.configuration.model_folder import ModelFolder
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import StoreError
from mpi_opt.store.records import StudyRecord


def model_folders(study: StudyRecord, store: str, trial: TrialRecord) -> list[Path]:
    """The folders of the models of a trial, one for each fold.

    Args:
        study: The study.
        store: The URL of its store.
        trial: The trial.

    Raises:
        StoreError: No model of this trial was kept.
    """
    directory = Path(study.configuration.get("directory") or Path.cwd())
    folder = ModelFolder.of(store, study.name, directory)
    if found := folder.folds(study.unique_name, trial.number):
        return found
    known = sorted(folder.numbers(study.unique_name))
    which = f"there are models of the trials {', '.join(map(str, known))}" if known else "there is none of this study"
    raise StoreError(
        f"no model of trial {trial.number} was kept; {which}",
        where=str(folder.path),
        cure="write search: {keep: best} before the search, or train again: mpi-opt best > best.yaml, mpi-learn train",
    )


def load_models(folders: list[Path]) -> Any:
    """The model in a folder, or the list of the models of several folds."""
    from mpi_learn.training.saved_model import load_saved_model

    models = [load_saved_model(folder) for folder in folders]
    return models[0] if len(models) == 1 else models
