"""Inputs and outputs of a PyTorch module: how it is called, and the tensors that it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch

from mpi_learn.errors import ModelError
from mpi_learn.models.outputs import Outputs
from mpi_learn.models.settings import Tensors, named


def arguments_of(
    module: torch.nn.Module, names: tuple[str, ...]
) -> Callable[[Tensors], tuple[Tensors, dict[str, Any]]]:
    """How a module is called: a function from tensors to positional and keyword arguments.

    Inputs without names are positional. Inputs with names are keyword arguments if `forward` has parameters of these
    names, else one mapping.

    Raises:
        ModelError: `forward` takes several inputs, none of them by these names.
    """
    if not names:
        return lambda x: (x, {})
    parameters = list(inspect.signature(module.forward).parameters.values())
    known = {
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    if set(names) <= known or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return lambda x: ((), dict(zip(names, x, strict=True)))
    if len(names) == 1:
        return lambda x: (x, {})
    required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    if len(required) > 1:
        raise ModelError(
            f"forward takes {', '.join(required)}, the data's features are {', '.join(names)}",
            where="data.features",
            cure=f"write {{{', '.join(f'{name}: …' for name in required)}}}",
        )
    return lambda x: ((named(x, names),), {})


def flat_outputs(outputs: Any) -> list[torch.Tensor]:
    """All tensors that a module returned, in their order.

    Raises:
        ModelError: It returned something else.
    """
    return [tensor for _, tensor in _named_tensors(outputs)]


def described(outputs: Any) -> Outputs:
    """The outputs of a module, flat. A mapping, a data class or a named tuple gives them names."""
    pairs = _named_tensors(outputs)
    has_names = not isinstance(outputs, torch.Tensor | list) and type(outputs) is not tuple
    shapes = tuple(tuple(tensor.shape) for _, tensor in pairs)
    return Outputs(shapes, tuple(name for name, _ in pairs) if has_names else (), is_mapping=isinstance(outputs, dict))


def in_float32(outputs: Any) -> Any:
    """The outputs of a module in the same structure, with all real numbers as float32."""
    if isinstance(outputs, torch.Tensor):
        return outputs.float() if outputs.is_floating_point() else outputs
    if (parts := _parts(outputs)) is None:
        return outputs
    converted = {name: in_float32(part) for name, part in parts.items()}
    if is_dataclass(outputs) and not isinstance(outputs, type):
        return replace(outputs, **converted)
    if isinstance(outputs, dict):
        same = copy(outputs)  # of the user's class, which may have attributes
        same.update(converted)
        return same
    return type(outputs)(*converted.values()) if hasattr(outputs, "_fields") else type(outputs)(converted.values())


def _named_tensors(outputs: Any, prefix: str = "") -> list[tuple[str, torch.Tensor]]:
    """(name, tensor) pairs: ``hidden.0`` is the first part of ``hidden``. Parts that are None are left out."""
    if isinstance(outputs, torch.Tensor):
        return [(prefix, outputs)]
    if (parts := _parts(outputs)) is None:
        of_part = f" in the output {prefix}" if prefix else ""
        cure = "return a tensor, or a list, tuple, dict or dataclass of tensors"
        if isinstance(outputs, torch.distributions.Distribution):
            cure = "return -distribution.log_prob(x) from forward, and write a loss that returns outputs.mean()"
        raise ModelError(
            f"expected one or several tensors, the model returns {type(outputs).__name__}{of_part}",
            where="model",
            cure=cure,
        )
    start = f"{prefix}." if prefix else ""
    return [pair for name, part in parts.items() if part is not None for pair in _named_tensors(part, f"{start}{name}")]


def _parts(outputs: Any) -> dict[str, Any] | None:
    """The parts of an object with several outputs; None for any other object."""
    if isinstance(outputs, dict):
        return outputs
    if is_dataclass(outputs):
        return {field.name: getattr(outputs, field.name) for field in fields(outputs)}
    if isinstance(outputs, list | tuple):
        return dict(zip(getattr(outputs, "_fields", map(str, range(len(outputs)))), outputs, strict=True))
    return None
