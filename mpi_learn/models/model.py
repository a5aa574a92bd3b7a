"""The interfaces of a model and of one that is composed of several; whether a loss is a mean over the samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mpi_learn.data.samples.stored_samples import AddedInput, CopyRows
from mpi_learn.devices.device_vector import DeviceVector
from mpi_learn.flat_layout import LOSS, WEIGHT, FlatLayout, UpdateRule
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.models.network import ArrayKind, ModelState, Network
from mpi_learn.models.settings import Arrays, Example, ModelSettings
from mpi_learn.optimizers.configuration import AnyOptimizer
from mpi_learn.settings.component import Component

UNSAVED_RANDOM = (
    "a layer, loss or metric draws random numbers with tf.random, whose state no checkpoint can hold: a training that "
    "resumes draws others. For an exact continuation, use keras.random with a keras.random.SeedGenerator"
)


class Model(ABC):
    """A model of one of the frameworks as a flat vector of weights.

    Attributes:
        networks: The networks of which it consists, by name; a single network has an empty name.
        layout: The trainable arrays as parts of `weights`.
        weights: (layout.size,) float32, the memory that the framework computes with; changed in place.
        state: The values that are not trained.
        n_sums: Number of sums behind a gradient (see `mpi_learn.flat_layout`).
        framework: ``keras`` or ``torch``.
        can_use_xla: Whether XLA can compile its step.
        uses_xla: Whether XLA compiles its step.
        uses_gpu: Whether the framework computes on a GPU.
        has_custom_loss: Whether user code computes its loss, which may be a sum over the batch.
        synchronizes_statistics: Whether its batch normalisation would use the batches of all replicas.
        least_samples: The smallest batch that the model can be trained with.
        can_evaluate: Whether `evaluate` is possible: not if only the user's `train_step` computes a loss.
        notes: What the user may expect and the training does not do or depends on, in sentences for the terminal.
        depends_on_ranks: Whether one of these is that results depend on the number of ranks, with a total batch; on the
            first worker.
        has_constraints: Whether the framework's optimizers constrain its weights after each step.
        divides_by_weights: Whether a loss of a batch is divided by the sum of the sample weights.
        has_unsaved_random: Whether its step draws random numbers whose generator `state` does not contain.
        takes_samples: Whether `predict` takes the features of samples; a generator takes noise instead.
        copy_rows: How batches for `gradient` are copied from samples in memory; None by NumPy.
        layers_of_stages: The number of layers of each stage into which one model was divided; empty for other models.
        is_sized_later: Whether arrays that are not trained get their sizes in the first batch, as those of observers.
    """

    networks: Mapping[str, Network]
    layout: FlatLayout
    weights: np.ndarray
    state: ModelState
    n_sums: int
    framework: str
    can_use_xla: bool = False
    uses_xla: bool = False
    uses_gpu: bool = False
    has_custom_loss: bool = False
    synchronizes_statistics: bool = False
    least_samples: int = 1
    can_evaluate: bool = True
    has_constraints: bool = False
    notes: Sequence[str] = ()
    depends_on_ranks: bool = False
    divides_by_weights: bool = False
    has_unsaved_random: bool = False
    layers_of_stages: tuple[int, ...] = ()
    is_sized_later: bool = False
    takes_samples: bool = True
    copy_rows: CopyRows | None = None

    @abstractmethod
    def gradient(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> Any:
        """Forward and backward pass of one training step; updates `state`, but not `weights`.

        Args:
            x: One array per input, the first axis being n samples; n may be 0.
            y: One array per label.
            weights: One array of sample weights, or none.

        Returns:
            (layout.size + n_sums,) float32 step vector: the gradient of the loss, times the batch's weight (its
            number of samples where nothing else is documented), 1 for each array that has a gradient and 0 for the
            others (if `layout.has_counts`), then the sums. Writable; the next call may overwrite it. Between
            `begin_steps` and `end_steps` after `keep_on_device`, it is a `DeviceVector`, whose sums lack those that
            `end_steps` adds.
        """

    def keep_on_device(self) -> Any:
        """Leaves weights and gradients on the device from `begin_steps` to `end_steps`; returns the ``torch.device``.

        None, and without effect, if the model computes on the host, or its framework needs the weights there.
        """
        return None

    def weights_on_device(self) -> DeviceVector | None:
        """The weights on the device, which an algorithm changes; None without `keep_on_device`."""
        return None

    def begin_steps(self) -> None:  # noqa: B027 - optional
        """Before the steps of an epoch: after `keep_on_device`, copies `weights` to the device."""

    def wait(self) -> None:  # noqa: B027 - optional
        """Waits until the device has computed what `gradient` and the optimizer have begun."""

    def end_steps(self, sums: np.ndarray) -> None:  # noqa: B027 - optional
        """After the steps of an epoch: after `keep_on_device`, copies the weights back to `weights`.

        Args:
            sums: (n_sums,) float64, to which the sums are added that the steps have left on the device.
        """

    def scale_loss(self, scale: Callable[[], float]) -> None:
        """From now on, `gradient` multiplies the loss by a scale before the backward pass, and then divides by it.

        Args:
            scale: The scale of the next step.

        Raises:
            NotImplementedError: Models of this kind are not trained in float16.
        """
        raise NotImplementedError(f"{type(self).__name__} has no scale of its loss")

    def evaluation(self) -> AbstractContextManager[None]:
        """In the block, the weights do not change: `evaluate` need not copy them to the device in each call."""
        return nullcontext()

    def compile_step(self, by_xla: bool) -> None:  # noqa: B027 - optional
        """Chooses whether XLA computes `gradient` for batches as large as the next one; only if `can_use_xla`."""

    @abstractmethod
    def evaluate(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        """The sums of one forward pass in inference mode, (n_sums,) float64. The arguments are those of `gradient`."""

    @abstractmethod
    def check_labels(self, y: Arrays) -> None:
        """Raises DataError if a label of `y` (one array per label) is outside of the model's outputs."""

    @abstractmethod
    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """Loss and metrics, by name, over all samples of `sums`, (n_sums,)."""

    @abstractmethod
    def probe(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> list[np.ndarray]:
        """What ranks with the same model compute alike for a few samples: outputs, if any, and losses, in inference.

        Random numbers depend on the configured seed alone. Weights and `state` do not change.

        Args:
            x, y, weights: As in `gradient`.
        """

    def arrays(self) -> list[ArrayKind]:
        """All arrays of its networks."""
        return [
            array._replace(name=f"{name}.{array.name}" if name else array.name)
            for name, network in self.networks.items()
            for array in network.arrays()
        ]

    def resize(self, arrays: Sequence[ArrayKind]) -> None:
        """Gives arrays that are not trained the shapes of `arrays`, which another model of the same function has."""
        for name, network in self.networks.items():
            prefix = f"{name}." if name else ""
            own = [array for array in arrays if array.name.startswith(prefix)]
            network.resize([array._replace(name=array.name.removeprefix(prefix)) for array in own])

    @property
    def sees_attributes(self) -> bool:
        """See `Network.sees_attributes`."""
        return all(network.sees_attributes for network in self.networks.values())

    def traits(self) -> dict[str, Any]:
        """The `Network.traits` of all of its networks."""
        pairs = ((name, network.traits().items()) for name, network in self.networks.items())
        return {f"{name}.{trait}" if name else trait: value for name, traits in pairs for trait, value in traits}

    @contextmanager
    def repeatable(self) -> Iterator[None]:
        """As `Network.repeatable`, for all of its networks."""
        with ExitStack() as stack:
            for network in self.networks.values():
                stack.enter_context(network.repeatable())
            yield

    @property
    def metric_names(self) -> list[str]:
        """The names in the result of `metrics`."""
        return list(self.metrics(np.zeros(self.n_sums)))

    @abstractmethod
    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        """The outputs in inference mode: one array of shape (n, …) per output."""

    def optimizer(self, wanted: Component, index: int = 0) -> UpdateRule:
        """An optimizer of the framework, for the weights of one network.

        Args:
            wanted: Its name or the user's function, with arguments.
            index: The index of the network.

        Raises:
            ConfigurationError: It is not available for this model.
        """
        return list(self.networks.values())[index].optimizer(wanted)

    def current(self) -> Any:
        """The framework's own model object, with the current weights; for several networks one by name."""
        models = {name: network.current() for name, network in self.networks.items()}
        return models.get("", models)

    def take_current(self) -> None:
        """Copies the weights of the object of `current`, which user code may have changed, into `weights`."""
        for network in self.networks.values():
            network.move_into(network.weights)

    def gather(self) -> None:  # noqa: B027 - optional
        """Brings the parts of a model that is on several ranks together. Collective over these, after the training."""

    def save(self, path: Path) -> Path:
        """Writes the model to `path` with the framework's suffix, one file per network; returns the last one. Atomic.

        With several networks, their names are part of the names of the files: ``model_generator.keras``.
        """
        for name, network in self.networks.items():
            file = network.save(_path_of_network(path, name))
        return file

    def save_weights(self, path: Path) -> tuple[Path, str]:
        """Writes only the weights, for models that `save` cannot write.

        Returns:
            The last file, and the lines of Python that load all files.
        """
        lines = [network.settings.configuration.call for network in self.networks.values()][:1]
        for name, network in self.networks.items():
            file = network.save_weights(_path_of_network(path, name))
            lines.append(network.line_to_load(file, f"model[{name!r}]" if name else "model"))
        return file, "\n".join(lines)

    def close(self) -> None:  # noqa: B027 - optional
        """Ends the training: releases what the framework holds for it. The object of `current` stays usable."""


def _path_of_network(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}_{name}") if name else path


COMPARES_SAMPLES = (
    "the loss of a batch is not the mean of the losses of its samples: it compares samples, or divides by a property of"
    " the batch. Each rank computes it on its own batch, so that the training depends on the number of ranks"
)
FEWEST, MOST = 4, 32
"""Numbers of samples with which a loss is tried."""
TOLERANCE, OF_FEW_BITS = 1e-4, 2e-2
"""Relative errors of a loss in 32 bits on the CPU; and on a GPU or with 16 bits."""


def compares_samples(model: Model, example: Example, precision: str) -> bool:
    """Whether the loss of a batch differs from the mean over its halves, in inference mode. The state does not change.

    Only losses of the user are tried, and not those that draw random numbers.
    """
    n = min(len(example), MOST)
    if not (model.has_custom_loss and model.can_evaluate) or n < FEWEST:
        return False
    whole, integers = example.part(0, n), model.state.integers()
    try:
        with model.repeatable():
            first, second = (_sums(model, part) for part in (whole.part(0, n // 2), whole.part(n // 2, n)))
            seeded = _sums(model, whole)
        again = _sums(model, whole)
    except Exception:  # noqa: BLE001 - of the user's loss, which may need more samples
        return False
    finally:
        model.state.set_integers(integers)
    losses = [_loss(sums) for sums in (seeded, again, first + second, first, second)]
    few_bits = model.uses_gpu or precision != "float32"
    tolerance = (OF_FEW_BITS if few_bits else TOLERANCE) * float(np.abs(losses).max())
    is_random = abs(losses[0] - losses[1]) > tolerance
    return not is_random and abs(losses[0] - losses[2]) > tolerance  # False with NaN


def _sums(model: Model, example: Example) -> np.ndarray:
    return model.evaluate(example.x, example.y, example.weights)


def _loss(sums: np.ndarray) -> float:
    return float(sums[LOSS] / (sums[WEIGHT] or 1.0))


class Part(NamedTuple):
    """The optimizer of one part of a model, in the order of `FlatLayout.by_model`.

    Attributes:
        key: The key of the configuration that holds it.
        optimizer: Its options.
        share: The fraction of the steps that update this part.
    """

    key: str
    optimizer: AnyOptimizer
    share: float = 1.0


class Composition(ABC):
    """How several models of a framework are trained as one: a section of the configuration decides it.

    Loop, algorithms and data see one `Model` with one vector. A GAN holds both models on every rank, with an optimizer
    for each. Of a model in stages, each rank holds one stage, with a single part.

    Attributes:
        key: The section of the configuration.
        loss_names: Names that it adds to the history.
    """

    key: ClassVar[str]
    loss_names: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def check(self, configuration: ModelConfiguration, *, compression: str, accumulate: int) -> None:
        """Raises InvalidValue if the configuration does not fit this kind of model.

        Args:
            compression: How the algorithm sends gradients.
            accumulate: Steps whose gradients it sums before they are exchanged.
        """

    def measured(
        self, settings: ModelSettings, example: Example, earlier: Sequence[int], n_samples: int
    ) -> Composition:
        """This composition with what the first rank measures for all; called there alone, for a model in stages.

        Args:
            earlier: `Model.layers_of_stages` of the training that continues; empty if there is none.
            n_samples: The largest number of samples in a micro-batch.
        """
        return self

    @abstractmethod
    def models_of(self, built: Any, settings: ModelSettings) -> Mapping[str, Any]:
        """The framework's models by name in what the user's function has returned.

        Raises:
            ModelError: It has returned something else.
        """

    @abstractmethod
    def compose(
        self, models: Mapping[str, Any], as_network: Callable[[Any], Network], settings: ModelSettings, example: Example
    ) -> Model:
        """The model of this rank; `as_network` converts those of `models` that the rank holds."""

    @abstractmethod
    def parts(self, optimizer: AnyOptimizer) -> list[Part]:
        """The parts of the vector with an optimizer each; `optimizer` is that of parts without one of their own."""

    @abstractmethod
    def added_input(self, seed: int) -> AddedInput | None:
        """An input of the models that no file contains."""
