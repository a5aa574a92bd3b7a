"""Loads saved models, whole ones of Keras or weights of both frameworks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpi_learn.errors import ModelError
from mpi_learn.models.building.frameworks import load_framework
from mpi_learn.models.pipeline.staged import joined
from mpi_learn.settings.user_code import errors_of_user_code, load_function


def load_model_files(files: Sequence[Path], function: str, arguments: dict[str, Any]) -> Any:
    """The model of ``model.keras`` or ``model.pt``; of ``model_NAME.keras`` and others a mapping by NAME.

    Args:
        files: The files of one model.
        function: The function that builds it, for files that have only the weights.
        arguments: Its arguments.

    Raises:
        ModelError: A file cannot be loaded.
    """
    built: Any = None
    if any(file.suffix != ".keras" for file in files):
        with errors_of_user_code("building the model", function, ModelError):
            built = load_function(function)(**arguments)
            if isinstance(built, list | tuple):
                built = joined(built)
    loaded = {}
    for file in files:
        name = file.name.partition(".")[0].removeprefix("model").removeprefix("_")
        loaded[name] = _load(file, built[name] if name and built is not None else built)
    return loaded.get("", loaded)


def _load(file: Path, built: Any) -> Any:
    try:
        if file.suffix == ".keras":
            return load_framework("keras").saving.load_model(file)
        if file.suffix == ".pt":
            torch = load_framework("torch")
            built.load_state_dict(torch.load(file))
            return built.eval()
        built.load_weights(file)
    except (ValueError, TypeError, OSError, KeyError, RuntimeError, AttributeError) as error:
        raise ModelError(
            f"it cannot be loaded: {error}",
            where=str(file),
            cure="use the same version of the framework, and the same code of the model, as the training",
        ) from error
    return built
