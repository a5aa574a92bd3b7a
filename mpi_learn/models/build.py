"""Builds the model that the configuration names, in its framework."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from mpi_learn.environment import prepare_environment, quiet_stderr
from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.models.configuration import PLAIN, Computing, Gan
from mpi_learn.models.gan import check_pair
from mpi_learn.models.model import Arrays, Model
from mpi_learn.settings.user_code import imports_of, is_function, load_function, signature_of, users_code


def make_model(
    specification: str,
    parameters: dict[str, Any],
    loss: Any,
    metrics: Any,
    x: Arrays,
    y: Arrays,
    *,
    seed: int,
    stream: int,
    gan: Gan | None = None,
    computing: Computing = PLAIN,
) -> Model:
    """The model behind our interface; the same seed gives the same initial weights.

    Args:
        specification: ``file.py:function``, ``package.module:function``, or a .keras or .json file.
        parameters: The function's arguments.
        loss, metrics: As in the configuration, with absolute paths.
        x, y: A few samples, one array per input and output.
        seed: Of the initial weights.
        stream: Makes dropout and noise draw other numbers: give the rank.
        gan: The function returns two models, which train each other like this.
        computing: In which precision, and whether activations are computed again in the backward pass.

    Raises:
        ModelError, ConfigurationError: It cannot be built, or does not fit the samples.
    """
    if is_function(specification):
        signature_of(specification).check(parameters, specification)
    n_threads = prepare_environment()
    packages = imports_of(specification) if is_function(specification) else {"keras"}
    if "torch" in packages and not packages & {"keras", "tensorflow"}:
        return _torch_model(specification, parameters, (loss, metrics, x, y), seed, stream, n_threads, gan, computing)
    _load_keras(n_threads)
    from mpi_learn.models.keras_.keras_checkpointing import policy
    from mpi_learn.models.keras_.keras_model import KerasModel, keras

    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    with policy(computing):
        called = is_function(specification)
        model = _called(specification, parameters) if called else _loaded(keras, Path(specification))
    if gan is not None:
        from mpi_learn.models.keras_.keras_gan import KerasGan

        check_pair(model, keras.Model, "Keras", specification)
        return KerasGan(model, gan, loss, metrics, x, y, stream, computing)
    if not isinstance(model, keras.Model):
        raise _no_model(model, specification)
    return KerasModel(model, loss, metrics, x, y, stream, computing)


def _torch_model(
    specification: str,
    parameters: dict[str, Any],
    rest: tuple[Any, ...],
    seed: int,
    stream: int,
    n_threads: int,
    gan: Gan | None,
    computing: Computing,
) -> Model:
    try:
        import torch
    except ImportError as error:
        raise ModelError(f"PyTorch is needed: {error}", cure="pip install mpi-opt[torch]") from error
    from mpi_learn.models.torch_.torch_model import TorchModel

    torch.set_num_threads(n_threads)
    torch.manual_seed(seed)
    module = _called(specification, parameters)
    if gan is not None:
        from mpi_learn.models.torch_.torch_gan import TorchGan

        check_pair(module, torch.nn.Module, "PyTorch", specification)
        return TorchGan(module, gan, *rest, seed * 1_000_003 + stream, computing)
    if not isinstance(module, torch.nn.Module):
        raise _no_model(module, specification)
    return TorchModel(module, *rest, seed * 1_000_003 + stream, computing)


def _no_model(found: Any, specification: str) -> ModelError:
    return ModelError(
        f"expected a Keras or PyTorch model, it returned {type(found).__name__}",
        where=specification,
        cure="return the model",
    )


def _load_keras(n_threads: int) -> None:
    """Imports Keras and TensorFlow, and lets TensorFlow say what it has to say where nobody hears it."""
    try:
        with quiet_stderr():
            tensorflow = importlib.import_module("tensorflow")
            try:
                tensorflow.config.threading.set_intra_op_parallelism_threads(n_threads)
                tensorflow.config.threading.set_inter_op_parallelism_threads(1 if n_threads == 1 else 2)
            except RuntimeError:
                pass  # somebody has used TensorFlow in this process before us: its threads stay as they are
            tensorflow.zeros(1)
            keras = importlib.import_module("keras")
    except ImportError as error:
        raise ModelError(f"Keras on TensorFlow is needed: {error}", cure="pip install mpi-opt[cpu]") from error
    if keras.backend.backend() != "tensorflow":
        raise ModelError(
            f"Keras runs on {keras.backend.backend()} here", cure="unset KERAS_BACKEND, or set it to tensorflow"
        )


def _called(specification: str, parameters: dict[str, Any]) -> Any:
    given = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
    with users_code(f"building the model with ({given})", specification, ModelError):
        return load_function(specification)(**parameters)


def _loaded(keras: Any, path: Path) -> Any:
    if path.suffix not in (".keras", ".json"):
        raise ConfigurationError(
            f"cannot load a model from {path.name}",
            where="model",
            cure="write file.py:function, or a .keras or .json file",
        )
    if not path.is_file():
        raise ConfigurationError("there is no such file", where=f"model: {path}")
    try:
        if path.suffix == ".keras":
            return keras.saving.load_model(path, compile=False, safe_mode=True)
        return keras.models.model_from_json(path.read_text(encoding="utf-8"))
    except (ValueError, TypeError, OSError, KeyError) as error:
        raise ModelError(f"Keras cannot read it: {error}", where=str(path)) from error
