"""PyTorch models: parameters and gradients are views of two flat vectors, so that nothing is gathered or copied."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.flat_layout import LOSS, N_SAMPLES, N_WORDS, WEIGHT, aligned_empty
from mpi_learn.models.configuration import ModelSettings
from mpi_learn.models.framework_optimizers import FrameworkRule
from mpi_learn.models.model import Arrays, Example, Model, named
from mpi_learn.models.outputs import LabelRule, Outputs, check_ranges, key_of
from mpi_learn.models.torch_.torch_checkpointing import resting
from mpi_learn.models.torch_.torch_losses import Loss, make_loss
from mpi_learn.models.torch_.torch_metrics import Metric, make_metric
from mpi_learn.models.torch_.torch_network import TorchNetwork, arguments_of, flat_outputs, tensors
from mpi_learn.settings.component import Component, component

FIRST_STATE = 3
"""Index of the first metric state in the sums."""
NOT_TAKEN = (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError)


class TorchModel(Model):
    """A PyTorch module as one flat vector.

    Inputs and labels keep their dtypes; integers become float32 if the module takes nothing else.

    Raises:
        ModelError, ConfigurationError: Module, loss, metrics and samples do not fit together.
    """

    framework = "torch"

    def __init__(self, module: torch.nn.Module, settings: ModelSettings, example: Example) -> None:
        self.settings, self.module = settings, module
        self._losses: list[Loss | None] = []
        self._factors = [1.0]
        self.network = TorchNetwork(module, settings)
        self.layout = self.network.layout
        self._arguments, self._names = arguments_of(module, example.x_names), example.y_names
        self._casts = False
        outputs = self._tried(example)
        self._make_losses(outputs, example)
        self._make_metrics(outputs, example)
        self.n_sums = FIRST_STATE + sum(metric.size for _, _, metric in self._metrics) + N_WORDS
        self._check(example)
        self.weights = aligned_empty(self.layout.size)
        self._step = aligned_empty(self.layout.size + self.n_sums)
        self._gradients = [torch.from_numpy(view) for view in self.layout.views(self._step)]
        self.network.give(self.weights)

    def gradient(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        self._step[:] = 0
        if len(x[0]) == 0:
            return self._step
        for parameter, gradient in zip(self.network.parameters, self._gradients, strict=True):
            if parameter.grad is not gradient:
                parameter.grad = gradient
        if not self.module.training:
            self.module.train()
        outputs, labels = self._called(x), tensors(y)
        loss, weight = self._loss(outputs, labels, tensors(weights), len(x[0]))
        if weight > 0:
            torch.autograd.backward(weight * loss)
        self._step[self.layout.size :] = self._sums(outputs, labels, weight, loss.item(), len(x[0]))
        return self._step

    def evaluate(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        self.module.eval()
        with torch.no_grad():
            outputs, labels = self._called(x), tensors(y)
            loss, weight = self._loss(outputs, labels, tensors(weights), len(x[0]))
            return self._sums(outputs, labels, weight, loss.item(), len(x[0]))

    def check_labels(self, y: Arrays) -> None:
        if self._whole is None:
            check_ranges(self._rules(), self._places, y)

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        n, start = max(float(sums[N_SAMPLES]), 1.0), FIRST_STATE
        found = {"loss": float(sums[LOSS]) / (float(sums[WEIGHT]) or 1.0)}
        for key, _, metric in self._metrics:
            found[key] = metric.result(sums[start : start + metric.size], n)
            start += metric.size
        return found

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        self.module.eval()
        with torch.no_grad():
            return tuple(one.numpy() for one in flat_outputs(self._called(x)))

    def moving(self) -> np.ndarray:
        return self.network.state()

    def set_moving(self, values: np.ndarray) -> None:
        self.network.set_state(values)

    def counters(self) -> np.ndarray:
        return np.concatenate([self.network.integers(), self.network.random_state()])

    def set_counters(self, values: np.ndarray) -> None:
        self.network.set_integers(values)
        self.network.set_random_state(values[self.network.integers().size :])

    def optimizer(self, wanted: Component, number: int = 0) -> FrameworkRule:
        return self.network.optimizer(wanted)

    def current(self) -> torch.nn.Module:
        """The module, whose parameters are views of `weights`."""
        return self.network.take(self.weights)

    def finish(self) -> torch.nn.Module:
        return self.current()

    def save(self, path: Path) -> Path:
        """Writes the state dict; see `Model.save`."""
        return self.network.save(path, self.weights)

    def save_weights(self, path: Path) -> tuple[Path, str]:
        file = self.save(path)
        return file, f"import torch\n{self.settings.call}\nmodel.load_state_dict(torch.load({file.name!r}))"

    def _called(self, x: Arrays) -> Any:
        """The outputs of the module."""
        taken: Sequence[Any] = tensors(x)
        if self._casts:
            taken = [one.float() for one in taken]
        positional, by_name = self._arguments(taken)
        return self.network.calls(*positional, **by_name)

    def _loss(self, outputs: Any, labels: list[Any], weights: list[Any], n: int) -> tuple[torch.Tensor, float]:
        """The mean loss of a batch, and its divisor."""
        factors = weights[0] if weights else None
        if self._whole is not None:
            return self._whole.mean(outputs, named(labels, self._names), factors), float(n)
        found, flat = [], flat_outputs(outputs)
        for loss, place, output, factor in zip(self._losses, self._places, flat, self._factors, strict=True):
            if loss is not None and place is not None:
                mean = loss.mean(output, labels[place], factors)
                found.append(mean if factor == 1 else factor * mean)
        if len(flat) == 1 and self._losses[0] is not None and factors is None:
            return found[0], self._losses[0].weight(labels[0], n)
        return sum(found[1:], found[0]), float(n)

    def _sums(self, outputs: Any, labels: list[Any], weight: float, loss: float, n: int) -> np.ndarray:
        states, loss = [], loss if weight > 0 else 0.0  # a mean over nothing is not a number
        with torch.no_grad():
            flat = flat_outputs(outputs)
            for _, output, metric in self._metrics:
                place = None if output is None else self._places[output]
                parts = (outputs, named(labels, self._names)) if output is None else (flat[output], labels[place or 0])
                states.append(metric.state(parts[0], parts[1], n).numpy())
        return np.concatenate([[weight, weight * loss, n], *states, [0.0] * N_WORDS])

    def _tried(self, example: Example) -> Outputs:
        """The outputs, by calling the module on the example: with integers as they are, or else as float32."""
        self.module.eval()
        errors: list[Exception] = []
        for self._casts in (False, True):
            try:
                with torch.no_grad():
                    found = self._called(example.x)
                shapes = tuple(tuple(one.shape) for one in flat_outputs(found))
                names = tuple(found) if isinstance(found, dict) else ()
                return Outputs(shapes, names, is_mapping=isinstance(found, dict)).named_by(
                    self.settings.loss, self.settings.metrics
                )
            except NOT_TAKEN as error:
                errors.append(error)
            if all(one.dtype.kind == "f" for one in example.x):
                break
        shapes_found = " and ".join(f"{one.shape[1:]} ({one.dtype})" for one in example.x)
        raise ModelError(
            f"the model does not take samples of shape {shapes_found}: {errors[0]}", where="data.features"
        ) from errors[0]

    def _make_losses(self, outputs: Outputs, example: Example) -> None:
        settings = self.settings
        if settings.loss is None:
            raise ConfigurationError("a PyTorch model needs a loss", where="loss", cure="write `loss: …`")
        if settings.weighted_metrics:
            raise ConfigurationError("weighted metrics are available for Keras models only", where="weighted_metrics")
        only = None if isinstance(settings.loss, list | dict) else make_loss(component(settings.loss))
        self._whole = only if only is not None and not only.name else None
        if self._whole is not None:
            self.has_own_loss = True
            self._losses, self._places = [self._whole] * len(outputs), self._matched_labels(outputs, example)
            if settings.loss_weights is not None:
                raise ConfigurationError("one loss has no weights", where="loss_weights", cure="write a loss by output")
            return
        wanted = outputs.losses(settings.loss)
        self._places = outputs.labels(self._names, len(example.y), wanted)
        self._losses = []
        for one, shape, place in zip(wanted, outputs.shapes, self._places, strict=True):
            if one is None or place is None:
                self._losses.append(None)
                continue
            loss = make_loss(one).fitted(shape, example.y[place])
            if loss.rule is not None:
                loss.rule.check_shape(example.y[place])
            self._losses.append(loss)
            self.has_own_loss |= not loss.name or "reduction" in one.arguments
        check_ranges(self._rules(), self._places, example.y)
        self._factors = [
            1.0 if one is None else float(one) for one in outputs.spread(settings.loss_weights, "loss_weights")
        ]

    def _rules(self) -> list[LabelRule | None]:
        """The labels that the loss of each output accepts; None if this is not known."""
        return [None if loss is None else loss.rule for loss in self._losses]

    def _matched_labels(self, outputs: Outputs, example: Example) -> list[int | None]:
        """The labels of the outputs for metrics, where they can be matched; the loss takes all of them."""
        if not self.settings.metrics or len(example.y) == 0:
            return [None] * len(outputs)
        if isinstance(self.settings.metrics, dict) or len(outputs) == 1:
            return outputs.labels(self._names, len(example.y), outputs.losses(self.settings.loss))
        return [None] * len(outputs)

    def _make_metrics(self, outputs: Outputs, example: Example) -> None:
        """(key, number of the output or None for all of them, metric) of each metric."""
        self._metrics: list[tuple[str, int | None, Metric]] = []
        wanted, settings = [component(one) for one in self.settings.metrics], self.settings
        if self._whole is not None and not isinstance(settings.metrics, dict) and all(one.is_own for one in wanted):
            self._metrics = [(one.key, None, make_metric(one, None, (), None)) for one in wanted]
            return
        for index, ones in enumerate(outputs.metrics(settings.metrics)):
            place = self._places[index]
            labels = None if place is None else example.y[place]
            for one in ones:
                made = make_metric(one, self._losses[index], outputs.shapes[index], labels)
                self._metrics.append((key_of(outputs, index, one), index, made))

    def _check(self, example: Example) -> None:
        """One pass in each mode on the example, for errors before the first step; the state stays as it is.

        Raises:
            ModelError: Loss or metrics do not take the outputs and labels.
        """
        random_state = self.network.random_state()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="Using a target size")  # it would broadcast to (n, n)
                self.evaluate(example.x, example.y, example.weights)
        except (*NOT_TAKEN, Warning) as error:
            raise ModelError(f"model, loss and data do not fit together: {error}", where="loss") from error
        with torch.no_grad(), resting(self.module):
            self.module.train()
            try:
                self._called(example.part(0, 1).x)
            except ValueError as error:
                if "more than 1 value per channel" not in str(error):
                    raise
                self.least_samples = 2
        self.network.set_random_state(random_state)
