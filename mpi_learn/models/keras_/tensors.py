"""NumPy arrays as tensors of TensorFlow and back, without copies where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.settings import Arrays, Tensors

Specs = tuple[tf.TensorSpec, ...]


def uses_gpu() -> bool:
    """Whether TensorFlow computes on a GPU."""
    return bool(tf.config.list_logical_devices("GPU"))


def specs(arrays: Arrays) -> Specs:
    """The signature of a compiled function that takes such arrays, of any number of samples."""
    return tuple(tf.TensorSpec([None, *array.shape[1:]], tf.as_dtype(array.dtype)) for array in arrays)


def tensors(arrays: Arrays) -> Tensors:
    """The arrays as tensors."""
    return tuple(tf.convert_to_tensor(array) for array in arrays)


def flattened(tensor: Any) -> Any:
    """A tensor as a float32 vector."""
    return tf.reshape(tf.cast(tf.convert_to_tensor(tensor), tf.float32), [-1])


def as_tensor(weights: np.ndarray) -> Callable[[], Any]:
    """A function that returns `weights` as a tensor, without a copy where the two can share memory."""
    if not uses_gpu():
        tensor = tf.experimental.dlpack.from_dlpack(weights.__dlpack__())
        if memory_of(tensor).ctypes.data == weights.ctypes.data:
            return lambda: tensor
    return lambda: tf.convert_to_tensor(weights)


def memory_of(tensor: Any) -> np.ndarray:
    """The tensor's own memory as a writable array; a copy if that is not available.

    `_numpy` is private to TensorFlow; this is its only use.
    """
    try:
        array: np.ndarray = tensor._numpy()
    except AttributeError:
        array = tensor.numpy()
    return array if array.flags.writeable else array.copy()


def is_float(variable: Any) -> bool:
    """Whether the values of a variable are real numbers."""
    return bool(keras.backend.is_float_dtype(variable.dtype))


def assign(variables: list[Any], values: np.ndarray) -> None:
    """Assigns the first elements of `values`, in the order of `joined`."""
    for variable, part in zip(variables, FlatLayout.of(variables).views(values), strict=True):
        variable.assign(part.astype(keras.backend.standardize_dtype(variable.dtype)))
