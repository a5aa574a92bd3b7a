"""Outputs of a Keras model: their names and shapes."""

from __future__ import annotations

from typing import Any

import keras

from mpi_learn.models.outputs import Outputs


def described(model: keras.Model, outputs: Any) -> Outputs | None:
    """The outputs of a model, flat; None if their structure is nested. Outputs that are None are left out."""
    outputs = without_none(outputs)
    flat = flat_outputs(outputs)
    shapes = tuple((None, *tensor.shape[1:]) for tensor in flat)
    if isinstance(outputs, dict):
        return Outputs(shapes, tuple(sorted(outputs)), is_mapping=True) if len(outputs) == len(flat) else None
    if isinstance(outputs, list | tuple) and len(outputs) != len(flat):
        return None
    names = tuple(getattr(model, "output_names", None) or ())
    return Outputs(shapes, names if len(names) == len(flat) else ())


def flat_outputs(outputs: Any) -> list[Any]:
    """The tensors that a model returns, flat. Outputs that are None are left out."""
    return [tensor for tensor in keras.tree.flatten(outputs) if tensor is not None]


def without_none(outputs: Any) -> Any:
    """The outputs of a model in the same structure, without those that are None."""
    if type(outputs) in (list, tuple):
        return type(outputs)(output for output in outputs if output is not None)
    if isinstance(outputs, dict):
        return {name: output for name, output in outputs.items() if output is not None}
    return outputs
