"""Keras 3 models on TensorFlow: one flat vector of weights, one compiled step that returns one flat gradient.

The weights are in NumPy memory that TensorFlow reads through DLPack without a copy, so that optimizer and MPI change
them in place between two steps. The compiled step splits the vector into the layers' arrays, runs the model
statelessly on them, and joins gradient and sums to one tensor, on whose own memory MPI then works.

Losses and metrics are Keras' own: `compute_loss` and `compute_metrics` of the compiled model. The gradient of the mean
loss of a batch, as `fit` computes it, is multiplied by the batch's weight, so that the sum over ranks divided by the
sum of the weights is the gradient of the mean over all samples. The loss itself is not multiplied, because gradients
that users define, such as clipped ones, need not be proportional to the loss.

The weight is the divisor of the mean loss: the number of samples, with a mask the number of unmasked entries, with the
reduction ``mean_with_sample_weight`` the sum of the sample weights. If losses of several outputs have different
divisors, the weight is the number of samples: then several ranks train only almost like one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mpi_learn.errors import ModelError
from mpi_learn.flat_layout import N_FLAGS, N_SAMPLES, aligned_empty
from mpi_learn.models.keras_.compiled_model import CompiledModel, as_data
from mpi_learn.models.keras_.inspection import SEED_STATE, RecordingScope, changes_its_state, flat_outputs
from mpi_learn.models.keras_.losses_and_metrics import Run
from mpi_learn.models.keras_.network import KerasNetwork, draws_unsaved, fit_errors
from mpi_learn.models.keras_.tensors import as_tensor, flattened, memory_of, specs, tensors
from mpi_learn.models.model import Model
from mpi_learn.models.settings import Arrays, Example, ModelSettings, Tensors

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


LOSS_OF_N, FIRST_STATE = 3, 4
"""Indices of sums: the loss times the number of samples, and the first metric state."""


class KerasModel(Model):
    """A Keras model as one flat vector.

    Raises:
        ModelError, ConfigurationError: Model, loss, metrics and samples do not fit together.
    """

    framework = "keras"

    def __init__(self, model: keras.Model, settings: ModelSettings, example: Example) -> None:
        self.network = self.state = KerasNetwork(model, settings)
        self.networks = {"": self.network}
        self.compiled = CompiledModel(self.network, settings, example)
        self.network.add_integers(self.compiled.recorder.iterations)
        self.layout, self.has_custom_loss = self.network.layout.with_counts(), self.compiled.has_custom_loss
        self.divides_by_weights = self.compiled.divides_by_weights
        self.weights = aligned_empty(self.layout.size)
        self.weights[:] = 0
        self.network.move_into(self.weights)
        self._training, self._inference = training_pass(self.compiled), inference_pass(self.compiled)
        self.can_evaluate = self.compiled.has_test_step or self.compiled.has_loss_in_inference
        self._names = self._checked_names(example)
        self.has_constraints = self.network.has_constraints
        self.synchronizes_statistics = self.network.synchronizes_statistics
        self.uses_gpu = self.network.uses_gpu
        self.can_use_xla = not self.compiled.has_train_step
        self._initial = [tf.constant(start) for start in self.compiled.metrics.initial]
        self._n_states = self.compiled.metrics.size
        self.n_sums = FIRST_STATE + self._n_states + len(self._names) + N_FLAGS
        self._flat = as_tensor(self.weights)
        self._xla: Any = tf.function(self._compute_step, autograph=False, jit_compile=True)
        self._by_xla: tuple[int, Any] | None = None  # a batch size, and the step compiled for it
        flat = tf.TensorSpec([self.layout.size], tf.float32)
        signature = [flat, specs(example.x), specs(example.y), specs(example.weights)]
        step = tf.function(self._compute_step, input_signature=signature, autograph=False)
        with fit_errors():  # traced now: errors come before the first step, and calls take less time
            self._step = step.get_concrete_function()
        self.has_unsaved_random = draws_unsaved(self._step)
        self._forward: Any = tf.function(self._compute_sums, input_signature=signature, autograph=False)
        if settings.is_validated:
            with fit_errors():
                self._forward = self._forward.get_concrete_function()
        self._predict: Any = tf.function(self._compute_outputs, input_signature=signature[:2], autograph=False)

    def gradient(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        if len(x[0]) == 0:
            return np.zeros(self.layout.size + self.n_sums, np.float32)
        arguments = self._flat(), tensors(x), tensors(y), tensors(weights)
        if self.uses_xla and self._by_xla is None:
            self._by_xla = len(x[0]), self._xla.get_concrete_function(*arguments)
        step = self._step
        if self._by_xla is not None and self._by_xla[0] == len(x[0]):  # others, as an epoch's last, run without XLA
            step = self._by_xla[1]
        vector = memory_of(step(*arguments))
        if not self.compiled.has_train_step:  # a `train_step` counts its own steps
            self.compiled.recorder.count_step()
        return vector

    def loss_of(self, parts: Tensors, x: Tensors, y: Tensors, weights: Tensors) -> tuple[Any, Any]:
        """(mean loss times its divisor, sums) of a micro-batch in training, as a function that TensorFlow can trace.

        Args:
            parts: The trainable arrays.
            x, y, weights: As in `gradient`.
        """
        result, scope = forward_pass(self.compiled, True, parts, (x, y, weights), self._initial)
        self.network.store_assigned(scope, self.compiled.metrics.variables)
        return result.weight * result.loss, self._sums(result)

    def compile_step(self, by_xla: bool) -> None:
        self._by_xla, self.uses_xla = None, by_xla

    def evaluate(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        sums = self._forward(self._flat(), tensors(x), tensors(y), tensors(weights))
        return np.asarray(sums, np.float64)

    def check_labels(self, y: Arrays) -> None:
        self.compiled.losses.check_labels(y)

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        n = max(float(sums[N_SAMPLES]), 1.0)
        split = FIRST_STATE + self._n_states
        raw = {name: float(value) / n for name, value in zip(self._names, sums[split:-N_FLAGS], strict=True)}
        return {"loss": float(sums[LOSS_OF_N]) / n} | self.compiled.metrics.results(sums[FIRST_STATE:split]) | raw

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        return tuple(output.numpy() for output in self._predict(self._flat(), tensors(x)))

    def probe(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> list[np.ndarray]:
        """See `Model.probe`. The model is called eagerly: tracing takes longer than a call."""
        found: list[Any] = []
        flat, batch = self._flat(), (tensors(x), tensors(y), tensors(weights))
        with self.repeatable(), fit_errors():
            with suppress(NotImplementedError):  # a model without `call`
                found += self._compute_outputs(flat, batch[0])
            if self.can_evaluate:
                sums = np.asarray(self._compute_sums(flat, *batch), np.float64)
                found.append(self.metrics(sums)["loss"])
            return list(map(np.array, found))

    def close(self) -> None:
        """Drops the compiled functions and Keras' global state, so that memory does not grow from model to model."""
        self._step = self._forward = self._predict = self._xla = None
        self._by_xla = None
        self.network.close()

    def _checked_names(self, example: Example) -> list[str]:
        """The names of values that a pass returns and no metric holds; checks the passes on the example."""
        passes = []
        if self.compiled.has_train_step:
            check_train_step(self.compiled, example)
            passes.append(self._training)
        if self.can_evaluate:
            passes.append(self._inference)
        found = [self.compiled.metrics.check(partial(run_eagerly, self.compiled, one), example) for one in passes]
        return list(dict.fromkeys(chain.from_iterable(found)))

    def _compute_step(self, flat: tf.Tensor, x: Tensors, y: Tensors, weights: Tensors) -> tf.Tensor:
        parts = self.network.parts(flat)
        result = self._training(parts, (x, y, weights), self._initial)
        pairs = zip(result.gradients, parts, strict=True)
        gradients = [
            tf.zeros([tf.size(part)]) if gradient is None else result.weight * flattened(gradient)
            for gradient, part in pairs
        ]
        counts = [0.0 if gradient is None else 1.0 for gradient in result.gradients]
        return tf.concat([*gradients, counts, self._sums(result)], 0)

    def _compute_sums(self, flat: tf.Tensor, x: Tensors, y: Tensors, weights: Tensors) -> tf.Tensor:
        return self._sums(self._inference(self.network.parts(flat), (x, y, weights), self._initial))

    def _compute_outputs(self, flat: tf.Tensor, x: Tensors) -> list[tf.Tensor]:
        parts = self.network.parts(flat)
        with self.network.scope(parts):
            outputs = self.network(self.compiled.inputs(x), training=False)
        return [tf.cast(output, tf.float32) if output.dtype.is_floating else output for output in flat_outputs(outputs)]

    def _sums(self, result: PassResult) -> tf.Tensor:
        raw = [result.n * tf.cast(result.logs.get(name, np.nan), tf.float32) for name in self._names]
        weighted = (result.weight, result.weight * result.loss, result.n, result.n * result.loss)
        return tf.concat([*map(flattened, (*weighted, *result.change, *raw)), [0.0] * N_FLAGS], 0)
