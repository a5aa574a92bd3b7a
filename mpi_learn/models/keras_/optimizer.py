"""An optimizer of Keras as an update of a flat vector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.framework_optimizers import make_framework_optimizer
from mpi_learn.models.network import joined
from mpi_learn.settings.component import Component
from mpi_learn.settings.user_code import errors_of_user_code

Split = Callable[[Any], Sequence[Any]]
"""A flat vector -> the arrays in it, in the dtypes of the variables."""


class KerasRule:
    """Applies an optimizer to the variables of a model, which receive the weights before each step.

    See `UpdateRule`. Constraints of the variables are applied, as in `fit`.

    Args:
        wanted: The optimizer.
        variables: The trainable variables of a model.
        layout: Layout of the variables.
        split: Splits a flat vector into arrays for the variables.

    Raises:
        ConfigurationError: The optimizer is not available here, or cannot be applied to the variables.
    """

    def __init__(self, wanted: Component, variables: Sequence[Any], layout: FlatLayout, split: Split) -> None:
        self.layout, self._variables, self._split = layout, variables, split
        where = f"optimizer: {wanted.name}"
        self._optimizer = make_framework_optimizer(wanted, keras.optimizers)
        with errors_of_user_code("building it", where):
            self._optimizer.build(self._variables)
        self._parts = parts = getattr(self._optimizer, "optimizers", [self._optimizer])  # those of a MultiOptimizer
        for part in parts:
            _check(part, where)
        self.has_final_weights = any(map(_has_final_weights, (self._optimizer, *parts)))
        self._settable = [part for part in parts if isinstance(part._learning_rate, keras.Variable)]
        self.has_schedule = not self._settable
        self._initial_rate = max(float(part.learning_rate) for part in parts)
        self._shares = [float(part.learning_rate) / (self._initial_rate or 1.0) for part in self._settable]
        with errors_of_user_code("a step", where):
            all_used = (True,) * len(variables)
            self._steps = {all_used: self._traced(all_used)}
        names = names_of_state(self._optimizer, self._variables)
        self._arrays = dict(zip(names, map(np.array, self._optimizer.variables), strict=True))
        self._may_be_changed = False

    @property
    def learning_rate(self) -> float:
        """See `UpdateRule`; with a schedule of its own, that of the next step."""
        if not self.has_schedule:
            return self._initial_rate
        if self._may_be_changed:
            self._fill()
        return max(float(part.learning_rate) for part in self._parts)

    @property
    def state(self) -> dict[str, np.ndarray]:
        if not self._may_be_changed:  # else a checkpoint may have filled them, and no step has been made since
            for array, variable in zip(self._arrays.values(), self._optimizer.variables, strict=True):
                array[...] = np.asarray(variable)
        self._may_be_changed = True
        return self._arrays

    def apply(
        self,
        weights: np.ndarray,
        gradient: np.ndarray,
        rate: np.float32,
        scale: np.float32,
        weight_factor: np.float32,
    ) -> None:
        if self._may_be_changed:
            self._take_state(weights)
        used, n = tuple(self.layout.used(gradient).tolist()), self.layout.size
        if used not in self._steps:  # which gradients are left out is decided when the step is traced
            self._steps[used] = self._traced(used)
        vectors = tf.convert_to_tensor(weights[:n]), tf.convert_to_tensor(gradient[:n])
        weights[:n] = self._steps[used](*vectors, tf.constant([rate, scale, weight_factor])).numpy()

    def finalize(self, weights: np.ndarray) -> None:
        """Does the same as `fit` after its last epoch."""
        if not self.has_final_weights:
            return
        self._take_state(weights)
        with errors_of_user_code("finalize_variable_values", f"optimizer: {type(self._optimizer).__name__}"):
            self._optimizer.finalize_variable_values(self._variables)
        weights[: self.layout.size] = joined(self._variables, np.float32)

    def _take_state(self, weights: np.ndarray) -> None:
        """Gives the optimizer the weights, and the state that a checkpoint may have filled."""
        if self._may_be_changed:
            self._fill()
            self._may_be_changed = False
        flat = tf.convert_to_tensor(weights[: self.layout.size])
        for variable, value in zip(self._variables, self._split(flat), strict=True):
            variable.assign(value)
        for part in self._parts:  # no step yet, or `start_from` an optimizer without averages: they begin here
            averages = part._model_variables_moving_average if part.use_ema else ()
            for average, variable in zip(averages, part._trainable_variables if averages else (), strict=True):
                if average is not None and not np.any(average):
                    average.assign(variable)

    def _fill(self) -> None:
        """Copies the arrays, which a checkpoint may have filled, into the optimizer."""
        for array, variable in zip(self._arrays.values(), self._optimizer.variables, strict=True):
            variable.assign(array)

    def _traced(self, used: tuple[bool, ...]) -> Callable[..., tf.Tensor]:
        """The step in which some of the variables have a gradient."""
        signature = [tf.TensorSpec([self.layout.size]), tf.TensorSpec([self.layout.size]), tf.TensorSpec([3])]
        step = tf.function(partial(self._compute_step, used), input_signature=signature, autograph=False)
        traced: Callable[..., tf.Tensor] = step.get_concrete_function()
        return traced

    def _compute_step(
        self, used: tuple[bool, ...], weights: tf.Tensor, gradient: tf.Tensor, numbers: tf.Tensor
    ) -> tf.Tensor:
        rate, scale, weight_factor = tf.unstack(numbers)
        values = zip(self._variables, used, self._split(weights), self._split(weights * weight_factor), strict=True)
        for variable, is_used, value, decayed in values:
            variable.assign(decayed if is_used else value)
        for part, share in zip(self._settable, self._shares, strict=True):
            part.learning_rate = share * rate
        gradients = zip(used, self._split(gradient * scale), strict=True)
        self._optimizer.apply([part if is_used else None for is_used, part in gradients], self._variables)
        return tf.concat([tf.reshape(tf.cast(variable.value, tf.float32), [-1]) for variable in self._variables], 0)


def names_of_state(optimizer: Any, variables: Sequence[Any]) -> list[str]:
    """A name for each variable of an optimizer of Keras, such as ``Adam.3.momentum`` for the fourth weight of a model.

    Keras' own names contain those of layers, which differ from program to program. The variables that Keras does not
    name after a weight, as for Adafactor, have their own names; equal ones are numbered.

    Args:
        variables: The model's variables, for which the optimizer is built.
    """
    weights = {variable.path.replace("/", "_"): str(number) for number, variable in enumerate(variables)}
    names: list[str] = []
    n_of_name: Counter[str] = Counter()  # above 1 for an optimizer that consists of several
    for variable in optimizer.variables:
        weight = max((one for one in weights if variable.name.startswith(f"{one}_")), key=len, default="")
        kind = variable.name[len(weight) + 1 :] if weight else variable.name
        name = ".".join([type(optimizer).__name__, *([weights[weight]] if weight else []), kind])
        names.append(f"{name}, {n_of_name[name]}" if n_of_name[name] else name)
        n_of_name[name] += 1
    return names


def _check(optimizer: Any, where: str) -> None:
    """Raises ConfigurationError for an option of Keras that changes more than the update of the weights."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) or optimizer.loss_scale_factor is not None:
        cure = "write `precision: mixed_bfloat16`, which needs none"
        raise ConfigurationError("loss scaling is not available", where=where, cure=cure)


def _has_final_weights(optimizer: Any) -> bool:
    """Whether it keeps moving averages, or the user's class has its own end of a training."""
    is_of_keras = type(optimizer).finalize_variable_values.__module__.startswith("keras.")
    return not is_of_keras or bool(getattr(optimizer, "use_ema", False))
