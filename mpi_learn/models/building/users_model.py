"""Calls the function of the user that builds a model, or loads the file that the configuration names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.models.building.frameworks import load_framework
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.settings.component import shown_arguments
from mpi_learn.settings.paths import is_file
from mpi_learn.settings.suggestions import nearest_file
from mpi_learn.settings.user_code import errors_of_user_code, is_function, load_function, signature_of


def built_by_user(configuration: ModelConfiguration) -> Any:
    """What the user's function returns, or the model in a file of Keras.

    Raises:
        ModelError, ConfigurationError: The function raises an error, or does not take the parameters; or the file
            cannot be read.
    """
    name = configuration.model
    if not is_function(name):
        if configuration.parameters:
            raise ConfigurationError(
                f"a saved model takes no arguments, found {', '.join(configuration.parameters)}",
                where="parameters",
                cure="leave parameters out, or write model: file.py:function",
            )
        return _load_file(load_framework("keras"), Path(name))
    arguments = dict(configuration.parameters)
    signature_of(name).check(arguments, name)
    with errors_of_user_code(f"building the model with ({shown_arguments(arguments)})", name, ModelError):
        return load_function(name)(**arguments)


def _load_file(keras: Any, path: Path) -> Any:
    if path.suffix not in (".keras", ".json"):
        raise ConfigurationError(
            f"cannot load a model from {path.name}",
            where="model",
            cure="write file.py:function, or a .keras or .json file",
        )
    if not is_file(path):
        near = nearest_file(path, f"*{path.suffix}")
        cure = f"did you mean {near}?" if near else "check the path"
        raise ConfigurationError("there is no such file", where=f"model: {path}", cure=cure)
    try:
        if path.suffix == ".keras":
            return keras.saving.load_model(path, compile=False, safe_mode=True)
        return keras.models.model_from_json(path.read_text(encoding="utf-8"))
    except (ValueError, TypeError, OSError, KeyError) as error:
        raise ModelError(
            f"Keras cannot read it: {error}",
            where=str(path),
            cure="save it again with this version of Keras, or write file.py:function",
        ) from error
