"""Calls the function of the user that builds a model, or loads its file; and the errors if it is no model."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.models.building.frameworks import framework_of, load_framework
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.settings.component import shown_arguments
from mpi_learn.settings.paths import is_file
from mpi_learn.settings.suggestions import nearest_file
from mpi_learn.settings.user_code import errors_of_user_code, is_function, load_function, signature_of


def built_by_user(configuration: ModelConfiguration) -> Any:
    """The value of the user's function, or the model in a file of Keras.

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


PARTS = ("model", "module_", "module", "net", "network")
"""Attributes in which programs that train a model hold it: fastai's `Learner`, the `Trainer` of HuggingFace, skorch."""

OWN_TRAINING = "loss, optimizer and callbacks are then those of the file, and its own training is not used"
OBJECTIVE = "to train it with its own code, write a search with `objective: file.py:function`"


def shown(built: Any) -> str:
    """The class of an object, with its package: ``skorch NeuralNetClassifier``."""
    kind = built if isinstance(built, type) else type(built)
    package = kind.__module__.partition(".")[0]
    what = "the class " if isinstance(built, type) else ""
    return what + (kind.__name__ if _is_users(package) else f"{package}.{kind.__name__}")


def cure_for(built: Any) -> str:
    """The cure for a function that returns `built`, which is no model."""
    # from the particular to the general: most objects below also have what the later questions look for, such as `fit`
    if built is None:
        return "end the function with `return model`"
    if isinstance(built, type):
        return f"return an object of the class: {built.__name__}(…)"
    if inspect.isroutine(built):
        return "call this function, and return its model"
    packages = {kind.__module__.partition(".")[0] for kind in type(built).__mro__}
    if "tf_keras" in packages:
        return "build the model with Keras 3: unset TF_USE_LEGACY_KERAS, and import keras instead of tf_keras"
    parts = vars(built) if hasattr(built, "__dict__") else {}
    for name in PARTS:
        # not `getattr` alone: a class with `__getattr__`, as mocks and proxies, may have any attribute
        part = getattr(built, name, None) if name in parts or hasattr(type(built), name) else None
        if framework_of(part) is not None:
            return f"return its attribute {name}; {OWN_TRAINING}"
        if part is not None and "tf_keras" in {kind.__module__.partition(".")[0] for kind in type(part).__mro__}:
            return cure_for(part)
    if "skorch" in packages:
        return f"return .initialize().module_; {OWN_TRAINING}"
    if isinstance(built, list | tuple | Mapping):
        return _cure_for_several(built)
    if "keras" in packages:
        return "return a keras.Model: keras.Sequential([keras.Input(shape), layer])"
    if "tensorflow" in packages:
        return "make it a keras.Model; a tf.Module cannot be trained here"
    if packages & {"flax", "equinox", "haiku"}:
        return f"models of JAX cannot be trained here; {OBJECTIVE}"
    if hasattr(built, "fit"):
        return f"it has a training of its own; {OBJECTIVE}"
    return "return a keras.Model or a torch.nn.Module"


def _cure_for_several(built: Any) -> str:
    values = list(built.values()) if isinstance(built, Mapping) else list(built)
    n_models = sum(framework_of(value) is not None for value in values)
    if n_models > 1:
        return "return one model that contains the others; for a generator and a discriminator write `gan:`"
    if n_models == 1:
        return "return the model alone"
    if isinstance(built, Mapping) and values and all(type(value).__module__.startswith("torch") for value in values):
        return "load this state dict into a module, module.load_state_dict(…), and return the module"
    return "return the model"


def _is_users(package: str) -> bool:
    return package == "builtins" or package.startswith("_user_")
