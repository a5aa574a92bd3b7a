"""Sentences about exceptions that a PyTorch module raises when it is called on a few samples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mpi_learn.errors import ModelError, OutOfMemory
from mpi_learn.models.settings import Example
from mpi_learn.models.torch_.tensors import device
from mpi_learn.settings.user_traceback import cure_at_line

OF_INTEGERS = "write `data: {dtype: {NAME: float32}}` for each array of integers that the model takes as real numbers"
OF_FEATURES = "change the first layers of the model, or data.features"
OF_FLOWS = "return a module whose forward returns -flow.log_prob(x), and write a loss that returns outputs.mean()"
OF_MEMORY = (
    "use a smaller model or batch, `gradient_checkpointing: true` or `precision: mixed_bfloat16`, or start fewer ranks "
    "for each GPU"
)
CURES = {
    r"does not require grad and does not have a grad_fn": "gradients are off in validation: compute derivatives with "
    "respect to inputs inside `with torch.enable_grad():` in forward, on inputs with x.requires_grad_(True)",
    r"[Ff]orward method cannot be called for a Distribution": OF_FLOWS,  # of nflows
    r'missing the required "forward" function': "define forward in the class",
}
"""A pattern in the message of an exception -> what to do. These are no errors of shapes or dtypes."""

OF_SHAPES = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
"""Exceptions that may mean that the module does not take arrays of these shapes and dtypes."""


def not_taken(error: Exception, example: Example) -> ModelError:
    """The error of a module that cannot be called on the example."""
    shapes = " and ".join(f"{array.shape[1:]} ({array.dtype})" for array in example.x)
    if (cure := _cure_by_text(error)) or not isinstance(error, OF_SHAPES):
        text = str(error).splitlines()[0] if str(error) else ""
        problem = f"calling the model with samples of shape {shapes} raised {type(error).__name__}: {text}"
        return ModelError(problem, where="model", cure=cure or cure_at_line("correct the model", error))
    # embeddings need integers: a mistake of dtypes is likely only if some inputs have them and others do not
    has_integers = any(array.dtype.kind != "f" for array in example.x)
    is_mixed = has_integers and len(example.x) > 1 and "dtype" in str(error)
    return ModelError(
        f"the model does not take samples of shape {shapes}: {error}",
        where="data.features",
        cure=cure_on_gpu(error) or (OF_INTEGERS if is_mixed else cure_at_line(OF_FEATURES, error)),
    )


@contextmanager
def memory_errors() -> Iterator[None]:
    """Raises OutOfMemory if the memory of a GPU is not enough in the block.

    The original exception is dropped with its traceback, whose frames hold the tensors of the step: the memory is free
    for the next trial of a search. The block therefore calls a function and has no tensors itself.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        problem = f"the memory of the GPU is not enough: {str(error).split('. ')[0]}"
    else:
        return
    torch.cuda.empty_cache()
    raise OutOfMemory(problem, where="batch_size", cure=OF_MEMORY)


def cure_of(error: Exception, otherwise: str) -> str:
    """The cure of an error of a user's module, loss or metric: `otherwise`, if nothing better is known."""
    return _cure_by_text(error) or cure_on_gpu(error) or cure_at_line(otherwise, error)


def _cure_by_text(error: Exception) -> str:
    return next((cure for pattern, cure in CURES.items() if re.search(pattern, str(error))), "")


def cure_on_gpu(error: Exception) -> str:
    """The cure of an error that only a GPU raises; empty for other errors."""
    if device().type == "cpu":
        return ""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return OF_MEMORY
    if not re.search("cuda|device", str(error), re.IGNORECASE):
        return ""
    return (
        "create tensors on the device of the inputs or outputs (device=x.device), or register them in the module with "
        "register_buffer; convert a tensor to NumPy with .cpu().numpy()"
    )
