"""PyTorch models: parameters are parts of one flat vector, and gradients are copied into another."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import torch

from mpi_learn.devices.device_vector import DeviceVector, Vector
from mpi_learn.errors import ConfigurationError, ModelError, UserError
from mpi_learn.flat_layout import LOSS, N_FLAGS, N_SAMPLES, WEIGHT
from mpi_learn.models.model import Model
from mpi_learn.models.outputs import Outputs, names_in_history, shown
from mpi_learn.models.settings import Arrays, Example, ModelSettings, named
from mpi_learn.models.torch_.checks import trainable_parameters
from mpi_learn.models.torch_.errors import cure_of, memory_errors, not_taken
from mpi_learn.models.torch_.inputs import arguments_of, described, flat_outputs
from mpi_learn.models.torch_.losses_and_metrics.losses import make_total_loss, metrics_of_single_outputs
from mpi_learn.models.torch_.losses_and_metrics.metrics import Metric, make_metric
from mpi_learn.models.torch_.network import TorchNetwork, least_samples
from mpi_learn.models.torch_.step import StepVector
from mpi_learn.models.torch_.tensors import device, host_empty, page_locked_rows, tensors, wait_for_device
from mpi_learn.settings.component import component

FIRST_STATE = 3
"""Index of the first metric state in the sums."""


class TorchModel(Model):
    """A PyTorch module as one flat vector.

    Inputs and labels keep their dtypes; integers become float32 if the module takes nothing else.

    Raises:
        ModelError, ConfigurationError: Module, loss, metrics and samples do not fit together.
    """

    framework = "torch"
    _sums_on_device: torch.Tensor | None

    def __init__(self, module: torch.nn.Module, settings: ModelSettings, example: Example) -> None:
        self.settings, self.module = settings, module
        self._hold(TorchNetwork(module, settings))
        self._arguments, self._label_names = arguments_of(module, example.x_names), example.y_names
        self._casts = False
        arrays = self.network.arrays()
        with self.network.unchanged() as before:
            tried = self._outputs_of(example)
            outputs = tried.named_by(settings.configuration.loss, settings.configuration.metrics)
            self._loss = make_total_loss(settings.configuration, outputs, example)
            self.has_custom_loss = self._loss.of_outputs.may_be_sums
            made = self._made_metrics(outputs, example)
            names = names_in_history(key for key, _, _ in made)
            self._metrics = [(name, pair, metric) for name, (_, pair, metric) in zip(names, made, strict=True)]
            self.n_sums = FIRST_STATE + sum(metric.size for _, _, metric in self._metrics) + N_FLAGS
            self._check(example, tried)
            self.is_sized_later = self.network.arrays() != arrays
            self.least_samples = least_samples(module, partial(self._call, example.part(0, 1).x))
            if settings.n_workers > 1 or self.uses_gpu:
                self.network.check_unchanged(before)
        self._step = StepVector(self.network, self.layout, self.n_sums)
        if settings.configuration.compile:
            self._compile(example)

    def gradient(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> Vector:
        if len(x[0]) == 0:
            return self._step.empty()
        self._step.prepare()
        with memory_errors():
            return self._gradient(x, y, weights)

    def loss_of(self, inputs: list[torch.Tensor], y: Arrays, weights: Arrays) -> tuple[torch.Tensor, float, np.ndarray]:
        """(mean loss, its divisor, sums) of a micro-batch, in the present mode of the module.

        Args:
            inputs: Tensors on the device, which may need a gradient.
            y, weights: As in `gradient`.
        """
        outputs, labels, n = self._called(inputs), tensors(y), len(inputs[0])
        loss, weight = self._loss(outputs, labels, tensors(weights), n, y)
        return loss, weight, self._sums(outputs, labels, weight, loss, n)

    def evaluate(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        self.network.current()
        with memory_errors(), torch.no_grad():
            return self.loss_of(tensors(x), y, weights)[2]

    def evaluation(self) -> AbstractContextManager[None]:
        return self.network.unchanged_weights()

    def keep_on_device(self) -> torch.device | None:
        if not self.uses_gpu:
            return None
        self._sums_on_device = torch.zeros(self.n_sums, dtype=torch.float64, device=device())
        self._loss_on_device = self._sums_on_device[LOSS]
        return device()

    def weights_on_device(self) -> DeviceVector:
        return DeviceVector(self.network.flat, self.weights[self.network.layout.size :])

    def begin_steps(self) -> None:
        if self._sums_on_device is not None:
            self.network.take_to_device()
            self._step.stays_on_device = True

    def wait(self) -> None:
        with memory_errors():
            wait_for_device()

    def end_steps(self, sums: np.ndarray) -> None:
        if self._sums_on_device is not None:
            self.wait()
            sums += self._sums_on_device.numpy(force=True)
            self._sums_on_device.zero_()
            self.network.fetch_from_device()
            self._step.stays_on_device = False

    def scale_loss(self, scale: Callable[[], float]) -> None:
        self._step.loss_scale = scale

    @property
    def step_vector(self) -> StepVector:
        """Where the gradient of a step is collected."""
        return self._step

    def check_labels(self, y: Arrays) -> None:
        self._loss.of_outputs.check_labels(y)

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        n, start = max(float(sums[N_SAMPLES]), 1.0), FIRST_STATE
        values = {"loss": float(sums[LOSS]) / (float(sums[WEIGHT]) or 1.0)}
        for key, _, metric in self._metrics:
            values[key] = metric.result(sums[start : start + metric.size], n)
            start += metric.size
        return values

    @property
    def metric_names(self) -> list[str]:
        return ["loss", *(name for name, _, _ in self._metrics)]

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        self.network.current()
        with torch.no_grad():
            return tuple(output.numpy(force=True) for output in flat_outputs(self._call(x)))

    def probe(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> list[np.ndarray]:
        with self.repeatable():
            loss = self.metrics(self.evaluate(x, y, weights))["loss"]
            return [*self.predict(x), np.array(loss)]

    def close(self) -> None:
        self._sums_on_device, self._loss_on_device = None, torch.empty(0)
        self.network.close()
        self._step.close()

    def _hold(self, network: TorchNetwork) -> None:
        """Makes the parameters of a network parts of the weights."""
        self.network = self.state = network
        self.networks = {"": network}
        self.uses_gpu = network.uses_gpu
        self.layout = network.layout.with_counts()
        self.weights = host_empty(self.layout.size)
        self.weights[:] = 0
        network.move_into(self.weights)
        self.synchronizes_statistics = network.synchronizes_statistics
        self._sums_on_device = None
        self._loss_on_device = torch.empty(0)  # one of these sums
        self.copy_rows = page_locked_rows if self.uses_gpu else None

    def _compile(self, example: Example) -> None:
        """Lets PyTorch compile the module, and tries it, for errors before the first step."""
        self.network.compile_module()
        try:
            with self.network.unchanged():
                self.gradient(example.x, example.y, example.weights)
                self.evaluate(example.x, example.y, example.weights)
        except Exception as error:  # of the compiler, or of the module, which it cannot follow
            raise ModelError(
                f"torch.compile cannot compile {type(self.module).__name__}: {' '.join(str(error).split())[:200]}",
                where="compile",
                cure="leave it out; on a CPU, it needs a C++ compiler",
            ) from error

    def _gradient(self, x: Arrays, y: Arrays, weights: Arrays) -> Vector:
        outputs, labels, n = self._call(x), tensors(y), len(x[0])
        loss, weight = self._loss(outputs, labels, tensors(weights), n, y)
        # with a weight of 0 all labels are ignored: the loss is a zero that depends on no parameter
        if weight > 0:
            self._step.backward(loss)
        sums = self._add_on_device if self._step.stays_on_device else self._sums
        return self._step.filled(weight, sums(outputs, labels, weight, loss, n))

    def _call(self, x: Arrays) -> Any:
        """The outputs of the module."""
        return self._called(tensors(x))

    def _called(self, inputs: list[torch.Tensor]) -> Any:
        positional, by_name = self._arguments([tensor.float() if self._casts else tensor for tensor in inputs])
        return self.network(*positional, **by_name)

    def _sums(self, outputs: Any, labels: list[Any], weight: float, loss: torch.Tensor, n: int) -> np.ndarray:
        sums = np.zeros(self.n_sums)
        sums[:FIRST_STATE] = weight, weight * loss.item(), n
        with torch.no_grad():
            for place, metric, output, label in self._measured(outputs, labels):
                sums[place] = metric.state(output, label, n)
        return sums

    def _add_on_device(self, outputs: Any, labels: list[Any], weight: float, loss: torch.Tensor, n: int) -> np.ndarray:
        """As `_sums`, but loss and metrics are added on the device, and returned by `end_steps`."""
        on_device, sums = self._sums_on_device, np.zeros(self.n_sums)
        assert on_device is not None
        sums[WEIGHT], sums[N_SAMPLES] = weight, n
        if weight != 0:
            self._loss_on_device.add_(loss.detach(), alpha=weight)
        if self._metrics:
            with torch.no_grad():
                for place, metric, output, label in self._measured(outputs, labels):
                    on_device[place].add_(metric.state_on_device(output, label, n))
        return sums

    def _measured(self, outputs: Any, labels: list[Any]) -> Iterator[tuple[slice, Metric, Any, Any]]:
        """The place of each metric in the sums, the metric, and the output and label that it compares."""
        start, flat, all_labels = FIRST_STATE, flat_outputs(outputs), named(labels, self._label_names)
        for _, pair, metric in self._metrics:
            output, label = (outputs, all_labels) if pair is None else (flat[pair[0]], labels[pair[1]])
            yield slice(start, start + metric.size), metric, output, label
            start += metric.size

    def _outputs_of(self, example: Example) -> Outputs:
        """The outputs, by calling the module on the example: with integers as they are, or else as float32."""
        self.module.eval()
        has_integers = any(array.dtype.kind != "f" for array in example.x)
        errors: list[Exception] = []
        for casts in (False, True) if has_integers else (False,):
            self._casts = casts
            try:
                with torch.no_grad():
                    return described(self._call(example.x))
            except UserError:
                raise
            except Exception as error:  # noqa: BLE001 - of the user's module
                errors.append(error)
        raise not_taken(errors[0], example) from errors[0]

    def _made_metrics(self, outputs: Outputs, example: Example) -> list[tuple[str, tuple[int, int] | None, Metric]]:
        """(key, indices of its output and label, metric) of each metric; None for all outputs and labels together.

        Raises:
            ModelError, ConfigurationError: There is no such metric, or an output has metrics but no label.
        """
        metrics, losses = self.settings.configuration.metrics, self._loss.of_outputs
        if self.settings.configuration.weighted_metrics:
            raise ConfigurationError(
                "weighted metrics are available for Keras models only",
                where="weighted_metrics",
                cure="write `metrics`, which are not weighted",
            )
        made: list[tuple[str, tuple[int, int] | None, Metric]] = []
        has_joint_loss = self._loss.joint is not None
        of_single_outputs = metrics_of_single_outputs(metrics) if has_joint_loss else metrics
        for index, of_output in enumerate(outputs.metrics(of_single_outputs)):
            label = losses.labels[index]
            for wanted in of_output:
                if label is None:
                    raise ModelError(
                        f"the output {outputs.name(index)} has metrics but no label",
                        where="data.labels",
                        cure="add its label, or leave its metrics out",
                    )
                metric = make_metric(wanted, losses.losses[index], outputs.shapes[index])
                made.append((outputs.key(index, wanted), (index, label), metric))
        if not has_joint_loss or isinstance(metrics, dict):
            return made
        of_only_output = iter(made)
        return [
            (wanted.key, None, make_metric(wanted, None, ())) if wanted.is_custom else next(of_only_output)
            for wanted in map(component, metrics)
        ]

    def _check(self, example: Example, in_evaluation: Outputs) -> None:
        """One pass in each mode on the example, for errors before the first step.

        Raises:
            ModelError: Loss or metrics do not take the outputs and labels, there are other outputs in training, or
                module or loss have a state that cannot be trained here.
            ConfigurationError: A metric is not one number.
        """
        state = [buffer.clone() for buffer in self._loss_buffers()]
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="Using a target size")  # it would broadcast to (n, n)
                sums = self.evaluate(example.x, example.y, example.weights)
                if len(example) > 1:  # batch normalisation and some metrics need several samples
                    self.metrics(sums)
                    self._check_training(example, in_evaluation)
        except UserError:
            raise
        except Exception as error:  # of the user's module, loss or metric, or a warning
            found = f"outputs of shape {shown(shape[1:] for shape in in_evaluation.shapes)} per sample"
            labels = shown(array.shape[1:] for array in example.y) or "none"
            raise ModelError(
                f"model, loss and data do not fit together: {error}",
                where="loss",
                cure=cure_of(error, f"change the model ({found}), the labels ({labels}) or the loss"),
            ) from error
        if not all(map(torch.equal, state, self._loss_buffers())):
            raise ModelError(
                "the loss changes a state of its own, which checkpoints and other ranks do not have",
                where="loss",
                cure="let the model hold the state in a buffer, and return it",
            )
        if list(map(id, trainable_parameters(self.module))) != list(map(id, self.network.parameters)):
            raise ModelError(
                "the module creates parameters when it is called, which would not be trained",
                where="model",
                cure="call it with a few samples in your function, before you return it",
            )

    def _loss_buffers(self) -> list[torch.Tensor]:
        return [buffer for loss in self._loss.of_outputs.losses if loss is not None for buffer in loss.buffers()]

    def _check_training(self, example: Example, in_evaluation: Outputs) -> None:
        self.module.train()
        outputs = self._call(example.x)
        if self._loss.joint is None:
            _check_same(described(outputs), in_evaluation)
        labels = tensors(example.y)
        loss, _ = self._loss(outputs, labels, tensors(example.weights), len(example), example.y)
        if loss.requires_grad:
            torch.autograd.backward(loss)


def _check_same(in_training: Outputs, in_evaluation: Outputs) -> None:
    """Raises ModelError if a module returns other outputs in training than in evaluation."""
    if (len(in_training), in_training.names) != (len(in_evaluation), in_evaluation.names):
        raise ModelError(
            f"the model returns {_listed(in_training)} in training, but {_listed(in_evaluation)} in evaluation",
            where="model",
            cure="write a loss of your own, file.py:function, which takes all that the model returns",
        )


def _listed(outputs: Outputs) -> str:
    if outputs.names:
        return f"outputs {', '.join(outputs.names)}"
    return "one output" if len(outputs) == 1 else f"{len(outputs)} outputs"
