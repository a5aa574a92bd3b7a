"""Keras 3 models on TensorFlow: one flat vector of weights, one compiled step that returns one flat gradient.

The weights live in numpy memory that TensorFlow reads through DLPack without a copy, so that optimizer and MPI change
them in place between two steps. The compiled step cuts the vector into the layers' arrays, runs the model statelessly
on them, and joins gradient and sums to one tensor, on whose own memory MPI then works.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mpi_learn.errors import ModelError
from mpi_learn.flat_layout import FIRST_METRIC, LOSS, N_SAMPLES, N_WORDS, aligned_empty
from mpi_learn.models.configuration import PLAIN, Computing
from mpi_learn.models.keras_.keras_losses import Sums, check_label_range
from mpi_learn.models.keras_.keras_network import (
    KerasNetwork,
    Specs,
    Tensors,
    as_called,
    assign,
    flattened,
    joined,
    memory_of,
    shared_tensor,
    specs,
    tensors,
)
from mpi_learn.models.model import Arrays, Model


class KerasModel(Model):
    """A Keras model as one flat vector.

    Args:
        model: Built, with at least one trainable array.
        loss, metrics: As in the configuration, with absolute paths.
        x, y: A few samples, for shapes and types: one array per input and output.
        stream: Makes the model's random generators draw other numbers: give the rank.
        computing: In which precision, and whether activations are computed again.

    Raises:
        ModelError: Model, loss, metrics and samples do not fit together; shows both shapes.
    """

    has_xla = True

    def __init__(
        self,
        model: keras.Model,
        loss: Any,
        metrics: Any,
        x: Arrays,
        y: Arrays,
        stream: int = 0,
        computing: Computing = PLAIN,
    ) -> None:
        if not model.built:
            model(as_called([keras.ops.convert_to_tensor(one[:1]) for one in x]))
        if not model.trainable_variables:
            raise ModelError("the model has no array to train", where="model", cure="make one of its layers trainable")
        outputs = check_shapes(model, x)
        self.network = KerasNetwork(model, stream, computing)
        self.layout = self.network.layout
        self.weights = aligned_empty(self.layout.size)
        self.network.give(self.weights)
        self.sums = Sums(outputs, loss, metrics, y, getattr(model, "output_names", ()))
        self.n_sums = self.sums.n
        self._tensor = shared_tensor(self.weights)
        self._by_xla: Callable[..., tf.Tensor] | None = None
        self._n_by_xla = 0
        self._eager_step, step, *self._later = self._compiled(specs(x), specs(y))
        try:  # traced now, so that what does not fit shows before the first step, and called without binding arguments
            self._step = step.get_concrete_function()
        except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
            raise ModelError(f"model, loss and data do not fit together: {error}", where="model") from error

    def gradient(self, x: Arrays, y: Arrays) -> np.ndarray:
        """See `Model.gradient`."""
        if len(x[0]) == 0:
            return np.zeros(self.layout.size + self.n_sums, np.float32)
        step = self._step
        if self.is_xla:  # it compiles anew for every size: smaller batches, like an epoch's last, go without
            self._n_by_xla = self._n_by_xla or len(x[0])
            step = self._by_xla if len(x[0]) == self._n_by_xla else step
        return memory_of(step(self._flat(), tensors(x), tensors(y)))

    def compile_step(self, by_xla: bool) -> None:
        """See `Model.compile_step`; the compiling itself happens with the first batch, and once."""
        if by_xla and self._by_xla is None:
            self._by_xla = tf.function(self._eager_step, autograph=False, jit_compile=True)
        self._n_by_xla, self.is_xla = 0, by_xla

    def evaluate(self, x: Arrays, y: Arrays) -> np.ndarray:
        """See `Model.evaluate`."""
        return self._traced(0)(self._flat(), tensors(x), tensors(y)).numpy().astype(np.float64)

    def check_labels(self, y: Arrays) -> None:
        """See `Model.check_labels`."""
        check_label_range(self.sums.losses, y)

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """See `Model.metrics`."""
        n = max(float(sums[N_SAMPLES]), 1.0)
        return {"loss": float(sums[LOSS]) / n} | self.sums.results(sums[FIRST_METRIC:-N_WORDS])

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        """See `Model.predict`."""
        return tuple(output.numpy() for output in self._traced(1)(self._flat(), tensors(x)))

    def moving(self) -> np.ndarray:
        """See `Model.moving`."""
        return joined(self.network.moving, np.float32)

    def set_moving(self, values: np.ndarray) -> None:
        """See `Model.set_moving`."""
        assign(self.network.moving, values)

    def counters(self) -> np.ndarray:
        """See `Model.counters`."""
        return joined(self.network.counters, np.int64)

    def set_counters(self, values: np.ndarray) -> None:
        """See `Model.set_counters`."""
        assign(self.network.counters, values)

    def finish(self) -> keras.Model:
        """See `Model.finish`."""
        return self.network.take(self.weights)

    def save(self, path: Path) -> Path:
        """See `Model.save`."""
        file = path.with_suffix(".keras")
        aside = path.with_name(f".{path.stem}.writing.keras")
        self.finish().save(aside)
        return aside.rename(file)

    def close(self) -> None:
        """Drops the compiled functions and Keras' global state, so that memory does not grow from model to model."""
        self._step = self._by_xla = self._eager_step = self._tensor = None
        self._later.clear()
        keras.backend.clear_session()
        gc.collect()

    def _traced(self, which: int) -> Callable[..., Any]:
        """Forward (0) or predict (1), traced when first wanted."""
        if hasattr(self._later[which], "get_concrete_function"):
            self._later[which] = self._later[which].get_concrete_function()
        return self._later[which]

    def _flat(self) -> tf.Tensor:
        return self._tensor if self._tensor is not None else tf.convert_to_tensor(self.weights)

    def _compiled(
        self, x: Specs, y: Specs
    ) -> tuple[Callable[..., tf.Tensor], Callable[..., tf.Tensor], Callable[..., tf.Tensor], Callable[..., Tensors]]:
        """The step as it is written; step, forward and predict, traced at first call, once for all batch sizes."""
        flat = tf.TensorSpec([self.layout.size], tf.float32)

        def step(flat: tf.Tensor, x: Tensors, y: Tensors) -> tf.Tensor:
            parts = self.network.parts(flat)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(parts)
                outputs, values, penalty = self.network.call(parts, x, training=True)
                sums = self.sums.of(y, outputs, penalty)
            gradients = tape.gradient(sums[LOSS], parts, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            self.network.move_on(values)
            return tf.concat([*(flattened(one) for one in (*gradients, *sums)), [0.0] * N_WORDS], 0)

        @tf.function(input_signature=[flat, x, y], autograph=False)
        def forward(flat: tf.Tensor, x: Tensors, y: Tensors) -> tf.Tensor:
            outputs, _, penalty = self.network.call(self.network.parts(flat), x, training=False)
            return tf.concat([*(flattened(one) for one in self.sums.of(y, outputs, penalty)), [0.0] * N_WORDS], 0)

        @tf.function(input_signature=[flat, x], autograph=False)
        def predict(flat: tf.Tensor, x: Tensors) -> Tensors:
            return self.network.call(self.network.parts(flat), x, training=False)[0]

        return step, tf.function(step, input_signature=[flat, x, y], autograph=False), forward, predict


def check_shapes(model: keras.Model, x: Arrays) -> list[tuple[int | None, ...]]:
    """The shapes of the model's outputs; raises ModelError unless the samples fit its inputs."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        outputs = model(as_called([keras.ops.convert_to_tensor(one[:1]) for one in x]))
        return [(None, *one.shape[1:]) for one in keras.tree.flatten(outputs)]
    expected = [tuple(one.shape[1:]) for one in inputs]
    found = [one.shape[1:] for one in x]
    if len(expected) != len(found) or not all(_is_same_shape(*pair) for pair in zip(expected, found, strict=True)):
        raise ModelError(
            f"the model takes samples of shape {_shown(expected)}, the data have {_shown(found)}",
            where="data.features",
            cure="change the input shape of the model, or data.features",
        )
    return [tuple(one.shape) for one in model.outputs]


def _is_same_shape(expected: tuple[int | None, ...], found: tuple[int, ...]) -> bool:
    return len(expected) == len(found) and all(e in (None, f) for e, f in zip(expected, found, strict=True))


def _shown(shapes: list[tuple[int | None, ...]]) -> str:
    return " and ".join(str(shape) for shape in shapes)
