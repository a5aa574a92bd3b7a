"""A PyTorch module whose parameters are parts of a flat vector, and its other state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mpi_learn.errors import ModelError
from mpi_learn.flat_layout import FlatLayout, UpdateRule
from mpi_learn.models.building.frameworks import seed_python, seeded_python
from mpi_learn.models.labels import LabelRule
from mpi_learn.models.network import NOT_IN_OPTIMIZER, ArrayKind, plain_attributes, seed_of
from mpi_learn.models.outputs import Outputs, Shape
from mpi_learn.models.settings import Arrays, Example, ModelSettings, Tensors
from mpi_learn.models.torch_.checkpointing import blocks_of, recomputed, unchanged_buffers
from mpi_learn.models.torch_.checks import check_hooks, check_parameters, trainable_parameters
from mpi_learn.models.torch_.inputs import described, flat_outputs, in_float32
from mpi_learn.models.torch_.losses_and_metrics.losses import make_output_loss
from mpi_learn.models.torch_.optimizer import TorchRule, like
from mpi_learn.models.torch_.tensors import (
    autocast,
    device,
    fetch,
    on_device,
    random_state,
    send,
    set_random_state,
    shares_memory,
    split,
    tensors,
)
from mpi_learn.settings.component import Component
from mpi_learn.settings.paths import replacing


class TorchNetwork:
    """A PyTorch module as one flat vector.

    The parameters are views of the flat weights. On a GPU, they are views of a copy there, see `refresh`.

    Attributes:
        layout: Layout of the trainable parameters.
        flat: The weights on the device, (layout.size,) float32.

    Raises:
        ModelError: The module has no trainable parameters, one of them is not float32 or has no values, or the
            configured precision or activation checkpointing is not possible.
    """

    framework = "torch"
    has_constraints = False
    sees_attributes = True
    has_penalty = has_unsaved_random = False

    def __init__(self, module: torch.nn.Module, settings: ModelSettings) -> None:
        check_parameters(module)
        module.to(device())
        wanted = settings.configuration
        self.module, self.settings, self._is_mixed = module, settings, wanted.precision != "float32"
        if self._is_mixed and not torch.amp.autocast_mode.is_autocast_available(device().type):
            raise ModelError(
                f"this PyTorch has no autocast on {device().type}", where="precision", cure="write precision: float32"
            )
        if wanted.precision == "mixed_float16":
            check_hooks(module)
        is_stage = settings.chain is not None
        self._blocks = blocks_of(module, is_stage=is_stage) if wanted.gradient_checkpointing else []
        if wanted.gradient_checkpointing and not self._blocks:
            raise ModelError(
                f"{type(module).__name__} has no submodules that could be computed again one by one",
                where="gradient_checkpointing",
                cure="make the model of several modules, or leave it out",
            )
        self._call: Callable[..., Any] = module
        self.parameters = trainable_parameters(module)
        self.layout = FlatLayout.of(self.parameters)
        self.flat = torch.empty(0)
        self._is_fresh = False  # whether the weights on the device are known to be the current ones
        rank_seed = wanted.seed * 1_000_003 + settings.stream  # for dropout, the same for all models of a composition
        torch.manual_seed(rank_seed)
        seed_python(rank_seed)

    def __call__(self, *x: Any, **by_name: Any) -> Any:
        """The outputs of the module; in mixed precision, real numbers are returned as float32."""
        with self.computing():
            outputs = self._call(*x, **by_name)
        return in_float32(outputs) if self._is_mixed else outputs

    def compile_module(self) -> None:
        """Lets `torch.compile` compile the module, which itself stays as it is.

        `module.compile()` has no effect on a `torch.nn.Sequential` (PyTorch 2.13). Compiled code of earlier trainings
        in this process is dropped: PyTorch compiles a function at most 8 times, and then no longer.
        """
        torch.compiler.reset()
        self._call = torch.compile(self.module)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """In the block, the module computes in the configured precision, and stores only the configured activations."""
        has_backward_pass = torch.is_grad_enabled() and self.module.training
        with autocast(self.settings.configuration.precision), recomputed(self._blocks if has_backward_pass else ()):
            yield

    @property
    def uses_gpu(self) -> bool:
        return not shares_memory()

    @property
    def synchronizes_statistics(self) -> bool:
        return any(isinstance(part, torch.nn.SyncBatchNorm) for part in self.module.modules())

    def least_samples(self, x: Arrays) -> int:
        with self.unchanged():
            return least_samples(self.module, lambda: self(*tensors([array[:1] for array in x])))

    def move_into(self, weights: np.ndarray) -> None:
        """Turns the parameters into views of `weights`, or of a copy on the GPU."""
        self.weights = weights[: self.layout.size]
        for parameter, view in zip(self.parameters, self.layout.views(weights), strict=True):
            view[...] = parameter.numpy(force=True)
        if shares_memory() or self.flat.numel() != self.weights.size:
            self.flat = on_device(self.weights)
        else:
            send(self.weights, self.flat)  # an algorithm may hold this tensor
        self._set_parameters(self._on_host() if shares_memory() else split(self.flat, self.layout))

    def _on_host(self) -> list[torch.Tensor]:
        """Views of the weights. Each has its own storage, so that a pickled parameter does not contain all weights."""
        return list(map(torch.from_numpy, self.layout.views(self.weights)))

    def _set_parameters(self, values: list[torch.Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.data = value

    def refresh(self) -> None:
        """Copies the weights, which an update has changed, to a GPU. Call it before the parameters are used."""
        if not self._is_fresh:
            send(self.weights, self.flat)

    def take_to_device(self) -> None:
        """From now on, the device alone has the current weights, until `fetch_from_device`."""
        self.refresh()
        self._is_fresh = True

    def fetch_from_device(self) -> None:
        """Copies the weights back to the host, where they can be changed from now on."""
        fetch(self.flat, self.weights)
        self._is_fresh = False

    @contextmanager
    def unchanged_weights(self) -> Iterator[None]:
        """In the block, the weights do not change, and are copied to the device once."""
        self.refresh()
        before, self._is_fresh = self._is_fresh, True
        try:
            yield
        finally:
            self._is_fresh = before

    def current(self) -> torch.nn.Module:
        self.refresh()
        return self.module.eval()

    def save(self, path: Path) -> Path:
        """Writes the state dict."""
        file = path.with_name(f"{path.name}.pt")
        with replacing(file) as temporary:
            self.refresh()
            state = {
                name: value.to("cpu", copy=True) if isinstance(value, torch.Tensor) else value  # get_extra_state
                for name, value in self.module.state_dict().items()
            }
            torch.save(state, temporary)  # copies: a view would be saved with the whole vector
        return file

    def save_weights(self, path: Path) -> Path:
        """See `save`, which also writes only a state dict."""
        return self.save(path)

    def line_to_load(self, file: Path, name: str) -> str:
        return f"import torch; {name}.load_state_dict(torch.load({file.name!r}))"

    def _state(self, *, is_real: bool) -> list[torch.Tensor]:
        """Buffers and frozen parameters, as they are now: ``self.mean = …`` in `forward` replaces a buffer.

        Sparse matrices, such as the adjacency matrix of a graph, are constants and not part of the state.
        """
        trained = set(map(id, self.parameters))  # also those that a callback has frozen meanwhile
        frozen = (parameter for parameter in self.module.parameters() if id(parameter) not in trained)
        state = (tensor.detach() for tensor in (*self.module.buffers(), *frozen))
        real = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in state]
        dense = [tensor for tensor in real if tensor.layout is torch.strided]
        return [tensor for tensor in dense if tensor.is_floating_point() == is_real]

    @contextmanager
    def unchanged(self) -> Iterator[dict[str, torch.Tensor]]:
        """Restores parameters, buffers, attributes and random numbers; yields copies of the parameters by name."""
        parameters = dict(self.module.named_parameters())
        before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        attributes = [(vars(part), dict(vars(part))) for part in self.module.modules()]
        random = random_state()
        try:
            with unchanged_buffers(self.module):
                yield before
        finally:
            set_random_state(random)
            for now, earlier in attributes:
                now.clear()
                now.update(earlier)
            self.module.eval()  # so that the first step calls `train` as each epoch of a loop does
            with torch.no_grad():
                for name, parameter in parameters.items():
                    parameter.grad = None
                    parameter.copy_(before[name])

    @contextmanager
    def repeatable(self) -> Iterator[None]:
        with self.unchanged(), seeded_python(self.settings.configuration.seed):
            torch.manual_seed(self.settings.configuration.seed)
            yield

    def arrays(self) -> list[ArrayKind]:
        parameters = list(self.module.named_parameters())
        trained = [pair for pair in parameters if pair[1].requires_grad]
        others = [*self.module.named_buffers(), *(pair for pair in parameters if not pair[1].requires_grad)]
        return [
            ArrayKind(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.requires_grad)
            for name, tensor in (*trained, *others)
        ]

    def traits(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path, part in self.module.named_modules():
            hooks = (part._forward_pre_hooks, part._forward_hooks, part._backward_pre_hooks, part._backward_hooks)
            own = plain_attributes(part) | {"number of hooks": sum(map(len, hooks))}
            found |= {f"{path}.{name}".lstrip("."): value for name, value in own.items()}
        trained = set(map(id, self.parameters))
        for name, parameter in self.module.named_parameters():
            is_new = parameter.requires_grad and id(parameter) not in trained
            found[name] = NOT_IN_OPTIMIZER if is_new else "trained" if parameter.requires_grad else "frozen"
        return found

    def check_unchanged(self, before: dict[str, torch.Tensor]) -> None:
        """Raises ModelError if a trained parameter differs from its value `before` the module was called.

        On a GPU, the change would be lost with the next weights from the host.
        """
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad and not torch.equal(parameter, before[name]):
                raise ModelError(
                    f"the parameter {name} changes when the module is called; this needs one rank, and no GPU",
                    where="model",
                    cure="train on one rank without a GPU, or let only the optimizer change parameters (no max_norm)",
                )

    def resize(self, arrays: Sequence[ArrayKind]) -> None:
        for array in arrays:
            owner, _, name = array.name.rpartition(".")
            buffers = self.module.get_submodule(owner)._buffers
            if name in buffers and ((buffer := buffers[name]) is None or tuple(buffer.shape) != array.shape):
                buffers[name] = torch.zeros(array.shape, dtype=getattr(torch, array.dtype), device=device())

    def floats(self) -> np.ndarray:
        return _vector(self._state(is_real=True), torch.float32)

    def set_floats(self, values: np.ndarray) -> None:
        _fill(self._state(is_real=True), values)

    def integers(self) -> np.ndarray:
        """The integers of the module, then the state of PyTorch's random generators, which all modules share."""
        return _vector([*self._state(is_real=False), random_state()], torch.int64)

    def set_integers(self, values: np.ndarray) -> None:
        n = _fill(self._state(is_real=False), values)
        n_random = len(random_state())
        set_random_state(torch.from_numpy(values[n : n + n_random].astype(np.uint8)))

    def random_mask(self) -> np.ndarray:
        return np.arange(self.integers().size) >= sum(tensor.numel() for tensor in self._state(is_real=False))

    def seed_random(self, keys: Sequence[int]) -> None:
        """See `ModelState.seed_random`; also seeds the generators of Python and NumPy, which a module may use."""
        seed = seed_of(keys)
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` also visits devices that are not used
        if self.uses_gpu:
            torch.cuda.manual_seed(seed)
        seed_python(seed)

    def parts(self, flat: Any) -> list[Any]:
        self.refresh()  # `flat` is its weights
        return self.parameters

    def outputs(self, x: Arrays) -> Outputs:
        self.module.eval()
        with torch.no_grad():
            return described(self(*tensors(x)))

    def forward(self, parts: list[Any], x: Tensors, training: bool, is_updated: bool) -> tuple[Tensors, Any]:
        self.module.train(training)
        has_gradient = torch.is_grad_enabled() and (is_updated or any(tensor.requires_grad for tensor in x))
        buffers = unchanged_buffers(self.module) if training and not is_updated else nullcontext()
        with buffers, torch.set_grad_enabled(has_gradient):
            return flat_outputs(self(*x)), 0.0

    def loss(self, wanted: Component, output: Shape, labels: np.ndarray) -> tuple[Any, LabelRule | None]:
        loss, rule = make_output_loss(wanted, output, labels)
        return (lambda labels, output: loss.mean(output, labels)), rule

    def with_gradients(self, function: Callable[[], Any], parts: Sequence[list[Any]]) -> tuple[Any, list[list[Any]]]:
        with torch.enable_grad():
            losses, results = function()
        gradients = []
        for loss, arrays in zip(losses, filter(None, parts), strict=True):
            found = torch.autograd.grad(loss, arrays, retain_graph=True, allow_unused=True)
            pairs = zip(found, arrays, strict=True)
            gradients.append([torch.zeros_like(array) if gradient is None else gradient for gradient, array in pairs])
        return (losses, results), gradients

    def compile(self, function: Callable[..., Any], example: Example, weights: np.ndarray) -> Callable[..., Any]:
        def call(x: Arrays, y: Arrays) -> list[np.ndarray]:
            with torch.no_grad():
                results = function(weights, tensors(x), tensors(y))
                return [torch.as_tensor(result).numpy(force=True) for result in results]

        return call

    def optimizer(self, wanted: Component) -> UpdateRule:
        """See `Network.optimizer`. It computes on the CPU, where the weights are."""
        if shares_memory():
            return TorchRule(wanted, self.parameters, self.layout)
        on_host = [like(*pair) for pair in zip(self.parameters, self._on_host(), strict=True)]
        return TorchRule(wanted, on_host, self.layout)

    def close(self) -> None:
        """Moves the module from a GPU to the CPU, with tensors that it keeps as attributes; frees memory of the GPU."""
        self._call = self.module
        if shares_memory():
            return
        self.flat = torch.from_numpy(self.weights)
        try:
            self.module.to("cpu")
            for part in self.module.modules():
                kept = {name: value for name, value in vars(part).items() if isinstance(value, torch.Tensor)}
                vars(part).update((name, value.cpu()) for name, value in kept.items())
            torch.cuda.empty_cache()
        except RuntimeError:  # after an error in a kernel, CUDA refuses every call; that error is reported
            return
        self._set_parameters(self._on_host())


def least_samples(module: torch.nn.Module, call: Callable[[], Any]) -> int:
    """The smallest batch of a module in training: 2 if `call`, with one sample, raises an exception, else 1."""
    module.train()
    try:
        with torch.no_grad():
            call()
    except Exception:  # noqa: BLE001 - of batch normalisation, or of squeezing the axis of the samples
        return 2
    return 1


def _vector(parts: Sequence[torch.Tensor], dtype: torch.dtype) -> np.ndarray:
    """A copy of all elements. A view as an array would make PyTorch refuse to resize a buffer, as observers do."""
    flat = [part.reshape(-1).to("cpu", dtype) for part in parts]
    return torch.cat(flat).numpy() if flat else torch.zeros(0, dtype=dtype).numpy()


def _fill(buffers: list[torch.Tensor], values: np.ndarray) -> int:
    """Copies the first elements of `values` into the buffers; returns their number.

    A buffer of higher precision whose value has not changed keeps it.
    """
    layout = FlatLayout.of(buffers)
    with torch.no_grad():
        for buffer, part in zip(buffers, layout.views(values), strict=True):
            value = torch.from_numpy(part.copy())
            if buffer.dtype != torch.float64 or not torch.equal(buffer.to("cpu", value.dtype), value):
                buffer.copy_(value)
    return layout.size
