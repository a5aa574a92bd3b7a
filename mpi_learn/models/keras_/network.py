"""A Keras model whose trainable arrays are parts of a flat vector, and its other state."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mpi_learn.errors import ModelError
from mpi_learn.flat_layout import FlatLayout, UpdateRule
from mpi_learn.models.building.frameworks import seeded_python
from mpi_learn.models.keras_.checkpointing import check_precision, recomputed
from mpi_learn.models.keras_.inspection import (
    COUNTERS,
    RANK_SEED,
    SEED_STATE,
    RecordingScope,
    described,
    flat_outputs,
    overrides,
    takes_training,
    unfit,
    without_none,
)
from mpi_learn.models.keras_.losses_and_metrics import make_output_loss, mean_loss
from mpi_learn.models.keras_.optimizer import KerasRule
from mpi_learn.models.keras_.tensors import as_tensor, assign, is_float, specs, tensors, uses_gpu
from mpi_learn.models.labels import LabelRule
from mpi_learn.models.network import ArrayKind, joined, plain_attributes, seed_of
from mpi_learn.models.outputs import Outputs, Shape
from mpi_learn.models.settings import Arrays, Example, ModelSettings, Tensors, named
from mpi_learn.settings.component import Component
from mpi_learn.settings.paths import replacing

UNSAVED = frozenset({
    *("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "ParameterizedTruncatedNormal"),
    *("RandomGamma", "RandomPoisson", "RandomPoissonV2", "RandomShuffle", "RandomCrop", "Multinomial"),
    *("SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", "FractionalMaxPool", "FractionalAvgPool"),
    *("UniformCandidateSampler", "LogUniformCandidateSampler", "LearnedUnigramCandidateSampler"),
    *("FixedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler", "AllCandidateSampler"),
    *("RngReadAndSkip", "RngSkip", "NonDeterministicInts", "StatefulStandardNormalV2", "StatefulTruncatedNormal"),
    *("StatefulUniform", "StatefulUniformInt", "StatefulUniformFullInt", "StatefulRandomBinomial"),
})  # fmt: skip
"""Types of operations. Their kernels hold the state, or a `tf.random.Generator`, which is no variable of Keras."""


def draws_unsaved(traced: Any) -> bool:
    """Whether a function of TensorFlow, `traced`, or one that it calls, has such an operation."""
    graph = traced.graph.as_graph_def()
    nodes = chain(graph.node, chain.from_iterable(function.node_def for function in graph.library.function))
    return any(node.op in UNSAVED for node in nodes)


FIT_ERRORS = (ValueError, TypeError, KeyError, AttributeError, NotImplementedError, tf.errors.OpError)
"""Exceptions of Keras and TensorFlow if a model does not fit its data."""


class KerasNetwork:
    """A built Keras model that computes with trainable arrays given from outside.

    Attributes:
        variables: The trainable variables. Later changes of ``trainable`` have no effect, as with `fit`.
        layout: Layout of the trainable variables.
        weights: (layout.size,) float32, their values; see `move_into`.
        users_optimizer: The optimizer with which the user's function has compiled the model; None if there is none.
        uses_users_compile: Whether the training uses the losses and metrics with which the function has compiled it.
    """

    framework = "keras"
    has_unsaved_random = sees_attributes = False

    def __init__(self, model: keras.Model, settings: ModelSettings) -> None:
        self.model, self.settings = model, settings
        self.users_optimizer = getattr(model, "optimizer", None)
        self.uses_users_compile = model.compiled and (settings.configuration.loss is None or settings.is_part)
        self.takes_training = takes_training(model.call)
        self._keeps_none = overrides(model, "compute_loss") or overrides(model, "compute_metrics")
        self.variables: list[Any] = []
        self.layout = FlatLayout(())
        self._floats: list[Any] = []
        self._integers: list[Any] = []

    def bind(self) -> None:
        """Finds the variables of the model, which must be built.

        Raises:
            ModelError: There is nothing to train, or the layers compute in another precision.
        """
        if not self.model.trainable_variables:
            raise ModelError(
                "the model has no trainable weights",
                where="model",
                cure="make a layer trainable, or build the layers before you return the model; for a GAN write `gan:`",
            )
        if any(isinstance(variable.value, tf.distribute.DistributedValues) for variable in self.model.variables):
            raise ModelError(
                "the model is built in the scope of a strategy of tf.distribute",
                where="model",
                cure="build it outside of strategy.scope(): the ranks of MPI share the work",
            )
        check_precision(self.model, self.settings.configuration.precision)
        self.reseed()
        self.variables = list(self.model.trainable_variables)
        self.layout = FlatLayout.of(self.variables)
        others = self.model.non_trainable_variables
        self._floats = [variable for variable in others if is_float(variable)]
        self._integers = [variable for variable in others if not is_float(variable)]
        for variable in self._integers:  # dropout and noise draw from (seed, counter): each rank gets its own seed
            if variable.name == SEED_STATE:
                state = np.asarray(variable)
                variable.assign((state + np.array([self.settings.stream * RANK_SEED, 0])).astype(state.dtype))

    def reseed(self) -> None:
        """Seeds the global random generators, with a different seed on each rank."""
        keras.utils.set_random_seed((self.settings.configuration.seed + RANK_SEED * self.settings.stream) % 2**32)

    @contextmanager
    def repeatable(self) -> Iterator[None]:
        variables = [*self.variables, *self._floats, *self._integers]
        before, seed = list(map(np.array, variables)), self.settings.configuration.seed % 2**32
        with seeded_python(seed):
            keras.utils.set_random_seed(seed)
            for variable in self._integers:
                if variable.name == SEED_STATE:
                    variable.assign(np.array([seed, 0]))
            try:
                yield
            finally:
                for variable, value in zip(variables, before, strict=True):
                    variable.assign(value)
        self.reseed()

    def arrays(self) -> list[ArrayKind]:
        trained = [(variable, True) for variable in self.variables]
        others = [(variable, False) for variable in (*self._floats, *self._integers)]
        return [
            ArrayKind(COUNTERS.sub("", variable.path), tuple(variable.shape), str(variable.dtype), is_trained)
            for variable, is_trained in (*trained, *others)
        ]

    def traits(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for number, layer in enumerate(self.model._flatten_layers()):
            for name, value in (plain_attributes(layer) | {"trainable": layer.trainable}).items():
                trait = f"{layer.name}.{name}"  # layers of different parents may have the same name
                found[f"{trait} (layer {number})" if trait in found else trait] = value
        return found

    def resize(self, arrays: Sequence[ArrayKind]) -> None:
        """Does nothing: variables of Keras keep their shapes."""

    def move_into(self, weights: np.ndarray) -> None:
        self.weights = weights[: self.layout.size]
        self.weights[:] = joined(self.variables, np.float32)

    def current(self) -> keras.Model:
        assign(self.variables, self.weights)
        return self.model

    def save(self, path: Path) -> Path:
        file = path.with_name(f"{path.name}.keras")
        compilation = getattr(self.model, "_compile_config", None)
        in_training = getattr(self.model, "optimizer", None), self.model.compiled
        self._restore_users_compile()
        if not self.uses_users_compile and (portable := self._portable_compilation()) is not None:
            self.model.optimizer, self.model.compiled = portable.config["optimizer"], True
            self.model._compile_config = portable
        try:
            with replacing(file) as temporary:
                self.current().save(temporary)
        finally:
            self.model.optimizer, self.model.compiled = in_training
            if compilation is not None:
                self.model._compile_config = compilation
        return file

    def _portable_compilation(self) -> Any:
        """The losses and metrics of the configuration as `compile` has them, for a file that Keras alone can load.

        None if one of them is code of the user, without which the file could not be loaded, or if they are unknown. A
        compiled model needs an optimizer; it is one without a state.
        """
        wanted, compilation = self.settings.configuration, getattr(self.model, "_compile_config", None)
        if wanted.loss is None or self.settings.is_part or compilation is None:
            return None
        if any(one.is_custom for one in _components((wanted.loss, wanted.metrics, wanted.weighted_metrics))):
            return None
        optimizer = keras.optimizers.SGD()
        optimizer.build(self.variables)
        return type(compilation)(**{**compilation.config, "optimizer": optimizer})

    def save_weights(self, path: Path) -> Path:
        file = path.with_name(f"{path.name}.weights.h5")
        with replacing(file) as temporary:
            self.current().save_weights(temporary)
        return file

    def line_to_load(self, file: Path, name: str) -> str:
        return f"{name}.load_weights({file.name!r})"

    def parts(self, flat: Any) -> list[Any]:
        """See `Network.parts`; in the dtypes that the model computes with. Counts may follow in `flat`."""
        pieces = tf.split(flat, [*np.diff(self.layout.bounds).tolist(), -1])[:-1]
        return [
            tf.cast(tf.reshape(piece, variable.shape), variable.dtype)
            for piece, variable in zip(pieces, self.variables, strict=True)
        ]

    def scope(self, parts: Tensors, more: Sequence[tuple[Any, Any]] = ()) -> RecordingScope:
        """In the scope, the model computes with `parts`, and assignments to its variables have no effect outside.

        Args:
            more: Further variables and their values.
        """
        return RecordingScope([*zip(self.variables, parts, strict=True), *more])

    def __call__(self, x: Any, training: bool) -> Any:
        """The outputs in the structure of the model. Called in `scope`.

        Only a loss or metrics that the model computes itself receive outputs that are None.
        """
        arguments = {"training": training} if self.takes_training else {}
        has_recomputation = training and self.settings.configuration.gradient_checkpointing
        with recomputed(self.model) if has_recomputation else nullcontext():
            outputs = self.model(x, **arguments)
        return outputs if self._keeps_none else without_none(outputs)

    def store_assigned(self, scope: RecordingScope, known: Sequence[Any] = (), *, with_floats: bool = True) -> None:
        """Stores the values that a pass in `scope` has assigned.

        A variable outside of the model, such as Keras' global generator of random numbers, is part of the model's state
        from then on.

        Args:
            known: Variables that are not stored.
            with_floats: Whether real numbers are stored. Integers, such as the state of a random generator, always are.

        Raises:
            ModelError: The pass has changed a trainable array.
        """
        for variable in self.variables:
            if id(variable) in scope.assigned:
                raise ModelError(
                    f"{variable.path} is trainable, and the model changes it when it is called",
                    where="model",
                    cure="change only weights that are not trainable; SpectralNormalization is not available",
                )
        for variable in scope.assigned.values():
            of_kind = self._floats if is_float(variable) else self._integers
            # compared with `is`: `==` of two variables of Keras compares their values
            if any(variable is other for other in known) or (of_kind is self._floats and not with_floats):
                continue
            variable.assign(scope.get_current_value(variable))
            if not any(variable is other for other in of_kind):
                of_kind.append(variable)

    def add_integers(self, variable: Any) -> None:
        """Adds an integer variable that does not belong to the model to its state."""
        self._integers.append(variable)

    def floats(self) -> np.ndarray:
        return joined(self._floats, np.float32)

    def set_floats(self, values: np.ndarray) -> None:
        assign(self._floats, values)

    def integers(self) -> np.ndarray:
        return joined(self._integers, np.int64)

    def set_integers(self, values: np.ndarray) -> None:
        assign(self._integers, values)

    def random_mask(self) -> np.ndarray:
        return joined((np.full(variable.shape, variable.name == SEED_STATE) for variable in self._integers), np.bool_)

    def seed_random(self, keys: Sequence[int]) -> None:
        generators = (variable for variable in self._integers if variable.name == SEED_STATE)
        for index, variable in enumerate(generators):
            variable.assign(np.array([seed_of((*keys, index)), 0]))

    def outputs(self, x: Arrays) -> Outputs:
        outputs = self.model(named(tensors(x), ()))
        self.bind()
        found = described(self.model, outputs)
        return found or Outputs(tuple((None, *output.shape[1:]) for output in flat_outputs(outputs)))

    def forward(self, parts: list[Any], x: Tensors, training: bool, is_updated: bool) -> tuple[Tensors, Any]:
        with self.scope(parts) as scope:
            outputs = self(named(x, ()), training)
            losses = [tf.reduce_sum(tf.cast(loss, tf.float32)) for loss in self.model.losses]
        if training:
            self.store_assigned(scope, with_floats=is_updated)
        return [tf.cast(output, tf.float32) for output in flat_outputs(outputs)], tf.add_n(losses or [0.0])

    def loss(self, wanted: Component, output: Shape, labels: np.ndarray) -> tuple[Any, LabelRule | None]:
        loss, rule = make_output_loss(wanted, output, labels)
        return mean_loss(loss), rule

    def with_gradients(self, function: Callable[[], Any], parts: Sequence[list[Any]]) -> tuple[Any, list[list[Any]]]:
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(parts)
            losses, results = function()
        trained = [arrays for arrays in parts if arrays]
        zero = tf.UnconnectedGradients.ZERO
        pairs = zip(losses, trained, strict=True)
        gradients = [tape.gradient(loss, arrays, unconnected_gradients=zero) for loss, arrays in pairs]
        dense = [list(map(tf.convert_to_tensor, of_loss)) for of_loss in gradients]  # those of embeddings are sparse
        return (losses, results), dense

    def compile(self, function: Callable[..., Any], example: Example, weights: np.ndarray) -> Callable[..., Any]:
        flat, signature = as_tensor(weights), [tf.TensorSpec([weights.size]), specs(example.x), specs(example.y)]
        with fit_errors():
            traced = tf.function(function, input_signature=signature, autograph=False).get_concrete_function()
        self.has_unsaved_random = self.has_unsaved_random or draws_unsaved(traced)
        return lambda x, y: [result.numpy() for result in traced(flat(), tensors(x), tensors(y))]

    def optimizer(self, wanted: Component) -> UpdateRule:
        return KerasRule(wanted, self.variables, self.layout, self.parts)

    @property
    def has_constraints(self) -> bool:
        return any(variable.constraint is not None for variable in self.variables)

    @property
    def uses_gpu(self) -> bool:
        return uses_gpu()

    @property
    def synchronizes_statistics(self) -> bool:
        return any(getattr(layer, "synchronized", False) for layer in self.model._flatten_layers())

    @property
    def has_penalty(self) -> bool:
        return bool(self.model.losses)

    def least_samples(self, x: Arrays) -> int:
        return 1  # batch normalisation of Keras takes single samples

    def close(self) -> None:
        """Restores the optimizer and the state of `compile` of the model that the user's function returned."""
        self._restore_users_compile()
        keras.backend.clear_session(free_memory=False)  # otherwise memory grows from model to model
        gc.collect()

    def _restore_users_compile(self) -> None:
        """Gives the model back the optimizer of the user; it counts as compiled only if the user's losses were used."""
        self.model.optimizer, self.model.compiled = self.users_optimizer, self.uses_users_compile


def _components(value: Any) -> Iterator[Component]:
    """All components in lists and mappings."""
    if isinstance(value, Component):
        yield value
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(_components, value.values()))
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(_components, value))
    elif isinstance(value, str):
        yield Component(name=value)


@contextmanager
def fit_errors(where: str = "model") -> Iterator[None]:
    """Converts errors of Keras and TensorFlow in the block to `ModelError`."""
    try:
        yield
    except FIT_ERRORS as error:
        raise unfit(error, where) from error
