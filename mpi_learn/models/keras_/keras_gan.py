"""Generator and discriminator in Keras on TensorFlow: one flat vector, one compiled step for each kind of turn."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from mpi_learn.errors import ModelError
from mpi_learn.flat_layout import N_WORDS, aligned_empty
from mpi_learn.models.configuration import PLAIN, Computing, Gan, Turn
from mpi_learn.models.gan import (
    DISCRIMINATOR,
    GENERATOR,
    GanSums,
    Rounds,
    check_generated,
    joint_layout,
    weights_of,
)
from mpi_learn.models.keras_.keras_losses import Sums, check_label_range
from mpi_learn.models.keras_.keras_network import (
    KerasNetwork,
    Tensors,
    as_called,
    assign,
    flattened,
    joined,
    memory_of,
    shared_tensor,
    specs,
    tensors,
)
from mpi_learn.models.model import Arrays, Model
from mpi_learn.settings.user_code import load_function

Losses = tuple[tf.Tensor, tf.Tensor]


class KerasGan(Model):
    """Two Keras models that train each other, as one flat vector; see `mpi_learn.models.gan`.

    In a model's turn its moving means and variances move on, the other's rest; generators of random numbers always do.

    Args:
        pair: ``discriminator`` and ``generator``; each has at least one trainable array.
        options: Who moves when.
        loss, metrics: As in the configuration, with absolute paths.
        x: A few samples, for shapes and types: the features, and noise as the last of them.
        y: Labels, maybe none.
        stream: Makes the random generators draw other numbers: give the rank.
        computing: In which precision, and whether activations are computed again.

    Raises:
        ModelError, ConfigurationError: Models, loss, metrics and samples do not fit together.
    """

    def __init__(
        self,
        pair: dict[str, keras.Model],
        options: Gan,
        loss: Any,
        metrics: Any,
        x: Arrays,
        y: Arrays,
        stream: int = 0,
        computing: Computing = PLAIN,
    ) -> None:
        self.options, self._rounds = options, Rounds(options.turns)
        outputs = self._tried(pair, x, y)
        self.discriminator = KerasNetwork(pair[DISCRIMINATOR], stream, computing)
        self.generator = KerasNetwork(pair[GENERATOR], stream, computing)
        self.layout = joint_layout(self.discriminator.layout, self.generator.layout)
        self._at_discriminator, self._at_generator = [place for place, _ in self.layout.places()]
        self.weights = aligned_empty(self.layout.size)
        self.weights[:] = 0
        self.discriminator.give(self.weights[self._at_discriminator])
        self.generator.give(self.weights[self._at_generator])
        self._loss_weights = weights_of(options, len(outputs), len(y))
        labels = y if len(outputs) > 1 else ()
        validity = np.ones((1, *(n or 1 for n in outputs[0][1:])), np.float32)
        self._losses = Sums(outputs, loss, [], (validity, *labels)).losses
        self._metrics = [load_function(one) for one in metrics]
        self.sums = GanSums(metrics)
        self.n_sums = self.sums.n
        self._tensor = shared_tensor(self.weights)
        signature = [tf.TensorSpec([self.layout.size], tf.float32), specs(x), specs(y)]
        self._compiled = {turn: self._step_of(turn, signature) for turn in set(options.turns)}
        self._forward = tf.function(self._evaluated, input_signature=signature, autograph=False)
        try:  # traced now, so that what does not fit shows before the first step
            self._steps = {turn: step.get_concrete_function() for turn, step in self._compiled.items()}
        except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
            raise ModelError(f"models, loss and data do not fit together: {error}", where="model") from error

    def gradient(self, x: Arrays, y: Arrays) -> np.ndarray:
        """The step of whose turn it is; the other's part is zero, and so is its number of samples."""
        turn = self._rounds.next()
        if len(x[0]) == 0:
            return np.zeros(self.layout.size + self.n_sums, np.float32)
        return memory_of(self._steps[turn](self._flat(), tensors(x), tensors(y)))

    def evaluate(self, x: Arrays, y: Arrays) -> np.ndarray:
        """See `Model.evaluate`."""
        return self._forward(self._flat(), tensors(x), tensors(y)).numpy().astype(np.float64)

    def check_labels(self, y: Arrays) -> None:
        """Those that the discriminator predicts; see `Model.check_labels`."""
        check_label_range(self._losses[1:], y[: len(self._losses) - 1])

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """See `GanSums.results`."""
        return self.sums.results(sums)

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        """Generated samples; `x` is what the generator takes: noise, and labels if it is given any."""
        return tuple(one.numpy() for one in self.generator.call(self._parts(self._flat())[1], tensors(x), False)[0])

    def moving(self) -> np.ndarray:
        """See `Model.moving`."""
        return joined(self.discriminator.moving + self.generator.moving, np.float32)

    def set_moving(self, values: np.ndarray) -> None:
        """See `Model.set_moving`."""
        assign(self.discriminator.moving + self.generator.moving, values)

    def counters(self) -> np.ndarray:
        """See `Model.counters`: whose turn it is, then the states of the random generators."""
        states = joined(self.discriminator.counters + self.generator.counters, np.int64)
        return np.concatenate([[self._rounds.place], states]).astype(np.int64)

    def set_counters(self, values: np.ndarray) -> None:
        """See `Model.set_counters`."""
        self._rounds.place = int(values[0])
        assign(self.discriminator.counters + self.generator.counters, values[1:])

    def finish(self) -> dict[str, keras.Model]:
        """Both models, as the user's function returned them."""
        return {
            GENERATOR: self.generator.take(self.weights[self._at_generator]),
            DISCRIMINATOR: self.discriminator.take(self.weights[self._at_discriminator]),
        }

    def save(self, path: Path) -> Path:
        """Writes ``NAME_discriminator.keras`` and ``NAME_generator.keras``; returns the latter."""
        for name, model in reversed(self.finish().items()):
            file = path.with_name(f"{path.stem}_{name}.keras")
            aside = path.with_name(f".{file.stem}.writing.keras")
            model.save(aside)
            aside.rename(file)
        return file

    def close(self) -> None:
        """Drops the compiled functions and Keras' global state, so that memory does not grow from model to model."""
        self._steps = self._compiled = self._forward = self._tensor = None
        keras.backend.clear_session()
        gc.collect()

    def _tried(self, pair: dict[str, keras.Model], x: Arrays, y: Arrays) -> list[tuple[int | None, ...]]:
        """The shapes of the discriminator's outputs, by calling both models on a few samples."""
        *real, noise = (keras.ops.convert_to_tensor(one) for one in x)
        given = {name: [keras.ops.convert_to_tensor(one) for one in y] for name in self.options.condition}
        try:
            generated = keras.tree.flatten(pair[GENERATOR](as_called([noise, *given.get(GENERATOR, ())])))
        except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
            shapes = " and ".join(str(tuple(one.shape[1:])) for one in (noise, *given.get(GENERATOR, ())))
            raise ModelError(
                f"the generator does not take samples of shape {shapes}: {error}", where="gan.latent"
            ) from error
        check_generated([tuple(one.shape[1:]) for one in generated], x[:-1])
        try:
            outputs = keras.tree.flatten(pair[DISCRIMINATOR](as_called([*real, *given.get(DISCRIMINATOR, ())])))
        except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
            raise ModelError(f"the discriminator does not take the samples: {error}", where="data.features") from error
        return [(None, *one.shape[1:]) for one in outputs]

    def _flat(self) -> tf.Tensor:
        return self._tensor if self._tensor is not None else tf.convert_to_tensor(self.weights)

    def _parts(self, flat: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        return self.discriminator.parts(flat[self._at_discriminator]), self.generator.parts(flat[self._at_generator])

    def _given(self, name: str, y: Tensors) -> Tensors:
        return y if name in self.options.condition else ()

    def _loss(self, outputs: Tensors, target: float, y: Tensors) -> tf.Tensor:
        """Of the discriminator's outputs, summed over the samples, where the first should say `target`."""
        labels = tf.fill(tf.shape(outputs[0]), tf.constant(target, outputs[0].dtype)), *y
        losses = zip(self._loss_weights, self._losses, labels, outputs, strict=False)
        return tf.add_n([weight * loss.summed(*of_output) for weight, loss, *of_output in losses])

    def _step_of(self, turn: Turn, signature: list[Any]) -> Callable[..., tf.Tensor]:
        """One compiled step in which those move whose `turn` it is."""

        @tf.function(input_signature=signature, autograph=False)
        def step(flat: tf.Tensor, x: Tensors, y: Tensors) -> tf.Tensor:
            ours, theirs = self._parts(flat)
            with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
                tape.watch([*(ours if turn.discriminator else ()), *(theirs if turn.generator else ())])
                fake, losses = self._losses_of(ours, theirs, x, y, turn, training=True)
            n = tf.cast(tf.shape(x[-1])[0], tf.float32)
            found = []
            for moves, parts, loss in zip(turn, (ours, theirs), losses, strict=True):
                gradients = [tf.zeros_like(part) for part in parts]
                if moves:
                    none = tf.UnconnectedGradients.ZERO
                    gradients = tape.gradient(loss, parts, unconnected_gradients=none)
                found += [*gradients, n if moves else 0.0]
            return tf.concat([*map(flattened, found), self._sums(turn, n, losses, x, fake)], 0)

        return step

    def _losses_of(
        self, ours: list[tf.Tensor], theirs: list[tf.Tensor], x: Tensors, y: Tensors, turn: Turn, training: bool
    ) -> tuple[Tensors, Losses]:
        """Generated samples, and the summed losses of discriminator and generator; 0 of one that rests."""
        *real, noise = x
        n = tf.cast(tf.shape(noise)[0], tf.float32)
        fake, values, penalty = self.generator.call(theirs, (noise, *self._given(GENERATOR, y)), training)
        self._move_on(self.generator, values, turn.generator, training)
        given = self._given(DISCRIMINATOR, y)
        d_loss = g_loss = tf.constant(0.0)
        if turn.discriminator:
            outputs, values, d_penalty = self.discriminator.call(ours, (*real, *given), training)
            self._move_on(self.discriminator, values, True, training)
            d_loss = 0.5 * self._loss(outputs, 1.0 - self.options.smoothing, y) + n * d_penalty
        outputs, values, _ = self.discriminator.call(ours, (*fake, *given), training)
        self._move_on(self.discriminator, values, turn.discriminator, training)
        if turn.discriminator:
            d_loss += 0.5 * self._loss(outputs, 0.0, y)
        if turn.generator:
            g_loss = self._loss(outputs, 1.0, y) + n * penalty
        return fake, (d_loss, g_loss)

    def _move_on(self, network: KerasNetwork, values: list[Any], moves: bool, training: bool) -> None:
        if training:
            network.move_on(values, with_moving=moves)

    def _sums(self, turn: Turn, n: tf.Tensor, losses: Losses, x: Tensors, fake: Tensors) -> tf.Tensor:
        of_models = [one for moves, loss in zip(turn, losses, strict=True) for one in (n if moves else 0.0, loss)]
        measured = []
        for metric in self._metrics:
            value = tf.cast(metric(x[0] if len(fake) == 1 else x[:-1], fake[0] if len(fake) == 1 else fake), tf.float32)
            is_mean = value.shape.rank == 0
            measured.append(
                value * n if is_mean else tf.reduce_sum(tf.reduce_mean(tf.reshape(value, [tf.shape(value)[0], -1]), 1))
            )
        return tf.concat([*map(flattened, (n, tf.add_n(losses), *of_models, *measured)), [0.0] * N_WORDS], 0)

    def _evaluated(self, flat: tf.Tensor, x: Tensors, y: Tensors) -> tf.Tensor:
        turn = Turn(True, True)
        fake, losses = self._losses_of(*self._parts(flat), x, y, turn, training=False)
        return self._sums(turn, tf.cast(tf.shape(x[-1])[0], tf.float32), losses, x, fake)
