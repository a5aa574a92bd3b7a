"""PyTorch models: parameters and gradients are views of two flat vectors, so that nothing is gathered or copied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mpi_learn.errors import ModelError
from mpi_learn.flat_layout import FIRST_METRIC, LOSS, N_SAMPLES, N_WORDS, FlatLayout, aligned_empty
from mpi_learn.models.configuration import PLAIN, Computing
from mpi_learn.models.model import Arrays, Model
from mpi_learn.models.torch_.torch_checkpointing import TorchCalls
from mpi_learn.models.torch_.torch_losses import check_label_range, make_losses, make_metrics


class TorchModel(Model):
    """A PyTorch module as one flat vector.

    Args:
        module: With at least one float32 parameter that wants a gradient; called with one tensor per input.
        loss, metrics: As in the configuration, with absolute paths.
        x, y: A few samples, for shapes and types.
        seed: Of dropout and noise: give each rank its own.
        computing: In which precision, and whether activations are computed again.

    Raises:
        ModelError, ConfigurationError: Module, loss, metrics and samples do not fit together.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Any,
        metrics: Any,
        x: Arrays,
        y: Arrays,
        seed: int = 0,
        computing: Computing = PLAIN,
    ) -> None:
        self.module, self._calls = module, TorchCalls(module, computing)
        self._parameters = [one for one in module.parameters() if one.requires_grad]
        self.layout = FlatLayout(tuple(tuple(one.shape) for one in self._parameters))
        outputs = self._tried(x)
        self.losses = make_losses(loss, outputs, y)
        self._metrics = make_metrics(metrics, self.losses)
        self.n_sums = FIRST_METRIC + len(self._metrics) + N_WORDS
        self.weights = aligned_empty(self.layout.size)
        self._step = aligned_empty(self.layout.size + self.n_sums)
        self._gradients = [torch.from_numpy(view) for view in self.layout.views(self._step)]
        for parameter, view in zip(self._parameters, self.layout.views(self.weights), strict=True):
            view[...] = parameter.detach().numpy()
            parameter.data = torch.from_numpy(view)
        self._moving, self._whole = state_of(module)
        torch.manual_seed(seed)

    def gradient(self, x: Arrays, y: Arrays) -> np.ndarray:
        """See `Model.gradient`; the vector is the same memory at every call."""
        self._step[:] = 0
        if len(x[0]) == 0:
            return self._step
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            if parameter.grad is not gradient:
                parameter.grad = gradient
        if not self.module.training:
            self.module.train()
        outputs, labels = self._called(x), [torch.from_numpy(one) for one in y]
        total = self._loss(outputs, labels)
        total.backward()
        self._step[self.layout.size :] = self._sums(outputs, labels, total.item())
        return self._step

    def announce(self, ready: Callable[[np.ndarray, int], None]) -> None:
        """See `Model.announce`."""
        for number, parameter in enumerate(self._parameters):
            parameter.register_post_accumulate_grad_hook(lambda _, number=number: ready(self._step, number))

    def evaluate(self, x: Arrays, y: Arrays) -> np.ndarray:
        """See `Model.evaluate`."""
        self.module.eval()
        with torch.no_grad():
            outputs, labels = self._called(x), [torch.from_numpy(one) for one in y]
            return self._sums(outputs, labels, self._loss(outputs, labels).item())

    def check_labels(self, y: Arrays) -> None:
        """See `Model.check_labels`."""
        check_label_range(self.losses, y)

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """See `Model.metrics`."""
        n = max(float(sums[N_SAMPLES]), 1.0)
        values = sums[FIRST_METRIC:-N_WORDS] / n
        return {"loss": float(sums[LOSS]) / n} | {
            metric.key: float(value) for metric, value in zip(self._metrics, values, strict=True)
        }

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        """See `Model.predict`."""
        self.module.eval()
        with torch.no_grad():
            return tuple(one.numpy() for one in self._called(x))

    def moving(self) -> np.ndarray:
        """See `Model.moving`."""
        parts = [one.float().numpy().ravel() for one in self._moving]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def set_moving(self, values: np.ndarray) -> None:
        """See `Model.set_moving`."""
        fill(self._moving, values)

    def counters(self) -> np.ndarray:
        """See `Model.counters`: whole-number buffers, then the state of the random generator."""
        parts = [one.numpy().astype(np.int64).ravel() for one in self._whole]
        return np.concatenate([*parts, torch.get_rng_state().numpy().astype(np.int64)])

    def set_counters(self, values: np.ndarray) -> None:
        """See `Model.set_counters`."""
        used = fill(self._whole, values)
        torch.set_rng_state(torch.from_numpy(values[used:].astype(np.uint8)))

    def finish(self) -> torch.nn.Module:
        """The module, whose parameters are views of `weights`."""
        return self.module.eval()

    def save(self, path: Path) -> Path:
        """Writes the state dict; see `Model.save`."""
        file, aside = path.with_suffix(".pt"), path.with_name(f".{path.stem}.writing.pt")
        torch.save({name: value.clone() for name, value in self.module.state_dict().items()}, aside)
        return aside.rename(file)

    def _called(self, x: Arrays) -> list[torch.Tensor]:
        return self._calls([torch.from_numpy(one) for one in x])

    def _loss(self, outputs: list[torch.Tensor], labels: list[torch.Tensor]) -> torch.Tensor:
        first, *others = (loss.summed(*pair) for loss, *pair in zip(self.losses, labels, outputs, strict=True))
        return sum(others, first)

    def _sums(self, outputs: list[torch.Tensor], labels: list[torch.Tensor], total: float) -> np.ndarray:
        with torch.no_grad():
            found = [metric.summed(labels[metric.output], outputs[metric.output]).item() for metric in self._metrics]
        return np.array([len(outputs[0]), total, *found, *([0.0] * N_WORDS)])

    def _tried(self, x: Arrays) -> list[tuple[int, ...]]:
        """The shapes of the outputs, by calling the module on a few samples."""
        check_parameters(self.module)
        self.module.eval()
        try:
            with torch.no_grad():
                return [tuple(one.shape) for one in self._called(x)]
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            shapes = " and ".join(str(one.shape[1:]) for one in x)
            raise ModelError(
                f"the model does not take samples of shape {shapes}: {error}", where="data.features"
            ) from error


def check_parameters(module: torch.nn.Module) -> None:
    """Raises ModelError unless the module has something to train, of a kind and at a place that we know."""
    found = [one for one in module.parameters() if one.requires_grad]
    if not found or any(one.dtype != torch.float32 for one in found):
        raise ModelError("the module needs parameters, all of them float32", where="model")
    if others := {str(one.device) for one in module.parameters()} - {"cpu"}:
        raise ModelError(
            f"its parameters are on {', '.join(sorted(others))}: PyTorch modules compute on the processor here",
            where="model",
            cure="return the module as it is made, without .to(device)",
        )


def state_of(*modules: torch.nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What of the modules is not trained, buffers and frozen parameters: real numbers, and whole ones."""
    found = [one for module in modules for one in module.buffers()]
    found += [one for module in modules for one in module.parameters() if not one.requires_grad]
    return [one for one in found if one.is_floating_point()], [one for one in found if not one.is_floating_point()]


def fill(buffers: list[torch.Tensor], values: np.ndarray) -> int:
    """Fills `buffers` from `values`, one behind the other; returns how many values they took."""
    start = 0
    for buffer in buffers:
        part = torch.from_numpy(values[start : start + buffer.numel()].copy())
        buffer.copy_(part.reshape(buffer.shape))
        start += buffer.numel()
    return start
