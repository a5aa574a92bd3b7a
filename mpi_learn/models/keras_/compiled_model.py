"""A compiled Keras model: its inputs, labels and outputs in the structures in which `fit` takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.models.keras_.inspection import (
    SEED_STATE,
    check_loop,
    described,
    flat_outputs,
    input_names,
    not_taken,
    overrides,
    takes_training,
)
from mpi_learn.models.keras_.losses_and_metrics import (
    MetricStates,
    compile_arguments,
    ignored_class,
    make_output_loss,
    structured,
)
from mpi_learn.models.keras_.network import KerasNetwork, fit_errors
from mpi_learn.models.keras_.tensors import tensors
from mpi_learn.models.labels import OutputLosses, output_losses
from mpi_learn.models.outputs import Outputs
from mpi_learn.models.settings import Example, ModelSettings, Tensors, named


class GradientRecorder(keras.optimizers.Optimizer):  # type: ignore[misc] # Keras has no types
    """Replaces the model's optimizer: records the gradients that `train_step` applies, and changes no weight."""

    def __init__(self) -> None:
        super().__init__(learning_rate=0.01, name="mpi_learn")
        self.steps: list[list[tuple[Any, Any]]] = []
        self.shift = 0.0
        self._one = tf.constant(1, self.iterations.dtype)

    @property
    def learning_rate(self) -> Any:
        """The learning rate, for callbacks; not available in a step.

        Raises:
            ModelError: Called in a step.
        """
        if tf.inside_function():
            raise ModelError(
                "the model reads self.optimizer.learning_rate, which is not available in a step",
                where="model",
                cure="use self.optimizer.iterations, or make the value an argument of your function",
            )
        return keras.optimizers.Optimizer.learning_rate.fget(self)

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        keras.optimizers.Optimizer.learning_rate.fset(self, value)

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError, with an explanation for callbacks of the user."""
        raise AttributeError(
            f"{name}: callbacks see learning_rate and iterations of the optimizer; the rest is in the section "
            "`optimizer:` of the file, and can be an argument of the callback"
        )

    def count_step(self) -> None:
        """Counts a step outside of a compiled function: inside, the assignment takes five times as long."""
        self.iterations.value.assign_add(self._one, read_value=False)

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Records the gradients and their variables, counts the step, and adds `shift` to the variables."""
        self.iterations.assign_add(1)
        self.steps.append(list(zip(grads, trainable_variables or (), strict=True)))
        if self.shift:
            for variable in trainable_variables or ():
                variable.assign(variable + self.shift)


@contextmanager
def restored(variables: Sequence[Any]) -> Iterator[None]:
    """Restores the values of `variables` at the end of the block."""
    before = list(map(np.array, variables))
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)


SAME_DIVISOR = {None: "mean", "sum_over_batch_size": "mean"}
"""Reduction of Keras -> another one with the same divisor. None: a plain function, which has no reduction."""


