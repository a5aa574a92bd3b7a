"""One pass of a Keras model over a batch: stateless, or through the user's own `train_step` and `test_step`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from mpi_learn.errors import ModelError
from mpi_learn.models.keras_.compiled_model import CompiledModel, as_data
from mpi_learn.models.keras_.inspection import SEED_STATE, RecordingScope, changes_its_state
from mpi_learn.models.keras_.losses_and_metrics.metrics import Run
from mpi_learn.models.keras_.network import fit_errors
from mpi_learn.models.keras_.tensors import tensors
from mpi_learn.models.settings import Example, Tensors

SHIFT = 0.01
"""Added to all weights, to detect a `train_step` that uses them after its optimizer's step."""


@dataclass(frozen=True)
class PassResult:
    """The tensors that a pass over a batch returns.

    Attributes:
        gradients: Gradients of `loss`, one per trainable array, None for an array that is not used; empty in inference.
        n: The number of samples.
        weight: The divisor of the mean loss.
        loss: The mean loss.
        change: The change of each of `MetricStates.variables`.
        logs: Name -> value, as returned by the user's or Keras' code.
    """

    gradients: Sequence[Any]
    n: Any
    weight: Any
    loss: Any
    change: list[Any]
    logs: dict[str, Any]


Batch = tuple[Tensors, Tensors, Tensors]
"""Inputs, labels and sample weights, flat."""
States = Sequence[np.ndarray]
"""Values of `MetricStates.variables`."""
Pass = Callable[[Tensors, Batch, States], PassResult]
"""A pass with the trainable arrays over a batch, from the states before it; traced by TensorFlow, or run eagerly."""


def training_pass(compiled: CompiledModel) -> Pass:
    """A forward and a backward pass."""
    return partial(_stateful_pass if compiled.has_train_step else _stateless_pass, compiled, True)


def forward_pass(
    compiled: CompiledModel, training: bool, parts: Tensors, batch: Batch, initial: States
) -> tuple[PassResult, RecordingScope]:
    """A forward pass with Keras' own losses and metrics, on weights that are given from outside; without gradients."""
    network, states, n = compiled.network, compiled.metrics.variables, _n_samples(batch)
    x, y, weights = compiled.packed(*batch)
    with network.scope(parts, list(zip(states, initial, strict=True))) as scope:
        outputs = network(x, training)
        loss = compiled.loss(x, y, outputs, weights, training)
        logs = compiled.model.compute_metrics(x, y, outputs, weights)
    weight = compiled.weight(y, outputs, weights, n)
    values = [scope.get_current_value(variable) for variable in states]
    return PassResult((), n, weight, loss, compiled.metrics.change(values, initial, n), logs), scope


def inference_pass(compiled: CompiledModel) -> Pass:
    """A forward pass in inference mode."""
    return partial(_stateful_pass if compiled.has_test_step else _stateless_pass, compiled, False)


def run_eagerly(compiled: CompiledModel, one_pass: Pass, example: Example, initial: States) -> Run:
    """Runs a pass on an example; afterwards the model is as before."""
    model = compiled.model
    with compiled.unchanged(), fit_errors():
        parts = [tf.convert_to_tensor(variable) for variable in model.trainable_variables]
        result = one_pass(parts, (tensors(example.x), tensors(example.y), tensors(example.weights)), initial)
        return Run(
            {name: np.asarray(value) for name, value in result.logs.items()},
            [np.asarray(change) for change in result.change],
            [np.array(variable) for variable in model.trainable_variables],
            [np.array(variable) for variable in model.non_trainable_variables],
        )


