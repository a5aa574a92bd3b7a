"""Calls of PyTorch modules as configured: in which precision, and how much is kept for the backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from mpi_learn.errors import ModelError
from mpi_learn.models.configuration import Computing

Tensors = list[torch.Tensor]
Forward = Callable[..., Any]


class TorchCalls:
    """Calls a module.

    In ``mixed_bfloat16`` PyTorch's autocast decides what is computed in 16 bits; parameters, gradients and outputs are
    float32. With checkpointing, what a block computes is thrown away after the forward pass and computed again for the
    backward pass (Chen et al. 2016). Blocks are the modules that the module consists of; of a ``Sequential`` of n, √n
    stretches.

    Args:
        module: On the processor.
        computing: As configured.

    Raises:
        ModelError: PyTorch or the module cannot do it.
    """

    def __init__(self, module: torch.nn.Module, computing: Computing) -> None:
        self.module, self.is_mixed = module, computing.precision == "mixed_bfloat16"
        self._blocks = blocks_of(module) if computing.gradient_checkpointing else []
        if self.is_mixed and not torch.amp.autocast_mode.is_autocast_available("cpu"):
            raise ModelError(
                "this PyTorch has no autocast on the CPU", where="precision", cure="write precision: float32"
            )
        if computing.gradient_checkpointing and not self._blocks:
            raise ModelError(
                f"{type(module).__name__} has no submodules that could be computed again one by one",
                where="gradient_checkpointing",
                cure="make the model of several modules, or leave it out",
            )

    def __call__(self, *x: Any, **by_name: Any) -> Any:
        """The outputs of the module; in mixed precision, real numbers are returned as float32."""
        is_kept = torch.is_grad_enabled() and self.module.training
        with self._precise(), _replaced(self._blocks) if self._blocks and is_kept else nullcontext():
            found = self.module(*x, **by_name)
        return _float32(found) if self.is_mixed else found

    def _precise(self) -> AbstractContextManager[None]:
        return torch.autocast("cpu", torch.bfloat16) if self.is_mixed else nullcontext()


def _float32(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return found.float() if found.is_floating_point() else found
    if isinstance(found, dict):
        return {name: _float32(one) for name, one in found.items()}
    if is_dataclass(found) and not isinstance(found, type):
        return replace(found, **{one.name: _float32(getattr(found, one.name)) for one in fields(found)})
    if isinstance(found, tuple) and hasattr(found, "_fields"):
        return type(found)(*map(_float32, found))
    return [_float32(one) for one in found] if isinstance(found, list | tuple) else found


def blocks_of(module: torch.nn.Module) -> list[tuple[torch.nn.Module, Forward]]:
    """Modules, and what each does instead of its ``forward``, so that it is computed again for the backward pass."""
    if isinstance(module, torch.nn.Sequential):
        return [(module, _in_stretches(module))] if len(module) > 1 else []
    found = []
    for child in module.children():
        if isinstance(child, torch.nn.Sequential):
            found += blocks_of(child) or [(child, _again(child.forward, [child]))]
        elif isinstance(child, torch.nn.ModuleList | torch.nn.ModuleDict):
            found += [(one, _again(one.forward, [one])) for one in child.children()]
        else:
            found.append((child, _again(child.forward, [child])))
    return found


def _in_stretches(module: torch.nn.Sequential) -> Forward:
    parts, width = list(module), math.ceil(math.sqrt(len(module)))
    stretches = [parts[first : first + width] for first in range(0, len(parts), width)]
    runs = [_again(lambda x, stretch=stretch: _run(stretch, x), stretch) for stretch in stretches]
    return lambda x: _run(runs, x)


def _run(steps: list[Forward], x: Any) -> Any:
    for step in steps:
        x = step(x)
    return x


def _again(forward: Forward, modules: list[torch.nn.Module]) -> Forward:
    """The same function; for the backward pass it is called once more, with the same random numbers."""

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), resting(*modules)  # else moving means would move twice

    def call(*arguments: Any, **names: Any) -> Any:
        return checkpoint(forward, *arguments, use_reentrant=False, context_fn=contexts, **names)

    return call


@contextmanager
def resting(*modules: torch.nn.Module) -> Iterator[None]:
    """Lets the modules change copies of their buffers (moving means and variances), which are thrown away."""
    parts = [part for module in modules for part in module.modules()]
    kept = [(part, name, one) for part in parts for name, one in part.named_buffers(recurse=False)]
    for part, name, one in kept:
        setattr(part, name, one.clone())
    try:
        yield
    finally:
        for part, name, one in kept:
            setattr(part, name, one)


@contextmanager
def _replaced(blocks: list[tuple[torch.nn.Module, Forward]]) -> Iterator[None]:
    for module, forward in blocks:
        module.forward = forward
    try:
        yield
    finally:
        for module, _ in blocks:
            del module.forward
