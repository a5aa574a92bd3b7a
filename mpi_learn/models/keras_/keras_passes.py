"""One pass of a Keras model over a batch: stateless, or through the user's own `train_step` and `test_step`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from mpi_learn.errors import ModelError
from mpi_learn.models.example import Example, Tensors
from mpi_learn.models.keras_.keras_compile import CompiledModel, as_data
from mpi_learn.models.keras_.keras_metrics import Run
from mpi_learn.models.keras_.keras_network import SEED_STATE, RecordingScope, tensors, tracing

SHIFT = 0.01
"""Added to all weights, to detect a `train_step` that uses them after its optimizer's step."""


@dataclass(frozen=True)
class PassResult:
    """The tensors that a pass over a batch returns.

    Attributes:
        gradients: Of `weight` × `loss`, one per trainable array, None for an array that is not used; none in inference.
        n: The number of samples.
        weight: The divisor of the mean loss.
        loss: The mean loss.
        change: Of each of `MetricStates.variables`.
        logs: Name -> value, as returned by the user's or Keras' code.
    """

    gradients: Sequence[Any]
    n: Any
    weight: Any
    loss: Any
    change: list[Any]
    logs: dict[str, Any]


class Pass(ABC):
    """A pass over a batch, to be traced by TensorFlow or run eagerly.

    Args:
        compiled: The model.
        training: Forward and backward pass; else a forward pass in inference mode.
    """

    def __init__(self, compiled: CompiledModel, training: bool) -> None:
        self.compiled, self.training = compiled, training
        self.network, self.model = compiled.network, compiled.model

    @abstractmethod
    def __call__(
        self, parts: list[Any], x: Tensors, y: Tensors, weights: Tensors, initial: Sequence[np.ndarray]
    ) -> PassResult:
        """The pass.

        Args:
            parts: The trainable arrays.
            x, y, weights: The batch, flat.
            initial: The values of `MetricStates.variables` before it.
        """

    def run(self, example: Example, initial: Sequence[np.ndarray]) -> Run:
        """Runs the pass eagerly; afterwards the model is as before."""
        with self.compiled.unchanged(), tracing():
            parts = [tf.convert_to_tensor(variable) for variable in self.model.trainable_variables]
            result = self(parts, tensors(example.x), tensors(example.y), tensors(example.weights), initial)
            return Run(
                {name: np.asarray(value) for name, value in result.logs.items()},
                [np.asarray(change) for change in result.change],
                [np.array(variable) for variable in self.model.trainable_variables],
                [np.array(variable) for variable in self.model.non_trainable_variables],
            )


class StatelessPass(Pass):
    """Keras' own `train_step` and `test_step`, on weights that are given from outside."""

    def __call__(
        self, parts: list[Any], x: Tensors, y: Tensors, weights: Tensors, initial: Sequence[np.ndarray]
    ) -> PassResult:
        states, n = self.compiled.metrics.variables, tf.cast(tf.shape(x[0])[0], tf.float32)
        x, y, weights = self.compiled.packed(x, y, weights)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            if self.training:
                tape.watch(parts)
            with self.network.scope(parts, list(zip(states, initial, strict=True))) as scope:
                outputs = self.network(x, self.training)
                loss = self.compiled.loss(x, y, outputs, weights, self.training)
                logs = self.model.compute_metrics(x, y, outputs, weights)
                weight = tf.stop_gradient(self.compiled.weight(y, outputs, weights, n))
                total = weight * loss
        change = [scope.get_current_value(variable) - start for variable, start in zip(states, initial, strict=True)]
        if not self.training:
            self._check_state(scope)
            return PassResult((), n, weight, loss, change, logs)
        gradients = tape.gradient(total, parts)
        self.network.keep(scope, states)
        self.compiled.recorder.iterations.assign_add(1)
        return PassResult(gradients, n, weight, loss, change, logs)

    def _check_state(self, scope: RecordingScope) -> None:
        """Raises ModelError if the loss has changed a state of its own, which `fit` keeps after validation."""
        known = {id(variable) for variable in (*self.model.variables, *self.compiled.metrics.variables)}
        if any(key not in known and variable.name != SEED_STATE for key, variable in scope.assigned.items()):
            raise ModelError(
                "the loss changes a state of its own, also in validation",
                where="loss",
                cure="let a layer of the model hold the state, and change it only in training",
            )


