"""Losses and metrics of Keras from the configuration, in the structure that `keras.Model.compile` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import keras
import numpy as np

from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.models.labels import LabelRule
from mpi_learn.models.outputs import Outputs, Shape
from mpi_learn.models.settings import Example
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


class Run(NamedTuple):
    """The result of an eager pass: returned values by name, changes of the metric states, variables after it."""

    logs: dict[str, np.ndarray]
    change: list[np.ndarray]
    trainable: list[np.ndarray]
    others: list[np.ndarray]


RunPass = Callable[[Example, Sequence[np.ndarray]], Run]
"""(samples, values of the metric states before them) -> the result of a pass."""


class MetricStates:
    """The state variables of all metrics of a model, whose metrics are built.

    Args:
        model: A compiled model.

    Attributes:
        variables: The state variables.
        initial: Their values before the first batch.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        model.reset_metrics()
        self.variables = list(model.metrics_variables)
        self.initial = [np.array(variable) for variable in self.variables]
        self._layout = FlatLayout.of(self.initial)
        places = {id(variable): place for place, variable in enumerate(self.variables)}
        compiled_loss = getattr(model, "_compile_loss", None)  # private, but needed: it has the losses of the outputs
        means = () if compiled_loss is None else compiled_loss.metrics
        of_means = [[places.get(id(variable)) for variable in mean.variables] for mean in means]
        self._losses = [(total, count) for total, count in of_means if total is not None and count is not None]

    @property
    def size(self) -> int:
        """The number of elements of all states."""
        return self._layout.size

    def change(self, values: Sequence[Any], before: Sequence[Any], n: Any) -> list[Any]:
        """The change of each state by a batch of `n` samples.

        The losses of single outputs are counted `n` times. Keras counts them once per batch in a function that is
        traced for any size of the batch, so that their means would depend on the sizes.
        """
        change = [value - start for value, start in zip(values, before, strict=True)]
        for total, count in self._losses:
            factor = keras.ops.divide_no_nan(n, change[count])
            change[total], change[count] = factor * change[total], factor * change[count]
        return change

    def results(self, sums: np.ndarray) -> dict[str, float]:
        """The values of all metrics by name, from the sums of the changes of their states, (size,).

        The metric ``loss`` of Keras is left out if it is 0: only a `train_step` or `test_step` of the user updates it.
        """
        results = self._results(self._layout.views(sums))
        return {name: float(value) for name, value in results.items() if value or name != "loss"}

    def check(self, run: RunPass, example: Example) -> list[str]:
        """Checks that the metrics are sums over samples, as far as some samples show.

        Args:
            run: Runs a training or inference pass.
            example: The samples.

        Returns:
            The names of values that the pass returns and no metric holds.

        Raises:
            ConfigurationError: A metric's state depends on the order of the batches, or its result is not one number.
        """
        logs, change, *_ = run(example, self.initial)
        results = self._results(change)
        for name, value in results.items():
            if np.ndim(value):
                raise ConfigurationError(
                    f"the metric {name} gives {np.size(value)} values, expected one number",
                    where="metrics",
                    cure=f"give it an average: {{name: {name}, average: macro}}",
                )
        middle = len(example) // 2
        if middle:
            self._check_sums(run, example.part(0, middle), example.part(middle, len(example)))
        return [
            name
            for name, value in logs.items()
            if name != "loss" and not (name in results and np.allclose(results[name], value, rtol=1e-3))
        ]

    def _check_sums(self, run: RunPass, first: Example, second: Example) -> None:
        """Raises ConfigurationError if the change by the second batch depends on the first one."""
        later = [start + change for start, change in zip(self.initial, run(first, self.initial).change, strict=True)]
        pairs = zip(run(second, self.initial).change, run(second, later).change, strict=True)
        for variable, (alone, after) in zip(self.variables, pairs, strict=True):
            if not np.allclose(alone, after, rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(alone).max(initial=0)))):
                raise ConfigurationError(
                    f"the metric {self._metric_of(variable)} does not add up over batches and ranks",
                    where="metrics",
                    cure="use a mean over samples, or a figure_of_merit function on the trained model",
                )

    def _metric_of(self, variable: Any) -> str:
        leaves = [leaf for metric in self._model.metrics for leaf in getattr(metric, "metrics", None) or [metric]]
        return str(next(metric.name for metric in leaves if any(variable is other for other in metric.variables)))

    def _results(self, changes: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        values = [
            keras.ops.cast(start + change, variable.dtype)
            for start, change, variable in zip(self.initial, changes, self.variables, strict=True)
        ]
        with keras.StatelessScope(list(zip(self.variables, values, strict=True))):
            return {name: keras.ops.convert_to_numpy(value) for name, value in self._model.get_metrics_result().items()}
