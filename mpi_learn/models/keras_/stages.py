"""Stages of a Keras model; see `mpi_learn.models.pipeline`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mpi_learn.errors import ModelError
from mpi_learn.flat_layout import aligned_empty
from mpi_learn.models.keras_.inspection import check_loop, input_names, overrides
from mpi_learn.models.keras_.model import KerasModel
from mpi_learn.models.keras_.network import KerasNetwork, draws_unsaved, fit_errors
from mpi_learn.models.keras_.stage_graph import layers_of_graph, part_of_graph
from mpi_learn.models.keras_.tensors import as_tensor, specs, tensors
from mpi_learn.models.model import Model
from mpi_learn.models.network import Network
from mpi_learn.models.pipeline.split import Layer, shared_weights, shortest_s
from mpi_learn.models.pipeline.stage import Stage, StagesOfFramework
from mpi_learn.models.settings import Arrays, Example, ModelSettings, Tensors, named


class KerasStage(Stage):
    """Some layers of a Keras model. TensorFlow compiles the forward pass, and with it the backward pass.

    A tape keeps the activations of a micro-batch between the two. With `gradient_checkpointing` it keeps the inputs of
    the stage alone, and the forward pass is repeated.

    Args:
        model: The layers.
        example: See `StagesOfFramework.stage`.

    Raises:
        ModelError, ConfigurationError: The model cannot be trained as a stage.
    """

    network: KerasNetwork

    def __init__(
        self, model: keras.Model, settings: ModelSettings, example: Example, *, is_first: bool, is_last: bool
    ) -> None:
        self._is_first, self._model, self._inputs = is_first, model, input_names(model, example)
        self._repeats = settings.configuration.gradient_checkpointing
        of_stage = settings.configuration.model_copy(update={"gradient_checkpointing": False})
        settings = replace(settings, configuration=of_stage)
        if overrides(model, "train_step"):
            raise ModelError(
                f"{type(model).__name__} overrides `train_step`, which no stage of a pipeline calls",
                where="model",
                cure="return a model without it",
            )
        if is_last:
            self.last = self._whole = KerasModel(model, settings, example)
            self.network, self.layout, self.weights = self._whole.network, self._whole.layout, self._whole.weights
        else:
            self.network = KerasNetwork(model, settings)
            self._prepare(example, is_validated=settings.is_validated)
        self._flat = as_tensor(self.weights)
        flat, x, y, w = tf.TensorSpec([self.layout.size]), specs(example.x), specs(example.y), specs(example.weights)
        signature = [flat, x, y, w] if is_last else [flat, x]
        compute = self._whole.loss_of if is_last else self._activations

        def train(flat: Any, *batch: Tensors) -> Any:
            return compute(self.network.parts(flat), *batch)

        self._counts = self._used_arrays(compute, signature)
        with fit_errors():
            self._train: Any = tf.function(train, input_signature=signature, autograph=False).get_concrete_function()
            self._infer: Any = tf.function(self._inferred, input_signature=[flat, x], autograph=False)
        self.network.has_unsaved_random = draws_unsaved(self._train)
        self._kept: dict[int, Any] = {}
        self._gradient, self._sums = np.zeros(0, np.float32), np.zeros(0)

    def infer(self, x: Arrays) -> np.ndarray:
        array: np.ndarray = self._infer(self._flat(), tensors(x)).numpy()
        return array

    def begin(self, n_sums: int) -> None:
        self._kept.clear()
        self._gradient, self._sums = np.zeros(self.layout.size + n_sums, np.float32), np.zeros(n_sums)

    def forward(self, micro_batch: int, x: Arrays, y: Arrays, weights: Arrays) -> np.ndarray | None:
        batch = [tensors(x)] if self.last is None else [tensors(x), tensors(y), tensors(weights)]
        if self._repeats:
            integers = self.network.integers()  # before the pass: the second one draws the same random numbers
            results = self._train(self._flat(), *batch)
            self._kept[micro_batch] = batch, integers
        else:
            passed, results = self._taped(batch)
            self._kept[micro_batch] = passed
        if self.last is None:
            array: np.ndarray = results[0].numpy()
            return array
        self._sums += results[1].numpy()
        return None

    def backward(self, micro_batch: int, gradient: np.ndarray | None) -> np.ndarray | None:
        kept = self._kept.pop(micro_batch)
        tape, sources, target = self._repeated(*kept) if self._repeats else kept
        given = None if gradient is None else tf.convert_to_tensor(gradient)
        found = tape.gradient(target, sources, output_gradients=given, unconnected_gradients="zero")
        self._gradient[: self.layout.size] += found[0].numpy()
        n_arrays = len(self._counts)
        # the same arrays in each micro-batch: they are counted once for the step
        self._gradient[self.layout.size - n_arrays : self.layout.size] = self._counts
        if self._is_first:
            return None
        array: np.ndarray = found[1].numpy()
        return array

    def sums(self) -> np.ndarray:
        return self._sums

    def step(self, sums: np.ndarray) -> np.ndarray:
        self._gradient[self.layout.size :] = sums
        return self._gradient

    def values(self) -> list[np.ndarray]:
        return list(self.network.current().get_weights())

    def _prepare(self, example: Example, *, is_validated: bool) -> None:
        """Builds the layers of a stage before the last one, and checks what such a stage cannot have."""
        check_loop(self._model, is_validated)
        with fit_errors():
            outputs = self.network(named(tensors(example.x), self._inputs), training=False)
        self.network.bind()
        problem = cure = ""
        if not tf.is_tensor(outputs) or not outputs.dtype.is_floating:
            problem = "expected one tensor of real numbers between two stages"
            cure = "divide the model where one tensor passes from layer to layer"
        elif getattr(outputs, "_keras_mask", None) is not None:
            problem = "a mask passes from one stage to the next, which would not receive it"
            cure = "keep the layer with the mask and those that use it in one stage"
        elif self.network.has_penalty:
            problem = "layers before the last stage add terms to the loss, such as regularizers"
            cure = "use them in the last stage only, or `optimizer: {weight_decay: …}`"
        if problem:
            raise ModelError(problem, where="pipeline", cure=cure)
        self.layout = self.network.layout.with_counts()
        self.weights = aligned_empty(self.layout.size)
        self.weights[:] = 0
        self.network.move_into(self.weights)

    def _activations(self, parts: Tensors, x: Tensors) -> list[Any]:
        """The activations in training, as the only entry; changes the state."""
        with self.network.scope(parts) as scope:
            outputs = self.network(named(x, self._inputs), training=True)
        self.network.store_assigned(scope)
        return [tf.cast(outputs, tf.float32)]

    def _inferred(self, flat: Any, x: Tensors) -> Any:
        with self.network.scope(self.network.parts(flat)):
            return tf.cast(self.network(named(x, self._inputs), training=False), tf.float32)

    def _taped(self, batch: Sequence[Tensors]) -> tuple[tuple[Any, list[Any], Any], Any]:
        """(tape, sources, target) of a forward pass, for its gradient, and its results."""
        flat = self._flat()
        sources = [flat] if self._is_first else [flat, batch[0][0]]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            results = self._train(flat, *batch)
        return (tape, sources, results[0]), results

    def _repeated(self, batch: Sequence[Tensors], integers: np.ndarray) -> tuple[Any, list[Any], Any]:
        """The forward pass again; the state does not change."""
        network = self.network
        now = network.integers(), network.floats()
        network.set_integers(integers)
        passed, _ = self._taped(batch)
        network.set_integers(now[0])
        network.set_floats(now[1])
        return passed

    def _used_arrays(self, compute: Any, signature: Sequence[Any]) -> list[float]:
        """1 for each trainable array that has a gradient, 0 for the others. The pass is traced, not run."""
        found: list[float] = []

        def trace(flat: Any, *batch: Tensors) -> Any:
            parts = self.network.parts(flat)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(parts)
                target = compute(parts, *batch)[0]
            found.extend(0.0 if gradient is None else 1.0 for gradient in tape.gradient(target, parts))
            return target

        with fit_errors():
            tf.function(trace, input_signature=signature, autograph=False).get_concrete_function()
        return found


class KerasStages(StagesOfFramework):
    """Divides a ``Sequential`` or functional model of Keras."""

    def layers(self, model: Any, x: Arrays) -> list[Layer]:
        with fit_errors():
            if not model.built:
                model(tensors(x)[0])
        return layers_of_graph(model)

    def seconds(self, model: Any, bounds: Sequence[int], example: Example, settings: ModelSettings) -> list[float]:
        given = named(tensors(example.x), input_names(model, example))
        found = []
        with fit_errors():
            for index in range(len(bounds) - 1):
                part = part_of_graph(model, bounds, index)
                passed = partial(_passes(part, is_first=index == 0), given)
                given = passed()[0]
                found.append(shortest_s(lambda: [one.numpy() for one in passed()]))  # noqa: B023 - waits for a GPU
        return found

    def part(self, model: Any, bounds: Sequence[int], index: int) -> Any:
        return part_of_graph(model, bounds, index)

    def check_separate(self, models: Sequence[Any]) -> None:
        owners: dict[int, int] = {}
        for index, model in enumerate(models):
            for variable in model.variables:
                if owners.setdefault(id(variable), index) != index:
                    raise shared_weights(variable.path, owners[id(variable)], index)

    def stage(self, model: Any, settings: ModelSettings, example: Example, *, is_first: bool, is_last: bool) -> Stage:
        return KerasStage(model, settings, example, is_first=is_first, is_last=is_last)

    def joined(self, models: Sequence[Any]) -> Any:
        return models[0] if len(models) == 1 else keras.Sequential(models)

    def whole(self, model: Any, settings: ModelSettings, example: Example) -> Model:
        return KerasModel(model, settings, example)

    def restored(self, model: Any, values: Sequence[np.ndarray], settings: ModelSettings, example: Example) -> Network:
        if not model.built:
            model(named(tensors(example.x), input_names(model, example)))
        model.set_weights(values)
        network = KerasNetwork(model, settings)
        network.bind()
        network.move_into(aligned_empty(network.layout.size))
        return network


def _passes(part: keras.Model, *, is_first: bool) -> Any:
    """A function of the inputs: outputs of a compiled forward pass, and the gradients of a backward pass."""

    def passes(x: Any) -> list[Any]:
        trained = [variable.value for variable in part.trainable_variables]
        sources = trained if is_first else [x, *trained]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs = part(x, training=True)
        gradients = tape.gradient(outputs, sources, unconnected_gradients="zero")
        return [outputs, *map(tf.convert_to_tensor, gradients)]  # that of an Embedding is `IndexedSlices`

    return tf.function(passes, autograph=False)
