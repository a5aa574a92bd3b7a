"""Losses and metrics of Keras as sums that add up over batches and ranks.

A metric's state variables are additive where its result is a function of sums over the samples: true of means and of
everything made of a confusion matrix. Those that are not, are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mpi_learn.errors import ConfigurationError, DataError, ModelError
from mpi_learn.flat_layout import FIRST_METRIC, N_WORDS
from mpi_learn.settings.user_code import is_function, load_function, metric_key
from mpi_learn.settings.yaml_file import nearest

Shape = tuple[int | None, ...]

ADDITIVE = (
    keras.metrics.Mean, keras.metrics.Sum, keras.metrics.AUC, keras.metrics.Precision, keras.metrics.Recall,
    keras.metrics.TruePositives, keras.metrics.TrueNegatives, keras.metrics.FalsePositives,
    keras.metrics.FalseNegatives, keras.metrics.SensitivityAtSpecificity, keras.metrics.SpecificityAtSensitivity,
    keras.metrics.PrecisionAtRecall, keras.metrics.RecallAtPrecision, keras.metrics.FBetaScore, keras.metrics.IoU,
    keras.metrics.R2Score,
)  # fmt: skip
"""Metrics whose state is a sum over samples that starts from zero."""

ACCURACIES = ("accuracy", "acc"), ("binary_accuracy", "categorical_accuracy", "sparse_categorical_accuracy")
ENTROPIES = (
    ("crossentropy", "ce"),
    ("binary_crossentropy", "categorical_crossentropy", "sparse_categorical_crossentropy"),
)


class Sums:
    """What of a batch adds up: number of samples, loss, and the states of the metrics.

    Args:
        outputs: The shapes of the model's outputs, batch first.
        loss, metrics: As in the configuration, with absolute paths.
        y: A few labels, one array per output.
        names: Of the outputs, where they have any.

    Raises:
        ConfigurationError: No such loss or metric, or it does not add up.
        ModelError, DataError: Outputs and labels do not fit together.
    """

    def __init__(self, outputs: list[Shape], loss: Any, metrics: Any, y: Any, names: Sequence[str] = ()) -> None:
        if len(y) != len(outputs):
            raise ModelError(
                f"the model has {len(outputs)} outputs, the data have labels for {len(y)}", where="data.labels"
            )
        losses = _per_output(loss, len(y), names)
        self.losses = [Loss(*of_output) for of_output in zip(losses, outputs, y, strict=True)]
        self._metrics = [
            (index, _metric(name, outputs[index], y[index], key)) for index, name, key in _named(metrics, len(y), names)
        ]
        self._sizes = [[int(np.prod(one.shape)) for one in metric.variables] for _, metric in self._metrics]
        self.n = FIRST_METRIC + N_WORDS + sum(map(sum, self._sizes))

    def of(self, y: Any, outputs: Any, penalty: tf.Tensor) -> list[tf.Tensor]:
        """In a compiled function: [samples, summed loss, metric states …] of one batch."""
        n = tf.cast(tf.shape(outputs[0])[0], tf.float32)
        total = n * penalty
        for loss, labels, output in zip(self.losses, y, outputs, strict=True):
            total += loss.summed(labels, output)
        states = []
        for index, metric in self._metrics:
            zeros = [tf.zeros(one.shape, one.dtype) for one in metric.variables]
            labels = matched(y[index], outputs[index])
            states += metric.stateless_update_state(zeros, labels, outputs[index])
        return [n, total, *states]

    def results(self, states: np.ndarray) -> dict[str, float]:
        """Name -> value from the summed states of all metrics, joined."""
        results, start = {}, 0
        for (_, metric), sizes in zip(self._metrics, self._sizes, strict=True):
            parts = np.split(states[start : start + sum(sizes)], np.cumsum(sizes)[:-1])
            start += sum(sizes)
            results[metric.name] = _result(metric, parts)
        return results


class Loss:
    """One output's loss, summed over samples.

    Args:
        specification: A Keras loss by name, or ``file.py:function`` of (labels, outputs).
        output: The shape of the output.
        labels: A few labels.
    """

    def __init__(self, specification: str, output: Shape, labels: np.ndarray) -> None:
        self.function = _loss_function(specification)
        name = getattr(self.function, "name", None) or getattr(self.function, "__name__", "")
        self.name = name
        self.n_classes = output[-1] if name == "sparse_categorical_crossentropy" else None
        if not is_function(specification):
            _check_labels(name, output, labels)

    def summed(self, labels: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
        """Mean over a sample's elements, summed over the samples; scalar float32."""
        call = self.function.call if isinstance(self.function, keras.losses.Loss) else self.function
        values = tf.cast(call(matched(labels, output), output), tf.float32)
        if values.shape.rank == 0:  # a user's function that gives the mean itself
            return values * tf.cast(tf.shape(output)[0], tf.float32)
        return tf.reduce_sum(tf.reduce_mean(tf.reshape(values, [tf.shape(values)[0], -1]), 1))


