"""Inputs of a Keras model: their names and shapes."""

from __future__ import annotations

import keras

from mpi_learn.errors import ModelError
from mpi_learn.models.example import Example
from mpi_learn.models.keras_.network import error_text
from mpi_learn.models.outputs import shown


def input_names(model: keras.Model, example: Example) -> tuple[str, ...]:
    """The names by which the model is called; empty for a tensor or a list of tensors.

    Raises:
        ModelError: The data do not name the model's inputs.
    """
    inputs, names = getattr(model, "inputs", None), example.x_names
    if not inputs:
        return names
    structure = getattr(model, "input", None) if len(inputs) > 1 else None
    by_name = isinstance(structure, dict)
    known = tuple(structure) if isinstance(structure, dict) else tuple(tensor.name for tensor in inputs)
    if names and len(inputs) > 1 and set(names) != set(known):
        raise ModelError(
            f"the model's inputs are named {', '.join(known)}, the data's features {', '.join(names)}",
            where="data.features",
            cure=f"write {{{', '.join(f'{name}: …' for name in known)}}}",
        )
    if by_name and not names:
        raise ModelError(
            f"the model takes its inputs by name ({', '.join(known)}), which have no order",
            where="data.features",
            cure=f"write a mapping: {{{', '.join(f'{name}: …' for name in known)}}}",
        )
    return names if len(inputs) > 1 else ()


def not_taken(model: keras.Model, example: Example, error: Exception) -> ModelError:
    """The error of a model that cannot be called on the example."""
    shapes = [array.shape[1:] for array in example.x]
    expected = [tuple(tensor.shape[1:]) for tensor in getattr(model, "inputs", None) or ()]
    if expected and expected != shapes:
        return ModelError(
            f"the model takes samples of shape {shown(expected)}, the data have {shown(shapes)}",
            where="data.features",
            cure="change the input shape of the model, or data.features",
        )
    return ModelError(
        f"the model does not take samples of shape {shown(shapes)}: {error_text(error)}", where="data.features"
    )
