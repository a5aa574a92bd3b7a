"""Builds the objective that a ``space.yaml`` names."""

from __future__ import annotations

from pathlib import Path

from mpi_learn.settings.paths import file_name
from mpi_opt.configuration.configuration import EXTERNAL, StudyConfiguration
from mpi_opt.configuration.model_folder import ModelFolder
from mpi_opt.core.objective import Objective
from mpi_opt.errors import ConfigurationError
from mpi_opt.objectives.function_objective import FunctionObjective
from mpi_opt.objectives.training_objective import TrainingObjective


def models_of(configuration: StudyConfiguration, directory: Path) -> ModelFolder:
    """The folder for the models of a study."""
    return ModelFolder.of(configuration.store, configuration.study, directory)


def make_objective(configuration: StudyConfiguration, directory: Path) -> Objective:
    """Builds the objective of a ``space.yaml``.

    Raises:
        ConfigurationError: A workload system runs the trials, not this program.
    """
    if configuration.objective == EXTERNAL:
        cure = "use mpi-opt ask and tell, or write objective: file.py:function"
        raise ConfigurationError("other programs run the trials of this study", where="objective", cure=cure)
    if configuration.objective == "train":
        checkpoints = Path.cwd() / f"{file_name(configuration.study)}.checkpoints"
        return TrainingObjective(
            configuration.training or {},
            configuration.figure_of_merit,
            directory,
            checkpoints,
            configuration.folds.number,
            models_of(configuration, directory) if configuration.search.keep is not None else None,
            is_elastic=configuration.blocks.elastic,
        )
    return FunctionObjective(configuration.objective, directory, is_elastic=configuration.blocks.elastic)
