"""Losses and metrics of Keras from the configuration, in the structure that `keras.Model.compile` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import keras
import numpy as np

from mpi_learn.errors import ConfigurationError
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.models.labels import LabelRule
from mpi_learn.models.outputs import Outputs, Shape
from mpi_learn.settings.component import Component, make_component, shown_arguments
from mpi_learn.settings.suggestions import suggestion
from mpi_learn.settings.user_code import errors_of_user_code

SHORT = ("accuracy", "acc", "crossentropy", "ce")
"""Names whose function Keras chooses by the shapes of labels and outputs."""
WITHOUT_SHAPE = ("ctc", "circle", "dice", "tversky", "categorical_generalized_cross_entropy")
"""Losses whose labels need not have the shape of the output."""


def compile_arguments(configuration: ModelConfiguration, outputs: Outputs) -> dict[str, Any]:
    """The arguments of `keras.Model.compile` for loss weights and metrics.

    Raises:
        ConfigurationError: No such metric or output.
    """
    arguments: dict[str, Any] = {}
    if configuration.loss_weights is not None:
        arguments["loss_weights"] = structured(outputs.factors(configuration.loss_weights), outputs)
    for key, metrics in (("metrics", configuration.metrics), ("weighted_metrics", configuration.weighted_metrics)):
        if metrics:
            made = [[make_metric(metric) for metric in of_output] for of_output in outputs.metrics(metrics, key)]
            arguments[key] = structured(made, outputs)
    return arguments


def structured(values: Sequence[Any], outputs: Outputs) -> Any:
    """One value per output, in the structure of the outputs."""
    if outputs.is_mapping:
        return dict(zip(outputs.names, values, strict=True))
    return values[0] if len(outputs) == 1 else list(values)


def make_loss(wanted: Component) -> Any:
    """A loss object, or a function of (labels, outputs)."""
    if not wanted.is_custom:
        return _of_keras(wanted, keras.losses, "loss")
    loss = make_component(wanted, 2)
    if isinstance(loss, keras.losses.Loss) or callable(loss):
        return loss
    raise ConfigurationError(
        f"expected a loss, found {type(loss).__name__}",
        where=f"loss: {wanted.name}",
        cure="return a keras.losses.Loss or a function of (labels, outputs)",
    )


def make_metric(wanted: Component) -> Any:
    """A metric that is named as in the history; names that depend on shapes stay names."""
    metric = make_component(wanted, 2) if wanted.is_custom else _of_keras(wanted, keras.metrics, "metrics")
    if isinstance(metric, str):
        return metric
    if not isinstance(metric, keras.metrics.Metric):
        metric = keras.metrics.MeanMetricWrapper(metric, name=wanted.key)
    metric.name = wanted.key
    return metric


def make_output_loss(wanted: Component, output: Shape, labels: np.ndarray) -> tuple[Any, LabelRule | None]:
    """The loss of `make_loss` and the labels that it accepts; None if this is not known, as for user functions."""
    loss = make_loss(wanted)
    if wanted.is_custom or wanted.name in SHORT or not output:
        return loss, None
    name = str(getattr(loss, "name", None) or getattr(loss, "__name__", ""))
    if name == "sparse_categorical_crossentropy":
        axis = wanted.arguments.get("axis", -1)
        return loss, LabelRule(name, output, class_axis=axis, ignored=ignored_class(loss))
    is_probability = name in ("binary_crossentropy", "binary_focal_crossentropy")
    return loss, LabelRule(name, output, is_elementwise=name not in WITHOUT_SHAPE, is_probability=is_probability)


def ignored_class(loss: Any) -> int | None:
    """The class that a loss of `make_loss` ignores: an attribute of a loss of Keras, or an argument of a function."""
    ignored: int | None = getattr(loss, "ignore_class", None)
    return getattr(loss, "keywords", {}).get("ignore_class") if ignored is None else ignored


def mean_loss(loss: Any) -> Callable[[Any, Any], Any]:
    """The mean loss of a batch, from labels and output, by a loss of `make_loss`."""
    if isinstance(loss, str):
        raise ConfigurationError(f"{loss} depends on the labels", where="loss", cure="write the whole name of the loss")

    def mean(labels: Any, output: Any) -> Any:
        if isinstance(loss, keras.losses.Loss):
            return loss(labels, output)
        if len(labels.shape) == len(output.shape) - 1 and output.shape[-1] == 1:
            labels = keras.ops.expand_dims(labels, -1)
        return keras.ops.mean(keras.ops.cast(loss(keras.ops.cast(labels, output.dtype), output), "float32"))

    return mean


def _of_keras(wanted: Component, module: ModuleType, where: str) -> Any:
    name, arguments = wanted.name, wanted.arguments
    if name in SHORT and not arguments:
        return name
    kind = _class(name, module)
    if kind is None or not (arguments or isinstance(getattr(module, name, None), type)):
        try:
            function = module.get(name)
        except (ValueError, TypeError):
            raise _no_such(name, module, where) from None
        kind = _class(getattr(function, "__name__", ""), module)
        if not arguments:
            return function
    if kind is None:
        raise ConfigurationError(
            f"{name} takes no arguments ({shown_arguments(arguments)})", where=where, cure="leave the arguments out"
        )
    with errors_of_user_code(f"{name} with ({shown_arguments(arguments)})", where):
        return kind(**arguments)


def _class(name: str, module: ModuleType) -> type | None:
    """The class of this name, or of the function of this name: ``MeanSquaredError`` of ``mean_squared_error``."""
    classes = {key.lower(): value for key, value in vars(module).items() if isinstance(value, type)}
    return classes.get(name.replace("_", "").lower())


def _no_such(name: str, module: ModuleType, where: str) -> ConfigurationError:
    functions = ("get", "serialize", "deserialize")
    known = [key for key in vars(module) if not key.startswith("_") and key not in functions]
    first = ["accuracy", "AUC", "Precision", "Recall"] if where == "metrics" else []
    return ConfigurationError(
        f"Keras has no {'loss' if where == 'loss' else 'metric'} {name}",
        where=where,
        cure=f"{suggestion(name, first + [key for key in known if key.islower()])}; or write file.py:function",
    )