class CompiledModel:
    """The model with losses and metrics of the configuration, or with those that the user's function compiled.

    Attributes:
        losses: Those of the configuration, by output; without entries if the model brings its own.
        metrics: The states of the metrics.
        has_train_step, has_test_step: Whether the user's class overrides the method.
        has_custom_loss: Whether user code computes the loss.

    Raises:
        ModelError, ConfigurationError: Model, loss, metrics and samples do not fit together.
    """

    def __init__(self, network: KerasNetwork, settings: ModelSettings, example: Example) -> None:
        self.network, self.model, self.settings = network, network.model, settings
        check_loop(self.model, settings.is_validated)
        self.has_train_step = overrides(self.model, "train_step")
        self.has_test_step = overrides(self.model, "test_step")
        self._has_loss_method = overrides(self.model, "compute_loss")
        self._loss_takes_training = takes_training(self.model.compute_loss)
        self._inputs, self._labels = input_names(self.model, example), example.y_names
        self._weight_names = example.weight_names
        self.losses = OutputLosses[Any]([], [], [], may_be_sums=settings.configuration.loss is None)
        self._outputs = self._outputs_of(example)
        network.bind()
        self._compile(example)
        is_custom = self.has_train_step or self._has_loss_method or network.has_penalty
        self.has_custom_loss = is_custom or self.losses.may_be_sums
        self._build(example)

    @property
    def has_loss_in_inference(self) -> bool:
        """Whether Keras' own `test_step` can evaluate the model: not if only its `train_step` computes a loss."""
        return not self.has_train_step or (self._outputs is not None and self.settings.is_validated)

    @property
    def divides_by_weights(self) -> bool:
        """See `Model.divides_by_weights`."""
        losses = keras.tree.flatten(self.model.loss)
        return any(getattr(loss, "reduction", None) == "mean_with_sample_weight" for loss in losses)

    @property
    def recorder(self) -> GradientRecorder:
        """The model's optimizer during the training."""
        recorder: GradientRecorder = self.model.optimizer
        return recorder

    def packed(self, x: Tensors, y: Tensors, weights: Tensors) -> tuple[Any, Any, Any]:
        """Inputs, labels and sample weights in the structures in which `fit` takes them."""
        labels = named(y, self._labels)
        if self._outputs is not None and self.losses.losses:
            labels = structured([None if label is None else y[label] for label in self.losses.labels], self._outputs)
        return self.inputs(x), labels, self._weights(weights)

    def _weights(self, weights: Tensors) -> Any:
        """Sample weights: one array for all outputs, or one array or None for each of them."""
        if not self._weight_names:
            return weights[0] if weights else None
        if self._outputs is None:
            return named(weights, self._weight_names)
        of_outputs = self._outputs.weights(self._weight_names, len(weights))
        return structured([None if index is None else weights[index] for index in of_outputs], self._outputs)

    def inputs(self, x: Tensors) -> Any:
        """Inputs in the structure with which the model is called."""
        return named(x, self._inputs)

    def loss(self, x: Any, y: Any, outputs: Any, weights: Any, training: bool) -> tf.Tensor:
        """The loss of a batch, as `fit` computes it: one number."""
        arguments = {"training": training} if self._loss_takes_training else {}
        loss = self.model.compute_loss(x=x, y=y, y_pred=outputs, sample_weight=weights, **arguments)
        if loss.shape.rank != 0:
            raise ModelError(
                f"the loss is of shape {tuple(loss.shape)}, expected one number",
                where="loss",
                cure="return the mean over the batch, or use the reduction sum_over_batch_size",
            )
        return tf.cast(loss, tf.float32)

    def weight(self, y: Any, outputs: Any, weights: Any, n: tf.Tensor) -> tf.Tensor:
        """The divisor of the mean loss of a batch; see `mpi_learn.models.keras_.model`.

        It is the number of samples if several losses have different divisors.
        """
        losses = [loss for loss in keras.tree.flatten(self.model.loss) if loss is not None]
        ignored = next((value for value in map(ignored_class, losses) if value is not None), None)
        reductions = {SAME_DIVISOR.get(name, name) for name in (getattr(loss, "reduction", None) for loss in losses)}
        output, *other_outputs = flat_outputs(outputs)
        # Keras (3.15) keeps the mask of an output in this private attribute, and averages over its unmasked entries
        mask = getattr(output, "_keras_mask", None)
        is_only_mask = all(getattr(other, "_keras_mask", None) is mask for other in other_outputs)
        divisors_differ = len(reductions) > 1 or (other_outputs and ignored is not None)
        # there is no single divisor, or only the user's code knows it
        if self._has_loss_method or not is_only_mask or divisors_differ:
            return n
        entries = None if mask is None else tf.cast(mask, tf.float32)
        if ignored is not None:
            # Keras takes the labels of the ignored class out of sum and divisor, as if they were masked
            labels = keras.tree.flatten(y)[0]
            is_kept = tf.reshape(tf.cast(labels != ignored, tf.float32), tf.shape(output)[:-1])
            entries = is_kept if entries is None else entries * is_kept
        if reductions == {"mean_with_sample_weight"} and self._weight_names:
            return n
        if reductions == {"mean_with_sample_weight"} and weights is not None:
            factors = tf.cast(weights, tf.float32)
            if entries is not None and entries.shape.rank > factors.shape.rank:  # a weight for all entries of a sample
                factors = tf.expand_dims(factors, -1)
            entries = factors if entries is None else entries * factors
        return n if entries is None else tf.reduce_sum(entries)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Restores the model's state at the end; seeds the global random generators at the beginning and the end."""
        variables = [*self.model.trainable_variables, *self.model.non_trainable_variables, self.recorder.iterations]
        self.network.reseed()
        try:
            with restored(variables):
                yield
        finally:
            self.network.reseed()

    def _outputs_of(self, example: Example) -> Outputs | None:
        """The model's outputs, by calling it on the example, which builds it; None for a nested structure.

        None also for a model that has a `train_step` but no `call`.
        """
        x = self.inputs(tensors(example.x))
        seeds = [variable for variable in self.model.non_trainable_variables if variable.name == SEED_STATE]
        try:
            with restored(seeds):  # `fit` makes no such call
                outputs = self.network(x, training=False)
        except Exception as error:
            if isinstance(error, NotImplementedError) and self.has_train_step:
                return None
            raise not_taken(self.model, example, error) from error
        return described(self.model, outputs)

    def _compile(self, example: Example) -> None:
        settings, outputs, arguments = self.settings, self._outputs, {}
        if self.network.uses_users_compile:
            self._check_users_compile()
            if outputs is not None and outputs.is_mapping and not example.y_names and len(example.y) > 1:
                raise outputs.without_order("data.labels")
            # only the optimizer is replaced: a second `compile` would lose the user's losses and metrics
            self.model.optimizer = GradientRecorder()
            return
        if outputs is not None:
            arguments = compile_arguments(settings.configuration, outputs)
            if settings.configuration.loss is not None:
                self.losses = output_losses(outputs, settings.configuration.loss, example, make_output_loss)
                of_outputs = outputs.weights(example.weight_names, len(example.weights))
                self.losses.check_weights([None if i is None else example.weights[i] for i in of_outputs])
                arguments["loss"] = structured(self.losses.losses, outputs)
        elif settings.configuration.loss is not None or settings.configuration.metrics:
            raise ModelError(
                "the outputs are nested, or the model has no `call`: losses and metrics cannot be assigned to them",
                where="loss",
                cure="compile the model in your function, and leave loss and metrics out",
            )
        with fit_errors("loss"):
            self.model.compile(optimizer=GradientRecorder(), **arguments)
        # files that callbacks save can then be loaded by Keras alone
        self.model._compile_config.config["optimizer"] = keras.optimizers.SGD()

    def _check_users_compile(self) -> None:
        configuration, optimizer = self.settings.configuration, self.network.users_optimizer
        problem = cure = ""
        if configuration.metrics or configuration.weighted_metrics or configuration.loss_weights:
            problem = "the model is compiled in your function: metrics and loss_weights of the file need a loss there"
            cure = "add `loss: …` to the file, or give them to `compile` in your function"
        elif getattr(self.model, "run_eagerly", False):
            problem, cure = "the model is compiled with run_eagerly: here steps are always traced", "leave it out"
        elif optimizer is not None and not self.settings.has_optimizer:
            problem = f"the model is compiled with {type(optimizer).__name__}, and the configuration has no optimizer"
            cure = "write `optimizer: {name: …, learning_rate: …}`"
        if problem:
            raise ConfigurationError(problem, where=configuration.model, cure=cure)

    def _in_inference(self, x: Any) -> Any:
        """The outputs in inference mode. No layer may change its state there: validation would lose the change.

        Raises:
            ModelError: A layer changes its state.
        """
        state = [variable for variable in self.model.non_trainable_variables if variable.name != SEED_STATE]
        before = list(map(np.array, state))
        outputs = self.network(x, training=False)
        for variable, value in zip(state, before, strict=True):
            if not np.array_equal(np.array(variable), value, equal_nan=True):
                raise ModelError(
                    f"{variable.path} changes when the model is called with training=False",
                    where="model",
                    cure="let the layer change its state only if `training` is true",
                )
        return outputs

    def _build(self, example: Example) -> None:
        """Creates the metrics' variables: one pass of each kind, as `fit` makes it."""
        x, y, weights = self.packed(*map(tensors, (example.x, example.y, example.weights)))
        with self.unchanged(), fit_errors():
            if self.has_train_step:
                self.model.train_step(as_data(x, y, weights))
            if self.has_test_step:
                self.model.test_step(as_data(x, y, weights))
            if self.has_loss_in_inference and not (self.has_train_step and self.has_test_step):
                outputs = self._in_inference(x)
                self.loss(x, y, outputs, weights, training=False)
                self.model.compute_metrics(x, y, outputs, weights)
        self.metrics = MetricStates(self.model)


def as_data(x: Any, y: Any, weights: Any) -> tuple[Any, ...]:
    """The argument with which `fit` calls `train_step`."""
    if y is None and weights is None:
        return (x,)
    return (x, y) if weights is None else (x, y, weights)
