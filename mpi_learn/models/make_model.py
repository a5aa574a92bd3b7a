"""Builds the model that the configuration names, in the framework of what the user's function returns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.models.configuration import ModelSettings
from mpi_learn.models.example import Example
from mpi_learn.models.frameworks import NAMES, framework_of, load_framework, prepared
from mpi_learn.models.gan import GanModel, check_pair
from mpi_learn.models.loss_of_batch import COMPARES_SAMPLES, compares_samples
from mpi_learn.models.model import UNSAVED_RANDOM, Model
from mpi_learn.models.network import Network
from mpi_learn.models.unknown_model import cure_for, shown
from mpi_learn.settings.component import shown_arguments
from mpi_learn.settings.paths import is_file
from mpi_learn.settings.suggestions import nearest_file
from mpi_learn.settings.user_code import errors_of_user_code, is_function, load_function, signature_of


def make_model(settings: ModelSettings, example: Example) -> Model:
    """The model that the configuration names, checked on the samples. The same seed gives the same initial weights.

    Raises:
        ModelError, ConfigurationError, DataError: The model cannot be built, or does not fit the samples.
    """
    with prepared(settings.seed, settings.precision):
        built = _build_model(settings)
    framework = _framework(built, settings)
    model = _wrap(built, framework, settings, example)
    if settings.n_workers > 1 and model.synchronizes_statistics:
        raise ModelError(
            "a layer synchronises its batch statistics over replicas of its framework, which do not exist here",
            where=settings.model,
            cure="use batch normalisation of each rank's batch; `sync_batchnorm: true` averages its moving statistics",
        )
    if settings.n_workers > 1 and model.has_custom_loss:
        _check_mean(model, settings, example)
        if compares_samples(model, example, settings.precision):
            model.notes = (*model.notes, COMPARES_SAMPLES)
    if settings.has_checkpoint and model.has_unsaved_random:
        model.notes = (*model.notes, UNSAVED_RANDOM)
    return model


def _build_model(settings: ModelSettings) -> Any:
    name = settings.model
    if not is_function(name):
        if settings.parameters:
            raise ConfigurationError(
                f"a saved model takes no arguments, found {', '.join(settings.parameters)}",
                where="parameters",
                cure="leave parameters out, or write model: file.py:function",
            )
        return _load_file(load_framework("keras"), Path(name))
    arguments = dict(settings.parameters)
    signature_of(name).check(arguments, name)
    with errors_of_user_code(f"building the model with ({shown_arguments(arguments)})", name, ModelError):
        return load_function(name)(**arguments)


def _framework(built: Any, settings: ModelSettings) -> str:
    if settings.gan is not None:
        check_pair(built, settings.model)
        framework = framework_of(built["generator"])
    else:
        framework = framework_of(built)
    if framework is None:
        raise ModelError(
            f"expected a Keras or PyTorch model, it returned {shown(built)}",
            where=settings.model,
            cure=cure_for(built),
        )
    if settings.framework not in ("auto", framework):
        raise ModelError(
            f"expected a model of {NAMES[settings.framework]}, it returned one of {NAMES[framework]}",
            where=settings.model,
            cure=f"write framework: {framework}, or leave it out",
        )
    load_framework(framework)
    return framework


def _wrap(built: Any, framework: str, settings: ModelSettings, example: Example) -> Model:
    as_model: Callable[..., Model]
    as_network: Callable[..., Network]
    if framework == "keras":
        from mpi_learn.models.keras_.model import KerasModel
        from mpi_learn.models.keras_.network import KerasNetwork

        as_model, as_network = KerasModel, KerasNetwork
    else:
        from mpi_learn.models.torch_.lightning import LightningModel, has_own_steps
        from mpi_learn.models.torch_.model import TorchModel
        from mpi_learn.models.torch_.network import TorchNetwork

        as_model, as_network = TorchModel, TorchNetwork
        networks = [built] if settings.gan is None else list(built.values())
        if any(list(map(has_own_steps, networks))):
            if settings.gan is not None:
                raise ModelError(
                    "with `gan:`, the steps of a LightningModule are not called",
                    where=settings.model,
                    cure="derive both models from torch.nn.Module",
                )
            as_model = LightningModel
    if settings.gan is None:
        return as_model(built, settings, example)
    return GanModel({name: as_network(network, settings) for name, network in built.items()}, settings, example)


def _check_mean(model: Model, settings: ModelSettings, example: Example) -> None:
    """Raises ConfigurationError if the loss, or a term of it, is a sum over the batch.

    Ranks average their gradients. With a sum, several ranks would therefore not train like one rank with all samples.
    If a batch contains every sample twice, a mean over the batch does not change and a sum doubles.
    """
    floats, integers = model.state.floats(), model.state.integers()
    losses = []
    for _ in range(3):
        batch = example.x, example.y, example.weights
        sums = model.evaluate(*batch) if model.can_evaluate else model.gradient(*batch)[model.layout.size :]
        losses.append(model.metrics(sums)["loss"])
        example = example.doubled()
    model.state.set_floats(floats)
    model.state.set_integers(integers)
    once, first, second = losses[0], losses[1] - losses[0], losses[2] - losses[1]
    is_sum = 0.9 < first / once < 1.1 if once else False
    has_sum = abs(first) > 1e-3 * abs(once) and 1.99 < second / first < 2.01
    if is_sum or has_sum:
        raise ConfigurationError(
            "the loss is a sum over the batch, or has a term that is, so that several ranks would not train like one",
            where="loss",
            cure="return the mean over the samples of the batch, or train on one rank",
        )


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
