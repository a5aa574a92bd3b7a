"""Loads the model that a training has saved in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mpi_learn.errors import ModelError
from mpi_learn.models.building.load_model import load_model_files
from mpi_learn.training.configuration import read_configuration


def load_saved_model(folder: Path | str) -> Any:
    """The model in a folder of ``mpi-learn train --output``, or of a trial; for a GAN a mapping by name.

    A Keras model is in a ``.keras`` file. Of a PyTorch module, and of a Keras model that cannot be saved as a whole,
    only the weights are in the folder. Then the function that ``training.yaml`` names builds the model.

    Raises:
        ModelError: The folder has no model, or it cannot be loaded.
        ConfigurationError: ``training.yaml`` is not valid.
    """
    folder = Path(folder)
    files = sorted(folder.glob("model*"))
    if not files:
        raise ModelError("there is no model", where=str(folder), cure="name the folder of mpi-learn train --output")
    configuration = read_configuration(folder / "training.yaml")
    return load_model_files(files, str(configuration.model), dict(configuration.parameters))
