"""A Keras model without its loss: trainable arrays that are parts of a flat vector, and all other state."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.configuration import PLAIN, Computing
from mpi_learn.models.keras_.keras_checkpointing import check_precision, recomputed
from mpi_learn.models.model import Arrays

Tensors = tuple[tf.Tensor, ...]
Specs = tuple[tf.TensorSpec, ...]


class KerasNetwork:
    """What is computed with a model whose trainable arrays are given from outside.

    Args:
        model: Built.
        stream: Makes its random generators draw other numbers: give the rank.
        computing: In which precision it was built, and whether activations are computed again in the backward pass.

    Attributes:
        layout: Of the trainable arrays.
        moving: The non-trainable variables that are real numbers (moving means and variances).
        counters: Those that are whole numbers (states of random generators).
    """

    def __init__(self, model: keras.Model, stream: int, computing: Computing = PLAIN) -> None:
        self.model, self.computing = model, computing
        check_precision(model, computing)
        self.layout = FlatLayout(tuple(tuple(variable.shape) for variable in model.trainable_variables))
        variables = model.non_trainable_variables
        self.moving = [
            one for one in variables if np.issubdtype(keras.backend.standardize_dtype(one.dtype), np.floating)
        ]
        self.counters = [one for one in variables if not any(one is other for other in self.moving)]
        self._separate_generators(stream)

    def give(self, weights: np.ndarray) -> None:
        """Copies the model's trainable arrays into `weights`, (layout.size,) float32."""
        for view, variable in zip(self.layout.views(weights), self.model.trainable_variables, strict=True):
            view[...] = np.asarray(variable)

    def take(self, weights: np.ndarray) -> keras.Model:
        """Copies `weights` into the model's trainable arrays; returns the model."""
        for view, variable in zip(self.layout.views(weights), self.model.trainable_variables, strict=True):
            variable.assign(view)
        return self.model

    def parts(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """The trainable arrays that lie in `flat`, as the model computes with them."""
        sizes = np.diff(self.layout.bounds).tolist()
        pieces = tf.split(flat, sizes) if len(sizes) > 1 else [flat]
        variables = self.model.trainable_variables
        return [
            tf.cast(tf.reshape(piece, variable.shape), variable.dtype)
            for piece, variable in zip(pieces, variables, strict=True)
        ]

    def call(self, parts: list[tf.Tensor], x: Tensors, training: bool) -> tuple[Tensors, list[Any], tf.Tensor]:
        """Outputs as float32, new non-trainable values, and the sum of the regularisation losses."""
        is_recomputed = training and self.computing.gradient_checkpointing
        with recomputed(self.model) if is_recomputed else nullcontext():
            outputs, values, losses = self.model.stateless_call(
                parts,
                [variable.value for variable in self.model.non_trainable_variables],
                as_called(x),
                training=training,
                return_losses=True,
            )
        penalty = tf.add_n([tf.cast(one, tf.float32) for one in losses] or [0.0])
        return tuple(tf.cast(one, tf.float32) for one in keras.tree.flatten(outputs)), values, penalty

    def move_on(self, values: list[Any], *, with_moving: bool = True) -> None:
        """Takes the new non-trainable values that `call` gave; if not `with_moving`, those of generators alone."""
        for variable, value in zip(self.model.non_trainable_variables, values, strict=True):
            if with_moving or any(variable is one for one in self.counters):
                variable.assign(value)

    def _separate_generators(self, stream: int) -> None:
        """Dropout and noise draw from integer states (seed, counter): each rank gets a seed of its own."""
        for variable in self.counters:
            if tuple(variable.shape) == (2,):
                state = np.asarray(variable)
                variable.assign((state + np.array([stream * 1_000_003, 0])).astype(state.dtype))


def as_called(x: Sequence[Any]) -> Any:
    """A model with one input is called with it, one with several with a list."""
    return x[0] if len(x) == 1 else list(x)


def specs(arrays: Arrays) -> Specs:
    """What a compiled function is called with: such arrays, of any number of samples."""
    return tuple(tf.TensorSpec([None, *array.shape[1:]], tf.as_dtype(array.dtype)) for array in arrays)


def tensors(arrays: Arrays) -> Tensors:
    """The arrays as tensors."""
    return tuple(tf.convert_to_tensor(array) for array in arrays)


def flattened(tensor: Any) -> tf.Tensor:
    """As a vector, float32."""
    return tf.reshape(tf.cast(tf.convert_to_tensor(tensor), tf.float32), [-1])


def shared_tensor(weights: np.ndarray) -> tf.Tensor | None:
    """A tensor on the memory of `weights`; None where the two do not share it, as on a GPU."""
    if tf.config.list_logical_devices("GPU"):
        return None
    tensor = tf.experimental.dlpack.from_dlpack(weights.__dlpack__())
    return tensor if memory_of(tensor).ctypes.data == weights.ctypes.data else None


def memory_of(tensor: tf.Tensor) -> np.ndarray:
    """The tensor's own memory as a writable array; a copy where that is not to be had.

    `_numpy` is private to TensorFlow; it is called here alone.
    """
    try:
        array = tensor._numpy()
    except AttributeError:
        array = tensor.numpy()
    return array if array.flags.writeable else array.copy()


def joined(variables: list[Any], dtype: type) -> np.ndarray:
    """The variables' values one behind the other, a copy."""
    parts = [np.asarray(variable).astype(dtype).ravel() for variable in variables]
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def assign(variables: list[Any], values: np.ndarray) -> None:
    """Gives back what `joined` gave."""
    start = 0
    for variable in variables:
        size = int(np.prod(variable.shape))
        part = values[start : start + size].reshape(variable.shape)
        variable.assign(part.astype(keras.backend.standardize_dtype(variable.dtype)))
        start += size
