"""The precision of Keras models, and activation checkpointing: layers are recomputed in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend import AutocastScope  # private, but needed: the second run is outside of the layer's scope

from mpi_learn.errors import ModelError


def check_precision(model: keras.Model, precision: str) -> None:
    """Checks the precision of layers and weights.

    Raises:
        ModelError: No layer computes in the configured precision, a layer needs a scaled loss, or weights have 16 bits.
    """
    precisions = {layer.dtype_policy.name for layer in layers_of(model)}
    if any("float16" in name.replace("bfloat16", "") for name in precisions):
        raise ModelError(
            "mixed_float16 needs a loss that is scaled step by step, which is not supported",
            where="model",
            cure="use mixed_bfloat16: write `precision: mixed_bfloat16` and leave dtype out",
        )
    for variable in model.trainable_variables:
        if keras.backend.standardize_dtype(variable.dtype) not in ("float32", "float64"):
            raise ModelError(
                f"{variable.path} is trained in {variable.dtype}, which is not supported",
                where="model",
                cure="leave dtype out; for mixed precision, write `precision: mixed_bfloat16`",
            )
    if precision != "float32" and precision not in precisions:
        raise ModelError(
            f"no layer computes in {precision}, but in {', '.join(sorted(precisions))}",
            where="precision",
            cure="build the layers without dtype; a saved model keeps the precision with which it was saved",
        )


def layers_of(model: keras.Model) -> list[keras.layers.Layer]:
    """The direct layers of a model that have weights. A nested model counts as one layer."""
    return [layer for layer in model.layers if layer.weights]


@contextmanager
def recomputed(model: keras.Model) -> Iterator[None]:
    """In the block, the layers of `model` are recomputed in the backward pass (Chen et al. 2016).

    Keras' `RematScope` passes only the layer's input to ``tf.recompute_grad``. Weights that are given to the model from
    outside would then get no gradient. Here they are passed as well.
    """
    layers = layers_of(model)
    for layer in layers:
        object.__setattr__(layer, "call", _recomputing(layer, layer.call))
    try:
        yield
    finally:
        for layer in layers:
            object.__delattr__(layer, "call")


def _recomputing(layer: keras.layers.Layer, forward: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement of a layer's ``call``, which is repeated in the backward pass.

    It is called in the scope that gives the layer its weights. TensorFlow computes gradients for the arguments of the
    repeated function alone, so weights and inputs are its arguments. Both runs begin with the same state: moving means
    and random generators.
    """

    def call(*arguments: Any, **names: Any) -> Any:
        weights, state = layer.trainable_variables, layer.non_trainable_variables
        with AutocastScope(None):  # here and below: in mixed precision, the scope would convert frozen weights
            before = [tf.identity(variable.value) for variable in state]  # the pass may assign to the variables
        inputs = keras.tree.flatten((arguments, names))
        places = [i for i, tensor in enumerate(inputs) if tf.is_tensor(tensor) and tensor.dtype.is_floating]
        first: dict[str, Any] = {}

        def run(*flat: tf.Tensor) -> tuple[tf.Tensor, ...]:
            given = list(inputs)
            for place, tensor in zip(places, flat[len(weights) :], strict=True):
                given[place] = tensor
            values = [*zip(weights, flat[: len(weights)], strict=True), *zip(state, before, strict=True)]
            with AutocastScope(None):
                scope = keras.StatelessScope(values, collect_losses=True)
            positional, by_name = keras.tree.pack_sequence_as((arguments, names), given)
            with AutocastScope(layer.compute_dtype), scope:
                outputs = forward(*positional, **by_name)
            if not first:
                first.update(outputs=outputs, state=[scope.get_current_value(variable) for variable in state])
            return (*keras.tree.flatten(outputs), *scope.losses)

        differentiated = [*(variable.value for variable in weights), *(inputs[place] for place in places)]
        results = tf.recompute_grad(run)(*differentiated)
        for variable, value in zip(state, first["state"], strict=True):
            variable.assign(value)
        n = len(keras.tree.flatten(first["outputs"]))
        for loss in results[n:]:
            layer.add_loss(loss)
        return keras.tree.pack_sequence_as(first["outputs"], list(results[:n]))

    return call