def check_train_step(compiled: CompiledModel, example: Example) -> None:
    """Raises ModelError unless `train_step` updates the weights through the model's optimizer alone, and at its end."""
    before = [np.array(variable) for variable in compiled.model.trainable_variables]
    run = partial(run_eagerly, compiled, training_pass(compiled), example, compiled.metrics.initial)
    plain = run()
    if not all(map(np.array_equal, plain.trainable, before)):
        raise _refused(compiled, "changes weights besides through self.optimizer")
    compiled.recorder.shift = SHIFT
    shifted = run()
    compiled.recorder.shift = 0.0
    is_close = partial(np.allclose, rtol=1e-4, atol=1e-7, equal_nan=True)
    values = [[*one.logs.values(), *one.change, *one.others] for one in (plain, shifted)]
    if len(values[0]) != len(values[1]) or not all(map(is_close, *values)):
        raise _refused(compiled, "uses the weights after self.optimizer has updated them, which here happens later")


def _stateless_pass(
    compiled: CompiledModel, training: bool, parts: Tensors, batch: Batch, initial: States
) -> PassResult:
    """Keras' own `train_step` or `test_step`, on weights that are given from outside."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        if training:
            tape.watch(parts)
        result, scope = forward_pass(compiled, training, parts, batch, initial)
    if not training:
        _check_state(compiled, scope)
        return result
    gradients = tape.gradient(result.loss, parts)
    compiled.network.store_assigned(scope, compiled.metrics.variables)
    return replace(result, gradients=gradients)


def _check_state(compiled: CompiledModel, scope: RecordingScope) -> None:
    """Raises ModelError if the loss has changed a state of its own, which `fit` keeps after validation."""
    known = {id(variable) for variable in (*compiled.model.variables, *compiled.metrics.variables)}
    if any(key not in known and variable.name != SEED_STATE for key, variable in scope.assigned.items()):
        raise changes_its_state()


def _stateful_pass(
    compiled: CompiledModel, training: bool, parts: Tensors, batch: Batch, initial: States
) -> PassResult:
    """The user's `train_step` or `test_step` on the model's own variables, which receive the weights first.

    The gradients are those that `train_step` passes to the model's optimizer, which changes no weight here.
    """
    model, states = compiled.model, compiled.metrics.variables
    for variable, value in zip([*compiled.network.variables, *states], [*parts, *initial], strict=True):
        variable.assign(value)
    compiled.recorder.steps.clear()
    step = model.train_step if training else model.test_step
    logs = step(as_data(*compiled.packed(*batch)))
    if not isinstance(logs, dict) or "loss" not in (logs := _flat(logs)):
        raise ModelError(f"{step.__name__} returns no `loss`", where="model", cure='return {"loss": …}')
    n = _n_samples(batch)
    change = compiled.metrics.change([variable.value for variable in states], initial, n)
    gradients = _recorded_gradients(compiled) if training else ()
    return PassResult(gradients, n, n, tf.cast(logs["loss"], tf.float32), change, logs)


def _recorded_gradients(compiled: CompiledModel) -> list[Any]:
    """The gradient with which the optimizer was called, or None, for each trainable array."""
    steps = compiled.recorder.steps
    if len(steps) != 1:
        raise _refused(compiled, f"calls self.optimizer {len(steps)} times" if steps else "never calls self.optimizer")
    indices = {id(variable): index for index, variable in enumerate(compiled.network.variables)}
    gradients: list[Any] = [None] * len(indices)
    for gradient, variable in steps[0]:
        if id(variable) not in indices:
            raise _refused(compiled, f"updates {variable.path}, which is not trainable")
        gradients[indices[id(variable)]] = gradient
    return gradients


def _refused(compiled: CompiledModel, problem: str) -> ModelError:
    return ModelError(
        f"train_step of {type(compiled.model).__name__} {problem}",
        where="model",
        cure="override compute_loss instead, or call self.optimizer.apply_gradients once, at the end; for a GAN "
        "return both models and write `gan:`",
    )


def _n_samples(batch: Batch) -> Any:
    return tf.cast(tf.shape(batch[0][0])[0], tf.float32)


def _flat(logs: dict[str, Any]) -> dict[str, Any]:
    """The values that `train_step` returns, without the mappings of metrics in them, as `fit` records them."""
    values: dict[str, Any] = {}
    for name, value in logs.items():
        values |= _flat(value) if isinstance(value, dict) else {name: value}
    return values
