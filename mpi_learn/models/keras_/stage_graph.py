"""Divides the graph of a Keras model into stages.

The graph is read from attributes of `keras.Model` that are private to Keras (3.15): `_nodes_by_depth` of a functional
model, and the nodes of layers and tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import keras

from mpi_learn.errors import ModelError
from mpi_learn.models.pipeline.split import Layer, operations

LIST_OF_STAGES = "return a Sequential or functional model, or a list with one model per stage"


def layers_of_graph(model: keras.Model) -> list[Layer]:
    """The layers in the order in which they are called; see `StagesOfFramework.layers`."""
    graph = _graph(model)
    nodes = _nodes(graph)
    tensors = [_tensor_before(graph, nodes, index) for index in range(len(nodes))]
    return [_layer(node, starts_stage=tensor is not None) for node, tensor in zip(nodes, tensors, strict=True)]


def part_of_graph(model: keras.Model, bounds: Sequence[int], index: int) -> keras.Model:
    """The layers `bounds[index]` to `bounds[index + 1]` - 1 as a model of their own. The other layers can be freed."""
    graph = _graph(model)
    nodes = _nodes(graph)
    first, stop = bounds[index], bounds[index + 1]
    x = graph.input if index == 0 else _tensor_before(graph, nodes, first)
    y = graph.output if index + 2 == len(bounds) else _tensor_before(graph, nodes, stop)
    part = keras.Model(x, y)
    _forget_others(part)
    return part


def _graph(model: keras.Model) -> Any:
    """The functional model of a model."""
    graph = getattr(model, "_functional", None) or model
    if not hasattr(graph, "_nodes_by_depth"):
        raise ModelError(f"{type(model).__name__} cannot be divided into stages", where="model", cure=LIST_OF_STAGES)
    return graph


def _nodes(graph: Any) -> list[Any]:
    """The calls of layers, in order, without the inputs of the model."""
    by_depth = graph._nodes_by_depth
    return [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth] if not node.is_input]


def _tensor_before(graph: Any, nodes: Sequence[Any], index: int) -> Any:
    """The only tensor that passes from the layers before `index` to later ones; None if there is no single one."""
    before, after = nodes[:index], nodes[index:]
    if {id(node.operation) for node in before} & {id(node.operation) for node in after}:
        return None  # a layer that is called on both sides
    made = {id(tensor) for tensor in chain(graph.inputs, *(node.outputs for node in before))}
    used = chain(graph.outputs, *(node.arguments.keras_tensors for node in after))
    passing = {id(tensor): tensor for tensor in used if id(tensor) in made}
    tensor = next(iter(passing.values())) if len(passing) == 1 else None
    return tensor if tensor is not None and keras.backend.is_float_dtype(tensor.dtype) else None


def _layer(node: Any, *, starts_stage: bool) -> Layer:
    layer = node.operation
    inner = list(layer._flatten_layers()) if isinstance(layer, keras.layers.Layer) else []
    embedded = sum(one.count_params() for one in inner if isinstance(one, keras.layers.Embedding))
    n_parameters = sum(one.count_params() for one in inner[:1]) - embedded
    shapes = [[n or 1 for n in tensor.shape[1:]] for tensor in (*node.arguments.keras_tensors, *node.outputs)]
    trained = sum(int(keras.ops.size(variable)) for variable in getattr(layer, "trainable_variables", ()))
    return Layer(operations(n_parameters, shapes, channels_first=False), trained, starts_stage)


def _forget_others(model: keras.Model) -> None:
    """Removes the connections of the layers of `model` to other layers, which would stay in memory.

    Keras finds the calls of a layer by their index. Those of other layers are therefore replaced, not deleted.
    """
    own = {id(node) for nodes in model._nodes_by_depth.values() for node in nodes}
    for operation in model.operations:
        mine = next(node for node in operation._inbound_nodes if id(node) in own)
        operation._inbound_nodes[:] = [node if id(node) in own else mine for node in operation._inbound_nodes]
        operation._outbound_nodes[:] = [node for node in operation._outbound_nodes if id(node) in own]
