"""Generative adversarial networks of every framework (Goodfellow et al. 2014, algorithm 1).

Both models are in one flat vector, the discriminator first. One number follows the arrays of each model. In a gradient,
it is the number of samples behind that model's part: 0 if the step does not update the model, whose optimizer then
makes no step.

The discriminator's loss is the mean of its losses on real and on generated samples. The generator's loss is that of
the discriminator with generated samples labelled as real (the "non-saturating" form of the paper). Further outputs of
the discriminator predict the labels; both models are trained on their losses (Odena, Olah & Shlens 2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.flat_layout import LOSS, N_FLAGS, N_SAMPLES, WEIGHT, FlatLayout, aligned_empty
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.models.gan.section import GanSection, Turn
from mpi_learn.models.labels import output_losses
from mpi_learn.models.model import Model
from mpi_learn.models.network import Network, joined
from mpi_learn.models.outputs import Outputs, names_in_history, shown
from mpi_learn.models.settings import Arrays, Example, Tensors
from mpi_learn.settings.component import component, make_component
from mpi_learn.settings.user_traceback import cure_at_line

NAMES = DISCRIMINATOR, GENERATOR = "discriminator", "generator"
N_D, D_LOSS, N_G, G_LOSS, FIRST_GAN_METRIC = 3, 4, 5, 6, 7
"""Indices of sums: samples and loss of the discriminator and of the generator, and the first metric."""


class GanModel(Model):
    """Generator and discriminator that train each other, as one flat vector.

    Moving means and variances change only in the models that a step updates. Random generators always advance.

    Args:
        networks: By name: ``generator`` and ``discriminator``.
        options: The section ``gan:``.
        configuration: Losses and metrics.
        example: A few samples: the features, with noise as the last of them, and labels, if any.

    Raises:
        ModelError, ConfigurationError: Models, loss, metrics and samples do not fit together.
    """

    state: GanState

    takes_samples = False

    def __init__(
        self, networks: Mapping[str, Network], options: GanSection, configuration: ModelConfiguration, example: Example
    ) -> None:
        if example.weights:
            raise ConfigurationError(
                "a gan does not use the weights of samples",
                where="data",
                cure="leave out data.weights and data.class_weight, or select the samples by their weights",
            )
        self._configuration, self.options = configuration, options
        self.networks = {name: networks[name] for name in NAMES}
        self._both = self.discriminator, self.generator = networks[DISCRIMINATOR], networks[GENERATOR]
        self.state = GanState(self._both)
        self.framework, self.uses_gpu = self.generator.framework, self.generator.uses_gpu
        example = Example(_real(example.x), example.y, y_names=example.y_names)
        self._make_losses(self._outputs_of(example), example)
        self.has_custom_loss = self._losses.may_be_sums or any(network.has_penalty for network in self._both)
        self.synchronizes_statistics = any(network.synchronizes_statistics for network in self._both)
        metrics = list(map(component, configuration.metrics))
        names = names_in_history(wanted.key for wanted in metrics)
        self._metrics = [(name, make_component(wanted, 2)) for name, wanted in zip(names, metrics, strict=True)]
        self.n_sums = FIRST_GAN_METRIC + len(self._metrics) + N_FLAGS
        self.layout = _joint_layout(*(network.layout for network in self._both))
        self.weights = aligned_empty(self.layout.size)
        self.weights[:] = 0  # also the elements behind the two parts, which no network fills: no samples
        self._spans = [place for place, _ in self.layout.by_model()]
        for network, span in zip(self._both, self._spans, strict=True):
            network.move_into(self.weights[span])
        self.has_constraints = any(network.has_constraints for network in self._both)
        compiled = partial(self.generator.compile, example=example, weights=self.weights)
        # one compiled step per kind of turn: the gradient of a model that rests would be computed for nothing
        self._steps = {turn: compiled(partial(self._step, turn)) for turn in set(self.options.turns)}
        self._forward = compiled(self._evaluated)
        self.has_unsaved_random = any(network.has_unsaved_random for network in self._both)

    def gradient(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        """The step vector of the current turn. The part and the count of a model that is not updated are zero."""
        turn, n = self.options.turns[self.state.place], len(x[0])
        self.state.place = (self.state.place + 1) % len(self.options.turns)
        step = np.zeros(self.layout.size + self.n_sums, np.float32)
        if n == 0:
            return step
        results = self._steps[turn](_real(x), y)
        for is_updated, network, span in zip(turn, self._both, self._spans, strict=True):
            if is_updated:
                for view in network.layout.views(step[span]):
                    view[...] = n * results.pop(0)
                step[span.stop] = n
        step[self.layout.size :] = self._sums(turn, n, results)
        return step

    def evaluate(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        return self._sums(Turn(True, True), len(x[0]), self._forward(_real(x), y))

    def check_labels(self, y: Arrays) -> None:
        self._losses.check_labels([self._validity, *y])

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """The mean loss of each model over the steps that updated it, their sum ``loss``, and the metrics."""
        d_loss, g_loss = (float(sums[at] / max(sums[n], 1.0)) for n, at in ((N_D, D_LOSS), (N_G, G_LOSS)))
        losses = {"loss": d_loss + g_loss, f"{DISCRIMINATOR}_loss": d_loss, f"{GENERATOR}_loss": g_loss}
        values = sums[FIRST_GAN_METRIC:-N_FLAGS] / max(float(sums[N_SAMPLES]), 1.0)
        return losses | {key: float(value) for (key, _), value in zip(self._metrics, values, strict=True)}

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        """Generated samples; `x` is the generator's input: noise, and labels if it is conditioned on them."""
        generate = self.generator.compile(self._generated, Example(x, ()), self.weights)
        return tuple(generate(x, ()))

    def probe(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> list[np.ndarray]:
        """The losses of both models."""
        with self.repeatable():
            return list(map(np.array, self.evaluate(x, y)[[D_LOSS, G_LOSS]]))

    def close(self) -> None:
        self._steps.clear()
        del self._forward
        for network in self._both:
            network.close()

    def _labels_for(self, name: str, y: Tensors) -> list[Any]:
        """The labels that a model takes as further inputs."""
        return list(y) if name in self.options.condition else []

    def _outputs_of(self, example: Example) -> Outputs:
        """The discriminator's outputs, by calling both models on a few samples."""
        *real, noise = example.x
        inputs = [noise, *self._labels_for(GENERATOR, example.y)]
        discriminator_inputs = [*real, *self._labels_for(DISCRIMINATOR, example.y)]
        shapes = shown(array.shape[1:] for array in inputs)
        made = _outputs_for(
            self.generator,
            inputs,
            f"the generator does not take samples of shape {shapes}",
            "gan.latent",
            "give its first input the shape (gan.latent,), and one more input to each label that it receives",
        )
        if made.is_mapping and len(made) > 1:  # features of the same shape would be exchanged without an error
            raise ModelError(
                f"the generator returns its outputs by name ({', '.join(made.names)}), which have no order",
                where="model",
                cure="return a tuple, in the order of data.features",
            )
        outputs = _outputs_for(
            self.discriminator,
            discriminator_inputs,
            "the discriminator does not take the samples",
            "data.features",
            "give it one input for each array of data.features, and one more to each label that it receives",
        )
        generated = [shape[1:] for shape in made.shapes]
        expected = [array.shape[1:] for array in real]
        if generated != expected:
            raise ModelError(
                f"the generator makes samples of shape {shown(generated)}, the data have {shown(expected)}",
                where="data.features",
                cure="change the output of the generator, or data.features",
            )
        least = self.generator.least_samples(inputs), self.discriminator.least_samples(discriminator_inputs)
        self.least_samples = max(least)
        return replace(outputs, owner="the discriminator")

    def _make_losses(self, outputs: Outputs, example: Example) -> None:
        """One loss per output of the discriminator: the first says real or generated, the others predict labels."""
        if len(outputs) not in (1, 1 + len(example.y)):
            raise ModelError(
                f"the discriminator has {len(outputs) - 1} outputs after the first, the data have labels for "
                f"{len(example.y)}",
                where="data.labels",
                cure="after the first output (real or generated), add one output per label, or none",
            )
        if len(outputs) > 1:
            _check_order(outputs, example.y_names)
        else:
            outputs = replace(outputs, names=())  # a layer of Keras without a name gets a generated one
        outputs = outputs.named_by(self._configuration.loss)
        self._loss_weights = outputs.factors(self.options.loss_weights or None, "gan.loss_weights")
        self._validity = np.ones((1, *(n or 1 for n in outputs.shapes[0][1:])), np.float32)
        labels = Example(example.x, [self._validity, *(example.y if len(outputs) > 1 else ())])
        self._losses = output_losses(outputs, self._configuration.loss, labels, self.discriminator.loss)
        if None in self._losses.losses:
            raise ConfigurationError(
                "every output of the discriminator needs a loss",
                where="loss",
                cure=f"add a loss for the output {outputs.name(self._losses.losses.index(None))}",
            )

    def _step(self, turn: Turn, flat: Any, x: Tensors, y: Tensors) -> list[Any]:
        """Gradients of the mean losses with respect to the arrays of the updated models, then losses and metrics."""
        parts = self._split(flat)
        run = partial(self._losses_of, parts, x, y, turn, training=True)
        (losses, fake), gradients = self.generator.with_gradients(
            run, [arrays if is_updated else [] for is_updated, arrays in zip(turn, parts, strict=True)]
        )
        return [*(gradient for of_model in gradients for gradient in of_model), *losses, *self._measured(x, fake)]

    def _evaluated(self, flat: Any, x: Tensors, y: Tensors) -> list[Any]:
        losses, fake = self._losses_of(self._split(flat), x, y, Turn(True, True), training=False)
        return [*losses, *self._measured(x, fake)]

    def _generated(self, flat: Any, x: Tensors, y: Tensors) -> list[Any]:
        return list(self.generator.forward(self._split(flat)[1], x, False, False)[0])

    def _split(self, flat: Any) -> list[list[Any]]:
        return [network.parts(flat[span]) for network, span in zip(self._both, self._spans, strict=True)]

    def _losses_of(
        self, parts: list[list[Any]], x: Tensors, y: Tensors, turn: Turn, training: bool
    ) -> tuple[list[Any], Tensors]:
        """The losses of the models that are updated, the discriminator's first, and the generated samples."""
        (*real, noise), judge = x, self.discriminator
        losses: list[Any] = []
        condition = self._labels_for(DISCRIMINATOR, y)
        inputs = [noise, *self._labels_for(GENERATOR, y)]
        fake, penalty = self.generator.forward(parts[1], inputs, training, turn.generator)
        if turn.discriminator:
            outputs, judge_penalty = judge.forward(parts[0], [*real, *condition], training, True)
            losses.append(0.5 * self._loss(outputs, 1.0 - self.options.smoothing, y) + judge_penalty)
        outputs, _ = judge.forward(parts[0], [*fake, *condition], training, turn.discriminator)
        if turn.discriminator:
            losses[0] = losses[0] + 0.5 * self._loss(outputs, 0.0, y)
        if turn.generator:
            losses.append(self._loss(outputs, 1.0, y) + penalty)
        return losses, fake

    def _loss(self, outputs: Tensors, target: float, y: Tensors) -> Any:
        """The mean loss of the discriminator's outputs, where the first should be `target`."""
        labels = outputs[0] * 0 + target, *y
        parts = zip(self._loss_weights, self._losses.losses, labels, outputs, strict=False)
        return sum(weight * loss(label, output) for weight, loss, label, output in parts if loss is not None)

    def _measured(self, x: Tensors, fake: Tensors) -> list[Any]:
        samples = (x[0], fake[0]) if len(fake) == 1 else (x[:-1], fake)
        return [metric(*samples) for _, metric in self._metrics]

    def _sums(self, turn: Turn, n: int, results: Sequence[np.ndarray]) -> np.ndarray:
        """The sums of a step from the losses of the models that are updated, and the metrics."""
        values, sums = [float(np.mean(value)) for value in results], np.zeros(self.n_sums)
        for is_updated, at in zip(turn, (N_D, N_G), strict=True):
            if is_updated:
                sums[at : at + 2] = n, n * values.pop(0)
        sums[[WEIGHT, LOSS, N_SAMPLES]] = n, sums[D_LOSS] + sums[G_LOSS], n
        sums[FIRST_GAN_METRIC : FIRST_GAN_METRIC + len(values)] = n * np.array(values)
        return sums


class GanState:
    """The states of both models, and the place in the round; see `ModelState`."""

    def __init__(self, both: Sequence[Network]) -> None:
        self._both, self.place = both, 0

    def floats(self) -> np.ndarray:
        return joined((network.floats() for network in self._both), np.float32)

    def set_floats(self, values: np.ndarray) -> None:
        for network in self._both:
            network.set_floats(values)
            values = values[network.floats().size :]

    def integers(self) -> np.ndarray:
        """The place, then the integers of both models."""
        return joined([self.place, *(network.integers() for network in self._both)], np.int64)

    def set_integers(self, values: np.ndarray) -> None:
        self.place, values = int(values[0]), values[1:]
        for network in self._both:
            network.set_integers(values)
            values = values[network.integers().size :]

    def random_mask(self) -> np.ndarray:
        return joined([False, *(network.random_mask() for network in self._both)], np.bool_)

    def seed_random(self, keys: Sequence[int]) -> None:
        for index, network in enumerate(self._both):
            network.seed_random((*keys, index))


def _outputs_for(network: Network, x: Arrays, problem: str, where: str, cure: str) -> Outputs:
    """The outputs of a network for a few samples; raises ModelError with `problem` if it does not take them."""
    try:
        return network.outputs(x)
    except Exception as error:
        raise ModelError(f"{problem}: {error}", where=where, cure=cure_at_line(cure, error)) from error


def _check_order(outputs: Outputs, labels: Sequence[str]) -> None:
    """Raises ModelError unless the first output says real or generated and the others are in the order of `labels`."""
    if outputs.is_mapping:
        raise ModelError(
            f"the discriminator returns its outputs by name ({', '.join(outputs.names)}), which have no order",
            where="model",
            cure="return a tuple: real or generated first, then one output per label, in the order of data.labels",
        )
    if set(labels) & set(outputs.names) and tuple(labels) != outputs.names[1:]:
        raise ModelError(
            f"after its first output the discriminator returns {', '.join(outputs.names[1:])}, the labels are "
            f"{', '.join(labels)}",
            where="data.labels",
            cure="write the labels in the order of the outputs",
        )


def _real(x: Arrays) -> list[np.ndarray]:
    """Converts arrays to float32, the dtype of the generated samples."""
    return [np.asarray(array, np.float32) for array in x]


def _joint_layout(discriminator: FlatLayout, generator: FlatLayout) -> FlatLayout:
    shapes = (*discriminator.shapes, (1,), *generator.shapes, (1,))
    return FlatLayout(shapes, (len(discriminator.shapes) + 1, len(generator.shapes) + 1))
