"""Keras 3 models on TensorFlow: one flat vector of weights, one compiled step that returns one flat gradient.

The weights live in numpy memory that TensorFlow reads through DLPack without a copy, so that optimizer and MPI change
them in place between two steps. The compiled step cuts the vector into the layers' arrays, runs the model statelessly
on them, and joins gradient and sums to one tensor, on whose own memory MPI then works.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mpi_learn.errors import ModelError
from mpi_learn.flat import FIRST_METRIC, LOSS, N_SAMPLES, N_WORDS, FlatLayout, aligned_empty
from mpi_learn.models.keras_losses import Sums, check_label_range
from mpi_learn.models.model import Arrays, Model

Tensors = tuple[tf.Tensor, ...]
Specs = tuple[tf.TensorSpec, ...]


class KerasModel(Model):
    """A Keras model as one flat vector.

    Args:
        model: Built, with at least one trainable array.
        loss, metrics: As in the configuration, with absolute paths.
        x, y: A few samples, for shapes and types: one array per input and output.
        stream: Makes the model's random generators draw other numbers: give the rank.

    Raises:
        ModelError: Model, loss, metrics and samples do not fit together; shows both shapes.
    """

    def __init__(self, model: keras.Model, loss: Any, metrics: Any, x: Arrays, y: Arrays, stream: int = 0) -> None:
        self.model = model
        if not model.built:
            model(_as_called([keras.ops.convert_to_tensor(one[:1]) for one in x]))
        outputs = check_shapes(model, x)
        self.layout = FlatLayout(tuple(tuple(variable.shape) for variable in model.trainable_variables))
        self.weights = aligned_empty(self.layout.size)
        for view, variable in zip(self.layout.views(self.weights), model.trainable_variables, strict=True):
            view[...] = np.asarray(variable)
        self.sums = Sums(outputs, loss, metrics, y)
        self.n_sums = self.sums.n
        variables = model.non_trainable_variables
        self._moving = [
            one for one in variables if np.issubdtype(keras.backend.standardize_dtype(one.dtype), np.floating)
        ]
        self._counters = [one for one in variables if not any(one is other for other in self._moving)]
        self._separate_generators(stream)
        self._tensor = _shared_tensor(self.weights)
        step, *self._later = self._compiled(_specs(x), _specs(y))
        try:  # traced now, so that what does not fit shows before the first step, and called without binding arguments
            self._step = step.get_concrete_function()
        except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
            raise ModelError(f"model, loss and data do not fit together: {error}", where="model") from error

    def gradient(self, x: Arrays, y: Arrays) -> np.ndarray:
        """See `Model.gradient`."""
        if len(x[0]) == 0:
            return np.zeros(self.layout.size + self.n_sums, np.float32)
        return _memory_of(self._step(self._flat(), _tensors(x), _tensors(y)))

    def evaluate(self, x: Arrays, y: Arrays) -> np.ndarray:
        """See `Model.evaluate`."""
        return self._traced(0)(self._flat(), _tensors(x), _tensors(y)).numpy().astype(np.float64)

    def check_labels(self, y: Arrays) -> None:
        """See `Model.check_labels`."""
        check_label_range(self.sums.losses, y)

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """See `Model.metrics`."""
        n = max(float(sums[N_SAMPLES]), 1.0)
        return {"loss": float(sums[LOSS]) / n} | self.sums.results(sums[FIRST_METRIC:-N_WORDS])

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        """See `Model.predict`."""
        return tuple(output.numpy() for output in self._traced(1)(self._flat(), _tensors(x)))

    def moving(self) -> np.ndarray:
        """See `Model.moving`."""
        return _joined(self._moving, np.float32)

    def set_moving(self, values: np.ndarray) -> None:
        """See `Model.set_moving`."""
        _assign(self._moving, values)

    def counters(self) -> np.ndarray:
        """See `Model.counters`."""
        return _joined(self._counters, np.int64)

    def set_counters(self, values: np.ndarray) -> None:
        """See `Model.set_counters`."""
        _assign(self._counters, values)

    def finish(self) -> keras.Model:
        """See `Model.finish`."""
        for view, variable in zip(self.layout.views(self.weights), self.model.trainable_variables, strict=True):
            variable.assign(view)
        return self.model

    def save(self, path: Path) -> Path:
        """See `Model.save`."""
        file = path.with_suffix(".keras")
        aside = path.with_name(f".{path.stem}.writing.keras")
        self.finish().save(aside)
        return aside.rename(file)

    def close(self) -> None:
        """Drops the compiled functions and Keras' global state, so that memory does not grow from model to model."""
        self._step = self._tensor = None
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

    def _separate_generators(self, stream: int) -> None:
        """Dropout and noise draw from integer states (seed, counter): each rank gets a seed of its own."""
        for variable in self._counters:
            if tuple(variable.shape) == (2,):
                state = np.asarray(variable)
                variable.assign((state + np.array([stream * 1_000_003, 0])).astype(state.dtype))

    def _parts(self, flat: tf.Tensor) -> list[tf.Tensor]:
        sizes = np.diff(self.layout.bounds).tolist()
        pieces = tf.split(flat, sizes) if len(sizes) > 1 else [flat]
        variables = self.model.trainable_variables
        return [
            tf.cast(tf.reshape(piece, variable.shape), variable.dtype)
            for piece, variable in zip(pieces, variables, strict=True)
        ]

    def _call(self, parts: list[tf.Tensor], x: Tensors, training: bool) -> tuple[Tensors, list[Any], tf.Tensor]:
        """Outputs, new non-trainable values, and the sum of the regularisation losses."""
        variables = self.model.non_trainable_variables
        outputs, values, losses = self.model.stateless_call(
            parts,
            [variable.value for variable in variables],
            _as_called(x),
            training=training,
            return_losses=True,
        )
        return (
            tuple(keras.tree.flatten(outputs)),
            values,
            tf.add_n([tf.cast(one, tf.float32) for one in losses] or [0.0]),
        )

    def _compiled(
        self, x: Specs, y: Specs
    ) -> tuple[Callable[..., tf.Tensor], Callable[..., tf.Tensor], Callable[..., Tensors]]:
        """Step, forward and predict; traced at their first call, once for all batch sizes."""
        flat = tf.TensorSpec([self.layout.size], tf.float32)

        @tf.function(input_signature=[flat, x, y], autograph=False)
        def step(flat: tf.Tensor, x: Tensors, y: Tensors) -> tf.Tensor:
            parts = self._parts(flat)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(parts)
                outputs, values, penalty = self._call(parts, x, training=True)
                sums = self.sums.of(y, outputs, penalty)
            gradients = tape.gradient(sums[LOSS], parts, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            for variable, value in zip(self.model.non_trainable_variables, values, strict=True):
                variable.assign(value)
            return tf.concat([*(_flattened(one) for one in (*gradients, *sums)), [0.0] * N_WORDS], 0)

        @tf.function(input_signature=[flat, x, y], autograph=False)
        def forward(flat: tf.Tensor, x: Tensors, y: Tensors) -> tf.Tensor:
            outputs, _, penalty = self._call(self._parts(flat), x, training=False)
            return tf.concat([*(_flattened(one) for one in self.sums.of(y, outputs, penalty)), [0.0] * N_WORDS], 0)

        @tf.function(input_signature=[flat, x], autograph=False)
        def predict(flat: tf.Tensor, x: Tensors) -> Tensors:
            return self._call(self._parts(flat), x, training=False)[0]

        return step, forward, predict


def check_shapes(model: keras.Model, x: Arrays) -> list[tuple[int | None, ...]]:
    """The shapes of the model's outputs; raises ModelError unless the samples fit its inputs."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        outputs = model(_as_called([keras.ops.convert_to_tensor(one[:1]) for one in x]))
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


def _as_called(x: Sequence[Any]) -> Any:
    """A model with one input is called with it, one with several with a list."""
    return x[0] if len(x) == 1 else list(x)


def _specs(arrays: Arrays) -> Specs:
    return tuple(tf.TensorSpec([None, *array.shape[1:]], tf.as_dtype(array.dtype)) for array in arrays)


def _tensors(arrays: Arrays) -> Tensors:
    return tuple(tf.convert_to_tensor(array) for array in arrays)


def _flattened(tensor: Any) -> tf.Tensor:
    return tf.reshape(tf.cast(tf.convert_to_tensor(tensor), tf.float32), [-1])


def _shared_tensor(weights: np.ndarray) -> tf.Tensor | None:
    """A tensor on the memory of `weights`; None where the two do not share it, as on a GPU."""
    if tf.config.list_logical_devices("GPU"):
        return None
    tensor = tf.experimental.dlpack.from_dlpack(weights.__dlpack__())
    return tensor if _memory_of(tensor).ctypes.data == weights.ctypes.data else None


def _memory_of(tensor: tf.Tensor) -> np.ndarray:
    """The tensor's own memory as a writable array; a copy where that is not to be had.

    `_numpy` is private to TensorFlow; it is called here alone.
    """
    try:
        array = tensor._numpy()
    except AttributeError:
        array = tensor.numpy()
    return array if array.flags.writeable else array.copy()


def _joined(variables: list[Any], dtype: type) -> np.ndarray:
    parts = [np.asarray(variable).astype(dtype).ravel() for variable in variables]
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _assign(variables: list[Any], values: np.ndarray) -> None:
    start = 0
    for variable in variables:
        size = int(np.prod(variable.shape))
        part = values[start : start + size].reshape(variable.shape)
        variable.assign(part.astype(keras.backend.standardize_dtype(variable.dtype)))
        start += size
