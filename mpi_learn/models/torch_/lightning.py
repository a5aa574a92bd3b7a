"""Modules of PyTorch Lightning: their own `training_step` and `validation_step` compute the loss.

Lightning is recognised by the name of its class and never imported. There is no `Trainer`: what a step logs becomes the
history, the optimizer is that of the configuration, and methods that only a trainer calls are refused.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Number
from typing import Any, NoReturn

import numpy as np
import torch

from mpi_learn.devices.device_vector import Vector
from mpi_learn.errors import ConfigurationError, ModelError, UserError
from mpi_learn.flat_layout import LOSS, N_FLAGS, N_SAMPLES, WEIGHT, aligned_empty
from mpi_learn.models.model import Model
from mpi_learn.models.settings import Arrays, Example, ModelSettings
from mpi_learn.models.torch_.errors import cure_of
from mpi_learn.models.torch_.inputs import arguments_of, flat_outputs
from mpi_learn.models.torch_.network import TorchNetwork, least_samples
from mpi_learn.models.torch_.step import StepVector
from mpi_learn.models.torch_.tensors import tensors

TRAINING, VALIDATION = "training_step", "validation_step"
PREFIXES = {TRAINING: r"(train|training)[_/]", VALIDATION: r"(val|valid|validation)[_/]"}
"""The prefix of the names of logged values. It is left out: the history has the names `acc` and `val_acc`."""

NOT_CALLED = re.compile(
    r"on_(train|validation|fit|before|after)_\w+|on_(load|save)_checkpoint|optimizer_(step|zero_grad)|lr_scheduler_step"
    r"|configure_(callbacks|gradient_clipping|model|sharded_model)|clip_gradients|backward|setup"
    r"|transfer_batch_to_device|optimizers|lr_schedulers|manual_backward"
)
"""Methods of a module that a trainer calls in a training, or that it provides. Those of tests, predictions and data
loaders have no part in a training here."""

FIRST_VALUE = 3
"""Index of the first logged value in the sums."""


def lightning_base(module: torch.nn.Module) -> type | None:
    """The class `LightningModule` from which a module is derived; None for other modules."""
    packages = ("lightning", "pytorch_lightning")
    kinds = (kind for kind in type(module).__mro__ if kind.__module__.partition(".")[0] in packages)
    return next((kind for kind in kinds if kind.__name__ == "LightningModule"), None)


def has_own_steps(module: torch.nn.Module) -> bool:
    """Whether a module of Lightning has a `training_step`.

    Raises:
        ModelError: Another module has one, which would never be called.
    """
    base = lightning_base(module)
    if base is not None:
        return getattr(type(module), TRAINING) is not getattr(base, TRAINING)
    if callable(getattr(type(module), TRAINING, None)):
        raise ModelError(
            f"{type(module).__name__} has a {TRAINING}, which MPI Learn calls only if the class is a LightningModule",
            where="model",
            cure="derive the class from LightningModule, or rename this method: then `loss` of the file is used",
        )
    return False


class LightningModel(Model):
    """A module of Lightning as one flat vector.

    Raises:
        ModelError, ConfigurationError: Module, configuration and samples do not fit together, or the module needs a
            trainer.
    """

    framework = "torch"
    has_custom_loss = True

    def __init__(self, module: torch.nn.Module, settings: ModelSettings, example: Example) -> None:
        self.module: Any = module
        self._name = type(module).__name__
        self._check_class(settings)
        self.network = self.state = TorchNetwork(module, settings)
        self.networks = {"": self.network}
        self.uses_gpu = self.network.uses_gpu
        self.layout = self.network.layout.with_counts()
        self.weights = aligned_empty(self.layout.size)
        self.weights[:] = 0
        self.network.move_into(self.weights)
        self.synchronizes_statistics = self.network.synchronizes_statistics
        self.can_evaluate = self._overrides(VALIDATION)
        if self._overrides("configure_optimizers"):
            self.notes = (f"configure_optimizers of {self._name} is not called: the optimizer is that of the file",)
        self._x_names, self._y_names, self._weight_names = example.x_names, example.y_names, example.weight_names
        self._arguments = arguments_of(module, example.x_names)
        self._metrics: list[Any] = [part for part in module.modules() if _is_torchmetric(part)]
        self._names: dict[str, dict[str, str]] = {TRAINING: {}, VALIDATION: {}}
        with self.network.unchanged() as before:
            self._names = {step: self._tried(step, example, settings) for step in (TRAINING, VALIDATION)}
            self.least_samples = least_samples(module, partial(self._run, TRAINING, *_parts(example.part(0, 1))))
            if settings.n_workers > 1 or self.uses_gpu:
                self.network.check_unchanged(before)
        self._values = list(dict.fromkeys(name for names in self._names.values() for name in names.values() if name))
        self.n_sums = FIRST_VALUE + len(self._values) + N_FLAGS
        self._step = StepVector(self.network, self.layout, self.n_sums)

    def gradient(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> Vector:
        if len(x[0]) == 0:
            return self._step.empty()
        self._step.prepare()
        loss, logged = self._run(TRAINING, x, y, weights)
        self._step.backward(loss)
        return self._step.filled(len(x[0]), self._sums(TRAINING, loss.item(), logged, len(x[0])))

    def evaluate(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        self.network.current()
        with torch.no_grad():
            loss, logged = self._run(VALIDATION, x, y, weights)
            return self._sums(VALIDATION, loss.item(), logged, len(x[0]))

    def scale_loss(self, scale: Callable[[], float]) -> None:
        self._step.loss_scale = scale

    def check_labels(self, y: Arrays) -> None:
        """Nothing is known about the labels that a step of the user takes."""

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        n = max(float(sums[N_SAMPLES]), 1.0)
        values = zip(self._values, sums[FIRST_VALUE:-N_FLAGS], strict=True)
        loss = float(sums[LOSS]) / (float(sums[WEIGHT]) or 1.0)
        return {"loss": loss} | {name: float(value) / n for name, value in values}

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        self.network.current()
        positional, by_name = self._arguments(tensors(x))
        with torch.no_grad():
            return tuple(one.numpy(force=True) for one in flat_outputs(self.network(*positional, **by_name)))

    def probe(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> list[np.ndarray]:
        step = VALIDATION if self.can_evaluate else TRAINING
        with self.repeatable(), torch.set_grad_enabled(step == TRAINING):
            self.module.train(step == TRAINING)
            self.network.refresh()
            loss, logged = self._run(step, x, y, weights)
            return [np.array(loss.item()), *map(np.array, logged.values())]

    def close(self) -> None:
        self.network.close()
        self._step.close()

    def _overrides(self, method: str) -> bool:
        return getattr(type(self.module), method, None) is not getattr(lightning_base(self.module), method, None)

    def _check_class(self, settings: ModelSettings) -> None:
        """Raises an error if the configuration and the class both define something, or if the class needs a trainer."""
        for key in ("loss", "metrics", "weighted_metrics", "loss_weights"):
            if getattr(settings.configuration, key):
                raise ConfigurationError(
                    f"{TRAINING} of {self._name} computes the loss, and the file has `{key}`",
                    where=key,
                    cure=f"leave `{key}` out and use self.log, or return a module without {TRAINING}",
                )
        if not getattr(self.module, "automatic_optimization", True):
            raise self._refused(
                "has automatic_optimization = False, which needs a Trainer",
                "return one loss from training_step; for a GAN write `gan:`",
            )
        base = lightning_base(self.module)
        for name in dir(base):
            if NOT_CALLED.fullmatch(name) and self._overrides(name):
                raise self._refused(
                    f"overrides {name}, which only a Trainer calls",
                    "use __init__, training_step and validation_step, or `callbacks` and `optimizer` of the file",
                )
        if settings.is_validated and not self._overrides(VALIDATION):
            raise self._refused(
                f"has no {VALIDATION}, and there are validation data", "define it, or leave the validation data out"
            )
        if not settings.has_optimizer:
            raise ConfigurationError(
                f"the optimizer of {self._name} is that of the file, and the file has none",
                where="optimizer",
                cure=f"write `optimizer: {self._users_optimizer()}`",
            )

    def _users_optimizer(self) -> str:
        """The result of `configure_optimizers`, as a line of the configuration."""
        try:
            made = self.module.configure_optimizers() if self._overrides("configure_optimizers") else None
        except Exception:  # noqa: BLE001 - of the user's method
            made = None
        if not isinstance(made, torch.optim.Optimizer):
            return "{name: …, learning_rate: …}"
        kind: Any = type(made)
        changed = {key: one for key, one in made.param_groups[0].items() if key != "params"}
        defaults = kind([torch.zeros(1, requires_grad=True)]).defaults
        shown = {key: one for key, one in changed.items() if key == "lr" or defaults.get(key, one) != one}
        text = ", ".join(f"{key}: {list(one) if isinstance(one, tuple) else one}" for key, one in shown.items())
        return f"{{name: torch.optim:{type(made).__name__}, {text}}}"

    def _refused(self, problem: str, cure: str) -> ModelError:
        return ModelError(f"{self._name} {problem}", where="model", cure=cure)

    def _tried(self, step: str, example: Example, settings: ModelSettings) -> dict[str, str]:
        """Logged name -> name in the history, by running a step on the example; empty for the loss itself."""
        if step == VALIDATION and not (settings.is_validated and self.can_evaluate):
            return {}
        self.module.train(step == TRAINING)
        logged: dict[str, float] = {}
        try:
            with torch.set_grad_enabled(step == TRAINING):
                loss, logged = self._run(step, *_parts(example), is_first=True)
            if step == TRAINING:
                loss.backward()  # type: ignore[no-untyped-call]
        except UserError:
            raise
        except Exception as error:  # of the user's module
            raise ModelError(
                f"{step} of {self._name} raised {type(error).__name__}: {error}",
                where="model",
                cure=cure_of(error, f"correct {step}"),
            ) from error
        names: dict[str, str] = {}
        for key, value in logged.items():
            short = _without_prefix(step, key)
            if short == "loss" and (step == VALIDATION or np.isclose(value, loss.item())):
                names[key] = ""
            else:
                names[key] = key if short == "loss" or short in names.values() else short
        return names

    def _run(
        self, step: str, x: Arrays, y: Arrays, weights: Arrays, is_first: bool = False
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """The loss of a step of the user, and the values that it logs."""
        logged: dict[str, float] = {}
        batch, attributes = self._batch(x, y, weights), vars(self.module)
        # on the object, which hides the methods of the class: those of Lightning need its Trainer
        attributes["log"], attributes["log_dict"] = partial(_log, logged), partial(_log_dict, logged)
        self.module.trainer = _NoTrainer(f"{step} of {self._name}")
        try:
            with self.network.computing():
                function = getattr(self.module, step)
                returned = function(*(batch, _NoIndex(f"{step} of {self._name}"))[: _n_arguments(function)])
        finally:
            del attributes["log"], attributes["log_dict"]
            self.module.trainer = None
            for metric in self._metrics:  # their states would grow from step to step, and no epoch of Lightning ends
                metric.reset()
        loss = returned.get("loss") if isinstance(returned, Mapping) else returned
        if step == VALIDATION:
            of_loss = [value for key, value in logged.items() if _without_prefix(step, key) == "loss"]
            loss = torch.tensor(of_loss[0]) if of_loss else loss
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            cure = 'return the loss, or write self.log("val_loss", loss)' if step == VALIDATION else "return the loss"
            raise self._refused(f"returns no loss from {step}, or not one number", cure)
        if not is_first and (unknown := [name for name in logged if name not in self._names[step]]):
            raise self._refused(f"logs {unknown[0]} in some steps only", "log the same values in every step")
        return loss.float(), logged

    def _batch(self, x: Arrays, y: Arrays, weights: Arrays) -> Any:
        """The batch as the loader of a `TensorDataset` yields it; inputs or labels with names are a mapping."""
        parts: list[Any] = []
        for arrays, names in ((x, self._x_names), (y, self._y_names), (weights, self._weight_names)):
            made = tensors(arrays)
            parts += [dict(zip(names, made, strict=True))] if names else made
        return parts[0] if len(parts) == 1 else parts

    def _sums(self, step: str, loss: float, logged: dict[str, float], n: int) -> np.ndarray:
        named = {self._names[step].get(key, ""): value for key, value in logged.items()}
        values = [n * named.get(name, np.nan) for name in self._values]
        return np.array([n, n * loss, n, *values, *[0.0] * N_FLAGS])


def _without_prefix(step: str, name: str) -> str:
    """A logged name without ``train_`` or ``val_``."""
    return re.sub(f"^{PREFIXES[step]}", "", name)


class _NoTrainer:
    """Takes the place of the trainer in a step: every access is an error."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ModelError(
            f"{self._owner} uses {name} of the Trainer, and there is no Trainer here",
            where="model",
            cure="compute it from the batch, or make it an argument of your function; use `callbacks` for the rest",
        )


