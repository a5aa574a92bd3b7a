"""Finds and loads the models that a search has kept."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from mpi_opt.configuration.model_folder import ModelFolder
from mpi_opt.core.counted import listed, plural
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import StoreError, without_passwords
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
    if study.configuration.get("training") is None:
        raise StoreError(
            "its trials run a function, which saves its models itself; only those of trainings are kept",
            where=f"study {study.name}",
            cure="let the function save its model in a file with the number of the trial, trial.number",
        )
    known = sorted(folder.numbers(study.unique_name))
    which = f"the folder has the {plural('model', len(known))} of {plural('trial', len(known))} {listed(known)}"
    is_best = study.best is not None and study.best.number == trial.number
    chosen = "" if is_best else f" --trial {trial.number}"
    of_study = f"--store {shlex.quote(without_passwords(store))} --study {shlex.quote(study.name)}"
    again = f"mpi-opt best {of_study}{chosen} > trial.yaml, then mpi-learn train trial.yaml --output FOLDER"
    raise StoreError(
        f"no model of trial {trial.number} was kept; {which if known else 'there is none of this study'}",
        where=str(folder.path),
        cure=f"train it again: {again}; for later searches, write search: {{keep: {'best' if is_best else 'all'}}}",
    )


def load_models(folders: list[Path]) -> Any:
    """The model in a folder, or the list of the models of several folds."""
    from mpi_learn.training.result import load_saved_model

    models = [load_saved_model(folder) for folder in folders]
    return models[0] if len(models) == 1 else models
