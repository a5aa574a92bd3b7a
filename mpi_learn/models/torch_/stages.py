"""Stages of a PyTorch module; see `mpi_learn.models.pipeline`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from mpi_learn.errors import ModelError, UserError
from mpi_learn.flat_layout import aligned_empty
from mpi_learn.models.model import Model
from mpi_learn.models.network import Network
from mpi_learn.models.pipeline.split import Layer, operations, shared_weights, shortest_s
from mpi_learn.models.pipeline.stage import Stage, StagesOfFramework
from mpi_learn.models.settings import Arrays, Example, ModelSettings
from mpi_learn.models.torch_.checks import trainable_parameters
from mpi_learn.models.torch_.errors import cure_of
from mpi_learn.models.torch_.inputs import arguments_of
from mpi_learn.models.torch_.lightning import has_own_steps
from mpi_learn.models.torch_.model import TorchModel
from mpi_learn.models.torch_.network import TorchNetwork, least_samples
from mpi_learn.models.torch_.step import StepVector
from mpi_learn.models.torch_.tensors import autocast, choose_device, device, tensors, wait_for_device

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
LIST_OF_STAGES = "return a torch.nn.Sequential, or a list with one module per stage"


class TorchStage(Stage):
    """Some modules of a PyTorch model. Gradients of micro-batches are added up in the parameters.

    Args:
        module: The modules.
        example: See `StagesOfFramework.stage`.

    Raises:
        ModelError: The module cannot be trained as a stage.
    """

    network: TorchNetwork

    def __init__(
        self, module: nn.Module, settings: ModelSettings, example: Example, *, is_first: bool, is_last: bool
    ) -> None:
        self._is_first, self._module = is_first, module
        self._arguments = arguments_of(module, example.x_names)
        _check_state(module)
        if is_last:
            self.last = self._model = TorchModel(module, settings, example)
            self.network = self._model.network
            self.layout, self.weights = self._model.layout, self._model.weights
            self.least_samples = self._model.least_samples
        else:
            self.network = TorchNetwork(module, settings)
            self.layout = self.network.layout.with_counts()
            self.weights = aligned_empty(self.layout.size)
            self.weights[:] = 0
            self.network.move_into(self.weights)
        self._vector = self._model.step_vector if is_last else None
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._sums = np.zeros(0)
        self._copies = self._casts = False
        if self.last is not None:
            self._sums = np.zeros(self.last.n_sums)
        else:
            self._casts = _needs_floats(self._output, tensors(example.x))
        with _errors(f"the stage {type(module).__name__}"):
            self._check(example)
        if not is_last:
            with self.network.unchanged():
                self.least_samples = least_samples(module, lambda: self._output(tensors(example.part(0, 1).x)))

    def infer(self, x: Arrays) -> np.ndarray:
        self.network.current()
        with torch.no_grad():
            array: np.ndarray = self._output(tensors(x)).numpy(force=True)
        return array

    def begin(self, n_sums: int) -> None:
        if self._vector is None:
            self._vector = StepVector(self.network, self.layout, n_sums)
        self._kept.clear()
        self._sums = np.zeros(n_sums)
        self._vector.prepare()

    def forward(self, micro_batch: int, x: Arrays, y: Arrays, weights: Arrays) -> np.ndarray | None:
        inputs = tensors(x)
        # the gradient of the activations is the message for the stage before
        given = inputs[0] if self._is_first else inputs[0].requires_grad_()
        if self._copies:
            inputs = [given.clone()]
        if self.last is not None:
            loss, weight, sums = self._model.loss_of(inputs, y, weights)
            self._sums += sums
            self._kept[micro_batch] = given, weight * loss
            return None
        output = self._output(inputs)
        self._kept[micro_batch] = given, output
        array: np.ndarray = output.numpy(force=True)
        return array

    def backward(self, micro_batch: int, gradient: np.ndarray | None) -> np.ndarray | None:
        given, output = self._kept.pop(micro_batch)  # and with them the activations, which are freed
        if output.requires_grad:  # not if the weight of the micro-batch is 0
            # what the last stage has kept is a loss, whose gradient begins with 1
            torch.autograd.backward(output, None if gradient is None else tensors([gradient])[0])
        if self._is_first:
            return None
        found = torch.zeros_like(given) if given.grad is None else given.grad
        array: np.ndarray = found.numpy(force=True)
        return array

    def sums(self) -> np.ndarray:
        return self._sums

    def step(self, sums: np.ndarray) -> np.ndarray:
        assert self._vector is not None
        # a factor of 1: each loss was multiplied by its weight in `forward`; a pipeline keeps step vectors on the host
        return cast(np.ndarray, self._vector.filled(1.0, sums))

    def values(self) -> list[np.ndarray]:
        self.network.refresh()
        return [tensor.numpy(force=True) for tensor in self._module.state_dict().values()]

    def _output(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        positional, by_name = self._arguments([one.float() if self._casts else one for one in inputs])
        output = self.network(*positional, **by_name)
        if not isinstance(output, torch.Tensor) or output.dtype != torch.float32:
            kind = str(output.dtype) if isinstance(output, torch.Tensor) else type(output).__name__
            raise ModelError(
                f"expected one tensor of float32 between two stages, {type(self._module).__name__} returns {kind}",
                where="pipeline",
                cure="divide the model where one tensor passes from layer to layer",
            )
        return output

    def _check(self, example: Example) -> None:
        """A forward and a backward pass of a few samples, for errors before the first step. The state is restored.

        A module that changes its input in place gets a copy: PyTorch does not allow it where a gradient begins.
        """
        try:
            self._try_passes(example)
        except RuntimeError:
            self._copies = True
            self._try_passes(example)

    def _try_passes(self, example: Example) -> None:
        with self.network.unchanged():
            self._module.train()
            output = self.forward(0, example.x, example.y, example.weights)
            if output is not None and len(output) != len(example):
                raise ModelError(
                    f"the first axis of the output of a stage is {len(output)} for {len(example)} samples",
                    where="pipeline",
                    cure="keep the samples in the first axis of the tensors between stages",
                )
            self.backward(0, None if output is None else np.zeros_like(output))
        self._kept.clear()


class TorchStages(StagesOfFramework):
    """Divides a ``torch.nn.Sequential``."""

    def layers(self, model: Any, x: Arrays) -> list[Layer]:
        _check_sequential(model)
        found, given = [], tensors(x)[0].to("cpu")  # the whole model may not fit the GPU
        model.eval()
        with torch.no_grad(), _errors(type(model).__name__):
            if _needs_floats(lambda inputs: model[0](*inputs), [given]):
                given = given.float()
            for module in model:
                output = module(given)
                found.append(_layer(module, given, output))
                given = output
        model.train()
        return found

    def seconds(self, model: Any, bounds: Sequence[int], example: Example, settings: ModelSettings) -> list[float]:
        choose_device(settings.configuration.device)
        precision, given, found = settings.configuration.precision, tensors(example.x)[0], []

        def run(part: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
            with autocast(precision):
                output: torch.Tensor = part(inputs.clone())  # a copy, which the first module may change
            output.sum().backward()  # type: ignore[no-untyped-call]
            wait_for_device()
            return output.detach().float()

        with _errors(type(model).__name__):
            for first, stop in pairwise(bounds):
                part = nn.Sequential(*list(model)[first:stop]).to(device()).train()  # the whole may not fit the GPU
                if first == 0 and _needs_floats(lambda inputs: part(*inputs), [given]):  # noqa: B023
                    given = given.float()
                passed = partial(run, part, given.requires_grad_(first > 0))
                given = passed()
                found.append(shortest_s(passed))
                part.to("cpu")
        return found

    def part(self, model: Any, bounds: Sequence[int], index: int) -> Any:
        _check_sequential(model)
        layers = list(model._modules.items())  # a slice of `model` would call the constructor of the user's class
        parts = [nn.Sequential(OrderedDict(layers[first:stop])) for first, stop in pairwise(bounds)]
        self.check_separate(parts)
        return parts[index]

    def check_separate(self, models: Sequence[Any]) -> None:
        owners: dict[int, int] = {}
        for index, model in enumerate(models):
            for name, tensor in chain(model.named_parameters(), model.named_buffers()):
                if owners.setdefault(id(tensor), index) != index:
                    raise shared_weights(name, owners[id(tensor)], index)

    def stage(self, model: Any, settings: ModelSettings, example: Example, *, is_first: bool, is_last: bool) -> Stage:
        return TorchStage(model, settings, example, is_first=is_first, is_last=is_last)

    def joined(self, models: Sequence[Any]) -> Any:
        return models[0] if len(models) == 1 else nn.Sequential(*models)

    def whole(self, model: Any, settings: ModelSettings, example: Example) -> Model:
        return TorchModel(model, settings, example)

    def restored(self, model: Any, values: Sequence[np.ndarray], settings: ModelSettings, example: Example) -> Network:
        names = model.state_dict().keys()
        model.load_state_dict({name: torch.from_numpy(array) for name, array in zip(names, values, strict=True)})
        network = TorchNetwork(model, settings)
        network.move_into(aligned_empty(network.layout.size))
        return network


def _check_sequential(model: Any) -> None:
    if has_own_steps(model) or not isinstance(model, nn.Sequential) or type(model).forward is not nn.Sequential.forward:
        raise ModelError(f"{type(model).__name__} cannot be divided into stages", where="model", cure=LIST_OF_STAGES)


def _layer(module: nn.Module, given: Any, output: Any) -> Layer:
    parts = list(module.modules())
    embedded = sum(part.weight.numel() for part in parts if isinstance(part, nn.Embedding | nn.EmbeddingBag))
    n_parameters = sum(parameter.numel() for parameter in module.parameters())
    shapes = [value.shape[1:] for value in (given, output) if isinstance(value, torch.Tensor)]
    has_channels_first = any(isinstance(part, CONVOLUTIONS) for part in parts)
    return Layer(
        operations(n_parameters - embedded, shapes, channels_first=has_channels_first),
        sum(parameter.numel() for parameter in trainable_parameters(module)),
    )


def _needs_floats(call: Callable[[list[torch.Tensor]], Any], inputs: list[torch.Tensor]) -> bool:
    """Whether a module takes its integer inputs only as real numbers, as for `TorchModel`."""
    if all(tensor.is_floating_point() for tensor in inputs):
        return False
    try:
        with torch.no_grad():
            call(inputs)
    except Exception:  # noqa: BLE001 - of the user's module
        return True
    return False


def _check_state(module: nn.Module) -> None:
    """Raises ModelError if the state of a module is not made of tensors, which `gather` sends."""
    if odd := [name for name, value in module.state_dict().items() if not isinstance(value, torch.Tensor)]:
        raise ModelError(
            f"{odd[0]} of the state of a stage is no tensor",
            where="model",
            cure="keep the state in buffers instead of `get_extra_state`",
        )


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Converts errors of the user's modules to `ModelError`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        cure = cure_of(error, "let each stage take what the one before it returns, and the first one data.features")
        raise ModelError(f"{what} does not take the samples: {error}", where="model", cure=cure) from error