class _NoIndex:
    """Takes the place of the number of the batch, which is not known in a step."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def _refuse(self, *_: object) -> NoReturn:
        raise ModelError(
            f"{self._owner} uses the number of the batch, which is not available",
            where="model",
            cure="do the same in every step",
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __floordiv__ = __truediv__ = _refuse
    __index__ = __int__ = __float__ = __bool__ = __hash__ = __format__ = _refuse


def _log(logged: dict[str, float], name: str, value: Any, *_: Any, reduce_fx: Any = "mean", **__: Any) -> None:
    """Replaces `LightningModule.log`: the history has the mean of the value over the samples of an epoch."""
    problem = ""
    if _is_torchmetric(value):
        problem, cure = "a metric of torchmetrics", "log its value for the batch: self.metric(outputs, labels)"
    elif not isinstance(value, Number | np.number) and not (isinstance(value, torch.Tensor) and value.numel() == 1):
        problem, cure = f"an object of class {type(value).__name__}", "log one number"
    elif reduce_fx not in ("mean", torch.mean):
        problem, cure = f"reduce_fx={reduce_fx!r}", "leave reduce_fx out: the mean over an epoch is recorded"
    if problem:
        raise ModelError(f"self.log of {name} receives {problem}", where="model", cure=cure)
    logged[name] = float(value.detach() if isinstance(value, torch.Tensor) else value)


def _log_dict(logged: dict[str, float], values: Mapping[str, Any], *_: Any, **options: Any) -> None:
    """Replaces `LightningModule.log_dict`."""
    for name, value in values.items():
        _log(logged, name, value, **options)


def _is_torchmetric(value: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "torchmetrics" for kind in type(value).__mro__)


def _n_arguments(function: Callable[..., Any]) -> int:
    """The number of positional arguments that a step takes: the batch, or the batch and its number."""
    kinds = [one.kind for one in inspect.signature(function).parameters.values()]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return 2 if inspect.Parameter.VAR_POSITIONAL in kinds else min(sum(kind in positional for kind in kinds), 2)


def _parts(example: Example) -> tuple[Arrays, Arrays, Arrays]:
    return example.x, example.y, example.weights