class StatefulPass(Pass):
    """The user's `train_step` or `test_step`, on the model's own variables.

    The weights are copied into the variables before each step. The gradients are those that `train_step` hands to
    the model's optimizer, which here moves nothing.
    """

    def __init__(self, compiled: CompiledModel, training: bool) -> None:
        super().__init__(compiled, training)
        self._step = self.model.train_step if training else self.model.test_step
        if training:
            self._places = {id(variable): place for place, variable in enumerate(self.model.trainable_variables)}

    def __call__(
        self, parts: list[Any], x: Tensors, y: Tensors, weights: Tensors, initial: Sequence[np.ndarray]
    ) -> PassResult:
        states = self.compiled.metrics.variables
        variables = [*self.model.trainable_variables, *states]
        for variable, value in zip(variables, [*parts, *initial], strict=True):
            variable.assign(value)
        n = tf.cast(tf.shape(x[0])[0], tf.float32)
        steps = self.compiled.recorder.steps
        steps.clear()
        logs = self._step(as_data(*self.compiled.packed(x, y, weights)))
        if not isinstance(logs, dict) or "loss" not in (logs := _flat(logs)):
            raise ModelError(f"{self._step.__name__} returns no `loss`", where="model", cure='return {"loss": …}')
        change = [variable.value - start for variable, start in zip(states, initial, strict=True)]
        gradients = self._gradients(steps, n) if self.training else ()
        return PassResult(gradients, n, n, tf.cast(logs["loss"], tf.float32), change, logs)

    def check(self, example: Example) -> None:
        """Raises ModelError unless the step moves the weights through the model's optimizer alone, and at its end."""
        recorder, before = self.compiled.recorder, [np.array(variable) for variable in self.model.trainable_variables]
        plain = self.run(example, self.compiled.metrics.initial)
        if not all(map(np.array_equal, plain.trainable, before)):
            raise self._refused("changes weights besides through self.optimizer")
        recorder.shift = SHIFT
        moved = self.run(example, self.compiled.metrics.initial)
        recorder.shift = 0.0
        is_close = partial(np.allclose, rtol=1e-4, atol=1e-7, equal_nan=True)
        values = [[*run.logs.values(), *run.change, *run.others] for run in (plain, moved)]
        if len(values[0]) != len(values[1]) or not all(map(is_close, *values)):
            raise self._refused("uses the weights after self.optimizer has moved them, which here happens later")

    def _gradients(self, steps: list[list[tuple[Any, Any]]], n: Any) -> list[Any]:
        """`n` times the gradient with which the optimizer was called, or None, for each trainable array."""
        if len(steps) != 1:
            raise self._refused(f"calls self.optimizer {len(steps)} times" if steps else "never calls self.optimizer")
        gradients: list[Any] = [None] * len(self._places)
        for gradient, variable in steps[0]:
            place = self._places.get(id(variable))
            if place is None:
                raise self._refused(f"moves {variable.path}, which is not trainable")
            if gradient is not None:
                gradients[place] = n * tf.convert_to_tensor(gradient)
        return gradients

    def _refused(self, problem: str) -> ModelError:
        return ModelError(
            f"train_step of {type(self.model).__name__} {problem}",
            where="model",
            cure="override compute_loss instead, or call self.optimizer.apply_gradients once, at the end; for a GAN "
            "return both models and write `gan:`",
        )


def _flat(logs: dict[str, Any]) -> dict[str, Any]:
    """The values that `train_step` returns, without the mappings of metrics in them, as `fit` records them."""
    values: dict[str, Any] = {}
    for name, value in logs.items():
        values |= _flat(value) if isinstance(value, dict) else {name: value}
    return values
