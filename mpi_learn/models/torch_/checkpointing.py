"""Activation checkpointing: the blocks of a module are recomputed in the backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

Forward = Callable[..., Any]
Block = tuple[torch.nn.Module, Forward]
"""A module, and the replacement of its ``forward``."""


@contextmanager
def recomputed(blocks: Sequence[Block]) -> Iterator[None]:
    """In the block, activations are not kept; the backward pass recomputes them (Chen et al. 2016)."""
    before = [(module, vars(module).get("forward")) for module, _ in blocks]
    for module, forward in blocks:
        module.forward = forward
    try:
        yield
    finally:
        for module, forward_of_user in before:
            if forward_of_user is None:
                del module.forward
            else:
                module.forward = forward_of_user


def blocks_of(module: torch.nn.Module, *, is_stage: bool = False) -> list[Block]:
    """The modules that `recomputed` recomputes one by one; a ``Sequential`` of n is divided into about √n segments.

    A stage of a pipeline is a single block, which keeps only its inputs.
    """
    if is_stage:
        return [(module, _recomputing(module.forward, [module]))]
    if isinstance(module, torch.nn.Sequential):
        return [(module, _in_segments(module))] if len(module) > 1 else []
    blocks: dict[torch.nn.Module, Forward] = {}  # a module can be an attribute and an entry of a list
    for child in module.children():
        if isinstance(child, torch.nn.Sequential) and len(child) > 1:
            blocks[child] = _in_segments(child)
            continue
        entries = child.children() if isinstance(child, torch.nn.ModuleList | torch.nn.ModuleDict) else [child]
        blocks |= {entry: _recomputing(entry.forward, [entry]) for entry in entries}
    return list(blocks.items())


def _in_segments(module: torch.nn.Sequential) -> Forward:
    parts, width = list(module), math.ceil(math.sqrt(len(module)))
    segments = [parts[first : first + width] for first in range(0, len(parts), width)]
    runs = [_recomputing(lambda x, segment=segment: _run(segment, x), segment) for segment in segments]
    return lambda x: _run(runs, x)


def _run(steps: Sequence[Forward], x: Any) -> Any:
    for step in steps:
        x = step(x)
    return x


def _recomputing(forward: Forward, modules: list[torch.nn.Module]) -> Forward:
    """`forward`, which the backward pass calls again with the same random numbers."""

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), unchanged_buffers(*modules)  # otherwise moving means would be updated twice

    def call(*arguments: Any, **by_name: Any) -> Any:
        def run(*values: Any) -> Any:
            n = len(arguments)
            return forward(*values[:n], **dict(zip(by_name, values[n:], strict=True)))

        # PyTorch restores the random numbers of the GPUs that hold the tensors among the positional arguments
        return checkpoint(run, *arguments, *by_name.values(), use_reentrant=False, context_fn=contexts)

    return call


@contextmanager
def unchanged_buffers(*modules: torch.nn.Module) -> Iterator[None]:
    """In the block, the modules change copies of their buffers (moving means and variances), which are discarded."""
    parts = [part for module in modules for part in module.modules()]
    buffers = [(part, name, buffer) for part in parts for name, buffer in part._buffers.items()]
    for part, name, buffer in buffers:
        setattr(part, name, None if buffer is None else buffer.clone())
    try:
        yield
    finally:
        for part, name, buffer in buffers:
            setattr(part, name, buffer)