def matched(labels: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
    """Labels (n,) for an output (n, 1) as (n, 1): else their difference would be of shape (n, n).

    Class numbers become real numbers, as Keras has it.
    """
    labels = tf.cast(labels, output.dtype)
    if labels.shape.rank == output.shape.rank - 1 and output.shape[-1] == 1:
        return tf.expand_dims(labels, -1)
    return labels


def check_label_range(losses: list[Loss], y: Any) -> None:
    """Raises DataError if a label lies outside of what the model's output and the loss can mean.

    Args:
        losses: One per output.
        y: One array of labels per output; all of them, not a few.
    """
    for loss, labels in zip(losses, y, strict=True):
        if not labels.size:
            continue
        low, high = labels.min(), labels.max()
        if loss.n_classes is not None and (low < 0 or high >= loss.n_classes):
            outside = int(low if low < 0 else high)
            raise DataError(
                f"label {outside} lies outside of the model's {loss.n_classes} classes 0…{loss.n_classes - 1}",
                where="data.labels",
                cure=f"give the model {int(high) + 1} outputs" if low >= 0 else "number the classes from 0",
            )
        if loss.name == "binary_crossentropy" and (low < 0 or high > 1):
            raise DataError(
                f"binary_crossentropy needs labels from 0 to 1, found {low}…{high}",
                where="data.labels",
                cure="use sparse_categorical_crossentropy for more than two classes",
            )


def _check_labels(name: str, output: Shape, labels: np.ndarray) -> None:
    expected, found = output[1:], labels.shape[1:]
    if name == "sparse_categorical_crossentropy":
        if found in (expected[:-1], (*expected[:-1], 1)) or None in expected:
            return
        cure = "use categorical_crossentropy for one-hot labels" if found == expected else ""
        expected = expected[:-1]
    elif found in (expected, expected[:-1] if expected and expected[-1] == 1 else expected) or None in expected:
        return
    else:
        is_class_number = found == () and name.startswith("categorical")
        cure = "use sparse_categorical_crossentropy for class numbers" if is_class_number else ""
    raise ModelError(
        f"with {name} the model's output of shape {output[1:]} needs labels of shape {expected} per sample, "
        f"the data have {found}",
        where="data.labels",
        cure=cure,
    )


def _per_output(loss: Any, n_outputs: int, names: Sequence[str]) -> list[str]:
    if isinstance(loss, str):
        return [loss] * n_outputs
    if len(loss) != n_outputs:
        raise ConfigurationError(f"{len(loss)} losses for a model with {n_outputs} outputs", where="loss")
    if isinstance(loss, dict):
        return [one for _, one in sorted(zip(_places(loss, names, "loss"), loss.values(), strict=True))]
    return loss


def _places(mapping: dict[str, Any], names: Sequence[str], where: str) -> list[int]:
    """Which output each key of a mapping means: the one of this name; where all have other names, they go in order."""
    if set(mapping) <= set(names):
        return [names.index(key) for key in mapping]
    for place, key in enumerate(mapping):
        if key in names and names.index(key) != place:
            raise ConfigurationError(
                f"{key} stands at place {place + 1}, the model's output of this name is number {names.index(key) + 1}",
                where=where,
                cure=f"use the names of the outputs: {', '.join(names)}",
            )
    return list(range(len(mapping)))


def _named(metrics: Any, n_outputs: int, names: Sequence[str]) -> list[tuple[int, str, str]]:
    """(output's index, metric, key in the history) for each metric."""
    if isinstance(metrics, dict):
        if len(metrics) > n_outputs:
            raise ConfigurationError(f"metrics for {len(metrics)} outputs, the model has {n_outputs}", where="metrics")
        pairs = zip(_places(metrics, names, "metrics"), metrics.items(), strict=True)
        return [(index, name, f"{output}_{metric_key(name)}") for index, (output, ones) in pairs for name in ones]
    if metrics and n_outputs > 1:
        raise ConfigurationError(
            f"the model has {n_outputs} outputs: of which are these metrics?",
            where="metrics",
            cure="write a mapping by the names of the outputs, e.g. {energy: [mae], kind: [accuracy]}",
        )
    return [(0, name, metric_key(name)) for name in metrics]


def _loss_function(specification: str) -> Callable[..., Any]:
    if is_function(specification):
        return load_function(specification)
    try:
        return keras.losses.get(specification)
    except ValueError:
        raise _no_such("loss", specification, keras.losses) from None


def _metric(specification: str, output: Shape, labels: np.ndarray, key: str) -> keras.metrics.Metric:
    found: Any = (
        load_function(specification) if is_function(specification) else _keras_metric(specification, output, labels)
    )
    if isinstance(found, type):
        found = found()
    if not isinstance(found, keras.metrics.Metric):
        found = keras.metrics.MeanMetricWrapper(found, name=key)
    if not isinstance(found, ADDITIVE):
        raise ConfigurationError(
            f"{specification} does not add up over batches and ranks",
            where="metrics",
            cure="use a mean over samples, or a figure_of_merit function on the trained model",
        )
    found.name = key
    if not found.variables:  # some make their variables when they first see an output
        found.update_state(matched(tf.constant(labels[:1]), tf.zeros([1, *output[1:]])), tf.zeros([1, *output[1:]]))
    return found


def _keras_metric(name: str, output: Shape, labels: np.ndarray) -> Any:
    for short, (binary, one_hot, class_number) in (ACCURACIES, ENTROPIES):
        if name in short:
            is_class_number = labels.ndim < len(output) or labels.shape[-1] == 1
            name = binary if output[-1] == 1 else class_number if is_class_number else one_hot
    try:
        return keras.metrics.get(name)
    except ValueError:
        raise _no_such("metric", name, keras.metrics) from None


def _no_such(what: str, name: str, module: Any) -> ConfigurationError:
    functions = ("get", "serialize", "deserialize")
    known = [key for key in vars(module) if key.islower() and not key.startswith("_") and key not in functions]
    near = nearest(name, ["accuracy", "AUC", "Precision", "Recall", *known] if what == "metric" else known)
    where = "loss" if what == "loss" else "metrics"
    return ConfigurationError(
        f"Keras has no {what} {name}",
        where=where,
        cure=f"did you mean {near}?" if near else "or write file.py:function",
    )


def _result(metric: keras.metrics.Metric, parts: list[np.ndarray]) -> float:
    if type(metric).result is keras.metrics.Mean.result:
        total, count = float(parts[0].sum()), float(parts[1].sum())
        return total / count if count else 0.0
    variables = [tf.cast(part.reshape(one.shape), one.dtype) for part, one in zip(parts, metric.variables, strict=True)]
    return float(np.mean(metric.stateless_result(variables)))
