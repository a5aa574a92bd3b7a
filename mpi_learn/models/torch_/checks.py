"""The conditions on a PyTorch module, so that its parameters can be parts of a flat vector."""

from __future__ import annotations

import torch
from torch.nn.parameter import is_lazy

from mpi_learn.errors import ModelError


def trainable_parameters(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters of a module that are not frozen."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def check_parameters(module: torch.nn.Module) -> None:
    """Raises ModelError unless the parameters can be parts of a flat vector of float32."""
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        raise ModelError(
            "the sizes of its lazy layers are not known yet",
            where="model",
            cure="call the module with a few samples in your function, before you return it",
        )
    if not trainable_parameters(module):
        raise ModelError(
            "the module has no parameters to train", where="model", cure="leave requires_grad of some of them on"
        )
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            cure = "call .float() on the module before you return it"
            if parameter.is_complex():
                cure = "make real and imaginary part two parameters of float32, and call torch.complex in forward"
            raise ModelError(
                f"expected parameters of float32, {name} is of {str(parameter.dtype).removeprefix('torch.')}",
                where="model",
                cure=cure,
            )
    if any(parameter.is_meta for parameter in module.parameters()):
        raise ModelError(
            "the module is on the device meta, without values", where="model", cure="call .to_empty and set its values"
        )
    _check_memory(module)


def check_hooks(module: torch.nn.Module) -> None:
    """Raises ModelError if a hook of a parameter would receive the gradient of the scaled loss."""
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise ModelError(
                f"{name} has a hook, which would receive its gradient times the scale of the loss in mixed_float16",
                where="precision",
                cure="write precision: mixed_bfloat16, or clip by optimizer.clip_norm or clip_value instead",
            )


def _check_memory(module: torch.nn.Module) -> None:
    """Raises ModelError if a trained parameter shares memory with another tensor: `move_into` would separate them."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    spans = sorted((*_span(tensor), tensor.requires_grad, name) for name, tensor in tensors if tensor.numel())
    end, other, other_is_trained = 0, "", False
    for start, stop, is_trained, name in spans:
        if start < end and (is_trained or other_is_trained):
            raise ModelError(
                f"{other} and {name} share memory but are different tensors",
                where="model",
                cure="tie weights by using one parameter in both places: `a.weight = b.weight`, without `.data`",
            )
        if stop > end:
            end, other, other_is_trained = stop, name, is_trained


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses at which a dense tensor begins and ends; (0, 0) for other tensors."""
    if tensor.layout is not torch.strided:
        return 0, 0
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
