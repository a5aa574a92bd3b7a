"""Builds the model that the configuration names, in the framework of what the user's function returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.models.building.frameworks import (
    NAMES,
    framework_of,
    load_framework,
    prepared,
    runs_on_torch,
    without_tensorflow,
)
from mpi_learn.models.building.users_model import built_by_user, cure_for, shown
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.models.model import COMPARES_SAMPLES, UNSAVED_RANDOM, Composition, Model, compares_samples
from mpi_learn.models.network import Network
from mpi_learn.models.settings import Example, ModelSettings
from mpi_learn.mpi.communicators import agreed_errors


def make_model(settings: ModelSettings, example: Example, composition: Composition | None = None) -> Model:
    """The model that the configuration names, checked on the samples. The same seed gives the same initial weights.

    Args:
        composition: How the several models that the user's function returns are trained as one; None for a single one.

    Raises:
        ModelError, ConfigurationError, DataError: The model cannot be built, or does not fit the samples.
    """
    # ranks of other stages call other functions of the user, on other devices, and then wait for this one
    with agreed_errors(settings.chain, rank=settings.stream) if settings.chain is not None else nullcontext():
        with prepared(settings.configuration.seed, settings.configuration.precision):
            built = built_by_user(settings.configuration)
            models = {"": built} if composition is None else composition.models_of(built, settings)
        _load_framework(next(iter(models.values())), settings)
        as_model, as_network = _classes(models, composition, settings)
    if composition is None:
        model = as_model(models[""], settings, example)
    else:
        of_part = partial(as_network, settings=replace(settings, is_part=True))
        model = composition.compose(models, of_part, settings, example)
    if settings.n_workers > 1 and model.synchronizes_statistics:
        raise ModelError(
            "a layer synchronises its batch statistics over replicas of its framework, which do not exist here",
            where=settings.configuration.model,
            cure="use batch normalisation of each rank's batch; `sync_batchnorm: true` averages its moving statistics",
        )
    if settings.n_workers > 1 and model.has_custom_loss:
        _check_mean(model, settings, example)
        if compares_samples(model, example, settings.configuration.precision):
            model.notes = (*model.notes, COMPARES_SAMPLES)
    if settings.has_checkpoint and model.has_unsaved_random:
        model.notes = (*model.notes, UNSAVED_RANDOM)
    return model


def _load_framework(built: Any, settings: ModelSettings) -> None:
    """Loads the framework of a model; all models of a composition have the same.

    Raises:
        ModelError: It is a model of no framework, or of another than the configured one.
    """
    framework, wanted, where = framework_of(built), settings.configuration.framework, settings.configuration.model
    if framework is None:
        raise ModelError(
            f"expected a Keras or PyTorch model, it returned {shown(built)}", where=where, cure=cure_for(built)
        )
    if wanted not in ("auto", framework):
        raise ModelError(
            f"expected a model of {NAMES[wanted]}, it returned one of {NAMES[framework]}",
            where=where,
            cure=f"write framework: {framework}, or leave it out",
        )
    load_framework(framework)


def _classes(
    models: Mapping[str, Any], composition: Composition | None, settings: ModelSettings
) -> tuple[Callable[..., Model], Callable[..., Network]]:
    """The classes of a single model and of a part of a composition, after the choice of the device.

    Raises:
        ModelError, ConfigurationError: The models cannot be trained so, or not on this device.
    """
    as_model: Callable[..., Model]
    as_network: Callable[..., Network]
    _check_compile(models, composition, settings.configuration)
    if framework_of(next(iter(models.values()))) == "keras":
        if settings.configuration.device != "auto":
            raise ConfigurationError(
                "only the device of a PyTorch model can be chosen; Keras uses the GPU that its backend finds",
                where="device",
                cure="leave it out, or export CUDA_VISIBLE_DEVICES= to train on the CPU",
            )
        if any(map(runs_on_torch, models.values())):
            if composition is not None:
                raise without_tensorflow(f"`{composition.key}:`")
            from mpi_learn.models.keras_torch import KerasTorchModel, KerasTorchNetwork
            from mpi_learn.models.torch_.tensors import choose_device

            choose_device("auto")  # an earlier training of this process may have chosen another one

            return KerasTorchModel, KerasTorchNetwork
        from mpi_learn.models.keras_.model import KerasModel
        from mpi_learn.models.keras_.network import KerasNetwork

        as_model, as_network = KerasModel, KerasNetwork
    else:
        from mpi_learn.models.torch_.lightning import LightningModel, has_own_steps
        from mpi_learn.models.torch_.model import TorchModel
        from mpi_learn.models.torch_.network import TorchNetwork
        from mpi_learn.models.torch_.tensors import choose_device

        choose_device(settings.configuration.device)
        as_model, as_network = TorchModel, TorchNetwork
        has_steps = list(map(has_own_steps, models.values()))  # each is checked: one may be refused
        if any(has_steps):
            if composition is not None:
                raise ModelError(
                    f"with `{composition.key}:`, the steps of a LightningModule are not called",
                    where=settings.configuration.model,
                    cure="derive all models from torch.nn.Module",
                )
            as_model = LightningModel
    return as_model, as_network


def _check_compile(
    models: Mapping[str, Any], composition: Composition | None, configuration: ModelConfiguration
) -> None:
    """Raises ConfigurationError if `compile: true` would have no effect, or was never tried."""
    if not configuration.compile:
        return
    first = next(iter(models.values()))
    if framework_of(first) == "keras":
        cure = "leave it out" if runs_on_torch(first) else "write `xla: true`"
        raise ConfigurationError("torch.compile is for PyTorch modules", where="compile", cure=cure)
    conflicts = [f"`{composition.key}:`"] if composition is not None else []
    conflicts += ["a LightningModule"] * any(hasattr(model, "training_step") for model in models.values())
    conflicts += ["`gradient_checkpointing: true`"] * configuration.gradient_checkpointing
    if conflicts:
        raise ConfigurationError(
            f"torch.compile is not supported with {conflicts[0]}", where="compile", cure="leave one of them out"
        )


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
