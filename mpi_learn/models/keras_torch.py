"""Keras models on PyTorch: Keras computes outputs, loss and metrics, and PyTorch the gradient, as in `fit`."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import torch
from keras.src.random.seed_generator import global_seed_generator

from mpi_learn.devices.device_vector import Vector
from mpi_learn.errors import ModelError, UserError
from mpi_learn.flat_layout import LOSS, N_FLAGS, N_SAMPLES, WEIGHT, UpdateRule
from mpi_learn.models.building.frameworks import without_tensorflow
from mpi_learn.models.keras_.inspection import (
    COUNTERS,
    RANK_SEED,
    SEED_STATE,
    RecordingScope,
    changes_its_state,
    check_loop,
    described,
    flat_outputs,
    input_names,
    not_taken,
    overrides,
    takes_training,
    unfit,
)
from mpi_learn.models.keras_.losses_and_metrics import (
    MetricStates,
    Run,
    compile_arguments,
    ignored_class,
    make_output_loss,
    structured,
)
from mpi_learn.models.labels import output_losses
from mpi_learn.models.network import seed_of
from mpi_learn.models.outputs import Outputs
from mpi_learn.models.settings import Arrays, Example, ModelSettings, named
from mpi_learn.models.torch_.model import FIRST_STATE, TorchModel
from mpi_learn.models.torch_.network import TorchNetwork
from mpi_learn.models.torch_.step import StepVector
from mpi_learn.models.torch_.tensors import tensors
from mpi_learn.settings.component import Component
from mpi_learn.settings.paths import replacing


class KerasModule(torch.nn.Module):
    """A built Keras model as a module: its variables are the parameters, in Keras' order, and it has no submodules.

    A Keras model on PyTorch is a module itself, but its parameters have the order of its layers, and those of a layer
    that is used twice have two names.

    Attributes:
        variables: The trainable variables, then the others, which are frozen parameters.
    """

    def __init__(self, model: keras.Model) -> None:
        super().__init__()
        self._held = (model,)  # as an attribute, the model would become a submodule
        self._takes_training = takes_training(model.call)
        self.variables = [*model.trainable_variables, *model.non_trainable_variables]
        for index, variable in enumerate(self.variables):
            name = COUNTERS.sub("", variable.path).replace(".", "_")
            self.register_parameter(f"{name}#{index}", variable.value)

    @property
    def model(self) -> keras.Model:
        """The Keras model."""
        return self._held[0]

    def forward(self, x: Any) -> Any:
        """The outputs in the structure of the model."""
        return self.model(x, **({"training": self.training} if self._takes_training else {}))


class KerasTorchNetwork(TorchNetwork):
    """See `TorchNetwork`; the object of `current` is the Keras model, and files are those of Keras."""

    framework = "keras"
    module: KerasModule

    def __init__(self, model: keras.Model, settings: ModelSettings) -> None:
        super().__init__(KerasModule(model), settings)
        self.model = model
        variables = self.module.variables
        self.has_constraints = any(variable.constraint is not None for variable in variables if variable.trainable)
        self._integers = [one for one in variables if not keras.backend.is_float_dtype(one.dtype)]
        self._seeds = [variable for variable in self._integers if variable.name == SEED_STATE]
        for variable in self._seeds:  # dropout and noise draw from (seed, counter): each rank gets its own seed
            variable.assign(np.array(variable) + np.array([settings.stream * RANK_SEED, 0]))

    @property
    def synchronizes_statistics(self) -> bool:
        return any(getattr(layer, "synchronized", False) for layer in self.model._flatten_layers())

    @contextmanager
    def repeatable(self) -> Iterator[None]:
        with super().repeatable():
            for variable in self._seeds:
                variable.assign(np.array([self.settings.configuration.seed, 0]))
            yield

    def random_mask(self) -> np.ndarray:
        mask = super().random_mask()
        of_model = [np.full(tuple(one.shape), one.name == SEED_STATE).ravel() for one in self._integers]
        flat = np.concatenate([*of_model, np.zeros(0, np.bool_)])
        mask[: flat.size] = flat
        return mask

    def seed_random(self, keys: Sequence[int]) -> None:
        super().seed_random(keys)
        for index, variable in enumerate(self._seeds):
            variable.assign(np.array([seed_of((*keys, index)), 0]))

    def current(self) -> Any:
        super().current()
        return self.model

    def save(self, path: Path) -> Path:
        """Writes the model without losses and optimizer: any backend of Keras can load the file."""
        file, before = path.with_name(f"{path.name}.keras"), (self.model.optimizer, self.model.compiled)
        self.model.optimizer, self.model.compiled = None, False
        try:
            with replacing(file) as temporary:
                self.current().save(temporary)
        finally:
            self.model.optimizer, self.model.compiled = before
        return file

    def save_weights(self, path: Path) -> Path:
        file = path.with_name(f"{path.name}.weights.h5")
        with replacing(file) as temporary:
            self.current().save_weights(temporary)
        return file

    def line_to_load(self, file: Path, name: str) -> str:
        return f"{name}.load_weights({file.name!r})"

    def optimizer(self, wanted: Component) -> UpdateRule:
        cure = "use an optimizer of MPI Learn"
        raise without_tensorflow(f"the optimizer {wanted.name} of Keras", "optimizer", cure)

    def close(self) -> None:
        """Leaves the model on its device, where Keras computes."""
        self.model.optimizer, self.model.compiled = None, False
        keras.backend.clear_session(free_memory=False)  # otherwise memory grows from model to model
        gc.collect()


FIT_ERRORS = (ValueError, TypeError, KeyError, AttributeError, NotImplementedError, RuntimeError, IndexError)
"""Exceptions of Keras and PyTorch if a model does not fit its data."""
MEANS = (None, "mean", "sum_over_batch_size")
"""Reductions of losses that are means over the batch. None: a plain function."""
REPLACED = ("train_step", "test_step", "compute_loss", "compute_metrics")


class KerasTorchModel(TorchModel):
    """A Keras model as one flat vector, on the PyTorch backend of Keras.

    Raises:
        ModelError, ConfigurationError: Model, loss, metrics and samples do not fit together, or need TensorFlow.
    """

    framework = "keras"

    def __init__(self, model: keras.Model, settings: ModelSettings, example: Example) -> None:
        self.settings, self.model = settings, model
        _check_supported(model, settings, example)
        self._inputs = input_names(model, example)
        self._outputs = self._built(example)
        self._compile_model(example)
        self._hold(KerasTorchNetwork(model, settings))
        self.module, self.has_constraints = self.network.module, self.network.has_constraints
        with self.network.unchanged() as before:
            self.module.eval()
            self._check_inference(example)
            self.states = MetricStates(model)
            self._initial = [torch.as_tensor(start) for start in self.states.initial]
            self.n_sums = FIRST_STATE + self.states.size + N_FLAGS
            try:
                self.states.check(self._run_from, example)
                self.module.train()
                drawn = np.array(global_seed_generator().state)
                loss = self._run(tensors(example.x), tensors(example.y), tensors(example.weights))[0]
                loss.backward()
            except FIT_ERRORS as error:
                raise unfit(error) from error
            if settings.n_workers > 1 or self.uses_gpu:
                self.network.check_unchanged(before)
        # keras.random without a SeedGenerator draws from one of Keras, whose state is no variable of the model
        self.has_unsaved_random = not np.array_equal(drawn, np.array(global_seed_generator().state))
        self.has_custom_loss = self._losses.may_be_sums or bool(model.losses)
        self._step = StepVector(self.network, self.layout, self.n_sums)

    def loss_of(self, inputs: list[torch.Tensor], y: Arrays, weights: Arrays) -> tuple[torch.Tensor, float, np.ndarray]:
        loss, change = self._run(inputs, tensors(y), tensors(weights))
        return loss, float(len(inputs[0])), self._all_sums(loss, change, len(inputs[0]))

    def check_labels(self, y: Arrays) -> None:
        self._losses.check_labels(y)

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        n = max(float(sums[N_SAMPLES]), 1.0)
        return {"loss": float(sums[LOSS]) / n} | self.states.results(sums[FIRST_STATE:-N_FLAGS])

    @property
    def metric_names(self) -> list[str]:
        return list(self.metrics(np.zeros(self.n_sums)))

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        self.network.current()
        with torch.no_grad():
            return tuple(output.numpy(force=True) for output in flat_outputs(self._called(tensors(x))))

    def _built(self, example: Example) -> Outputs:
        """The outputs, by calling the model on the example, which builds it.

        Raises:
            ModelError: It does not take the samples, or its outputs are nested or masked.
        """
        try:
            with torch.no_grad():
                outputs = self.model(named(tensors(example.x), self._inputs))
        except UserError:
            raise
        except Exception as error:  # of the user's model
            raise not_taken(self.model, example, error) from error
        found = described(self.model, outputs)
        if found is None:
            raise without_tensorflow("nested outputs")
        if any(getattr(output, "_keras_mask", None) is not None for output in flat_outputs(outputs)):
            raise without_tensorflow("a mask of the output (Masking, or mask_zero=True)")
        return found

    def _compile_model(self, example: Example) -> None:
        """Gives Keras the losses and metrics of the configuration."""
        wanted, outputs = self.settings.configuration, self._outputs
        self._losses = output_losses(outputs, wanted.loss, example, make_output_loss)
        self._losses.check_weights([example.weights[0] if example.weights else None] * len(outputs))
        for loss in self._losses.losses:
            if getattr(loss, "reduction", None) not in MEANS or ignored_class(loss) is not None:
                raise without_tensorflow(
                    "a loss with ignore_class or another reduction than the mean over the batch", "loss"
                )
        arguments = compile_arguments(wanted, outputs) | {"loss": structured(self._losses.losses, outputs)}
        try:
            self.model.compile(optimizer=keras.optimizers.SGD(), **arguments)
        except FIT_ERRORS as error:
            raise unfit(error) from error

    def _check_inference(self, example: Example) -> None:
        """Makes a pass in inference mode, which creates the metrics' variables and must not change a state."""
        floats, batch = self.network.floats(), [*map(tensors, (example.x, example.y, example.weights))]
        try:
            with torch.no_grad():
                self._compute(*batch)
                self._check_loss(*batch)
        except FIT_ERRORS as error:
            raise unfit(error) from error
        if not np.array_equal(floats, self.network.floats(), equal_nan=True):
            raise ModelError(
                "a weight that is not trained changes when the model is called with training=False",
                where="model",
                cure="let the layer change its state only if `training` is true",
            )

    def _check_loss(self, *batch: list[torch.Tensor]) -> None:
        """Raises an error if the loss changes a state of its own, which `fit` keeps after validation."""
        known = [*self.model.variables, *self.model.metrics_variables, global_seed_generator().state]
        values = [(variable, variable.value) for variable in known]  # regularizers ask the scope for them
        with RecordingScope(values) as scope:
            self._compute(*batch)
        names = {variable.name for key, variable in scope.assigned.items() if key not in set(map(id, known))}
        if names == {SEED_STATE}:
            raise without_tensorflow("a loss that draws random numbers with a SeedGenerator of its own", "loss")
        if names:
            raise changes_its_state()

    def _compute(self, x: list[torch.Tensor], y: list[torch.Tensor], weights: list[torch.Tensor]) -> tuple[Any, Any]:
        """The mean loss, and the values of the metrics, whose states are updated."""
        inputs, outputs, of_samples = named(x, self._inputs), self._called(x), weights[0] if weights else None
        labels = structured([None if label is None else y[label] for label in self._losses.labels], self._outputs)
        training = self.module.training
        loss = self.model.compute_loss(x=inputs, y=labels, y_pred=outputs, sample_weight=of_samples, training=training)
        with torch.no_grad():
            return loss, self.model.compute_metrics(inputs, labels, outputs, of_samples)

    def _run(self, x: list[torch.Tensor], y: list[torch.Tensor], weights: list[torch.Tensor]) -> tuple[Any, list[Any]]:
        """The mean loss, and the changes of the metrics' states, which begin at their initial values."""
        self._set_states(self._initial)
        loss, _ = self._compute(x, y, weights)
        return loss.float(), self._changes(self._initial, len(x[0]))

    def _run_from(self, example: Example, before: Sequence[np.ndarray]) -> Run:
        """See `mpi_learn.models.keras_.losses_and_metrics.RunPass`."""
        states = [torch.as_tensor(value) for value in before]
        self._set_states(states)
        with torch.no_grad():
            _, logs = self._compute(tensors(example.x), tensors(example.y), tensors(example.weights))
        values = {name: keras.ops.convert_to_numpy(value) for name, value in logs.items()}
        return Run(values, [change.numpy(force=True) for change in self._changes(states, len(example))], [], [])

    def _set_states(self, values: Sequence[torch.Tensor]) -> None:
        for variable, value in zip(self.states.variables, values, strict=True):
            variable.assign(value)

    def _changes(self, before: Sequence[torch.Tensor], n: int) -> list[Any]:
        values = [variable.value.detach() for variable in self.states.variables]
        return self.states.change(values, [one.to(value) for one, value in zip(before, values, strict=True)], float(n))

    def _called(self, inputs: list[torch.Tensor]) -> Any:
        return self.network(named(inputs, self._inputs))

    def _gradient(self, x: Arrays, y: Arrays, weights: Arrays) -> Vector:
        n = len(x[0])
        loss, change = self._run(tensors(x), tensors(y), tensors(weights))
        loss.backward()
        return self._step.filled(float(n), self._all_sums(loss, change, n))

    def _all_sums(self, loss: torch.Tensor, change: Sequence[Any], n: int) -> np.ndarray:
        """The sums of a batch. Between `begin_steps` and `end_steps` on a device, losses and metrics stay there."""
        sums, device = np.zeros(self.n_sums), loss.device
        sums[WEIGHT], sums[N_SAMPLES] = n, n
        parts = [n * loss.detach(), torch.zeros(1, device=device), *change]
        measured = torch.cat([part.detach().reshape(-1).float() for part in parts])
        if self._step.stays_on_device and self.module.training and self._sums_on_device is not None:
            self._sums_on_device[LOSS:-N_FLAGS].add_(measured)
        else:
            sums[LOSS:-N_FLAGS] += measured.numpy(force=True)
        return sums


def _check_supported(model: keras.Model, settings: ModelSettings, example: Example) -> None:
    """Raises an error for what is available for Keras on TensorFlow only."""
    wanted = settings.configuration
    check_loop(model, settings.is_validated)
    for method in REPLACED:
        if overrides(model, method):
            raise without_tensorflow(f"the method {method} of {type(model).__name__}")
    if wanted.loss is None:
        raise without_tensorflow("a loss of the model itself", "loss", "write `loss: …`")
    if wanted.gradient_checkpointing:
        raise without_tensorflow("activation checkpointing", "gradient_checkpointing", "leave it out")
    if wanted.precision != "float32" or any(
        layer.dtype_policy.compute_dtype != "float32" for layer in model._flatten_layers()
    ):
        raise without_tensorflow("a precision other than float32", "precision", "write `precision: float32`")
    if example.weight_names:
        raise without_tensorflow("sample weights by output", "data.weights", "write one name of weights")
    if any(True for layer in model._flatten_layers() for _ in layer.buffers()):  # Keras has variables instead
        raise ModelError(
            "a layer holds a PyTorch module with buffers, which Keras does not save",
            where="model",
            cure="write it with layers of Keras, or return a torch.nn.Module",
        )
