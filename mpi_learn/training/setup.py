"""Prepares a training: model, optimizers, validation and timeline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from mpi_learn.algorithms.rank_layout import Layout, layout_of
from mpi_learn.data import Dataset
from mpi_learn.data.samples.latent_noise import Noise
from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.build import make_model
from mpi_learn.models.configuration import Computing
from mpi_learn.models.model import Model
from mpi_learn.models.weights_only import WeightsOnly
from mpi_learn.mpi.collectives import broadcast_in_place
from mpi_learn.mpi.communicators import Communicator, agreed_errors, host_name
from mpi_learn.optimizers import make_optimizer
from mpi_learn.optimizers.configuration import AnyOptimizer
from mpi_learn.optimizers.optimizer import Optimizer
from mpi_learn.optimizers.per_model import SeparateOptimizers
from mpi_learn.optimizers.schedule import Rate
from mpi_learn.settings.paths import make_folder
from mpi_learn.training.configuration import TrainingConfiguration
from mpi_learn.training.evaluation import Validator
from mpi_learn.training.tracing import RecordedTimeline, Timeline, clear_traces


def build_model(configuration: TrainingConfiguration, comm: Communicator, dataset: Dataset) -> Model:
    """The model with the same initial weights on every rank, after all checks that need no step. Collective.

    Raises:
        UserError: Model and data do not fit together.
    """
    rank = comm.rank

    def build() -> Model:
        return _build(configuration, rank, dataset)

    model: Model | None = None
    with agreed_errors(comm):
        layout = layout_of(configuration.algorithm, comm.size)
        first = layout.workers[0]
        if dataset.n_training == 0:
            raise ConfigurationError("there is no sample to train on", where="data.train")
        if rank in layout.workers:
            model = build()
        if rank == first and model is not None:
            validation = [] if dataset.validation is dataset.training else [dataset.validation]
            for labels in chain.from_iterable(samples.labels() for samples in (dataset.training, *validation)):
                model.check_labels(labels)
    if layout.masters:
        sizes = None if model is None else (
            model.layout, model.n_sums, model.moving().size, model.counters().size,
        )  # fmt: skip
        sizes = comm.bcast(sizes, root=first)
        model = model or WeightsOnly(*sizes, build)
    assert model is not None
    broadcast_in_place(comm, model.weights, first)
    statistics = model.moving()
    broadcast_in_place(comm, statistics, first)
    model.set_moving(statistics)
    return model


def _build(configuration: TrainingConfiguration, rank: int, dataset: Dataset) -> Model:
    few = dataset.training.take(slice(0, 2))
    noise = dataset.noise.draw(0, 0, len(few))[:1] if dataset.noise is not None else ()
    model = make_model(
        configuration.model,
        configuration.parameters,
        configuration.loss,
        configuration.metrics,
        (*few.x, *noise),
        few.y,
        seed=configuration.seed,
        stream=rank,
        gan=configuration.gan,
        computing=Computing(configuration.precision, configuration.gradient_checkpointing),
    )
    if configuration.xla is True and not model.has_xla:
        raise ConfigurationError(
            "only the step of a single Keras model can be compiled by XLA", where="xla", cure="leave it out"
        )
    return model


@dataclass(frozen=True)
class ModelStatistics:
    """The batch statistics of a model; see `mpi_learn.algorithms.algorithm.BatchStatistics`."""

    model: Model

    def read(self) -> np.ndarray:
        """See `BatchStatistics.read`."""
        return self.model.moving()

    def write(self, values: np.ndarray) -> None:
        """See `BatchStatistics.write`."""
        self.model.set_moving(values)


def make_validator(
    configuration: TrainingConfiguration, comm: Communicator, dataset: Dataset, model: Model
) -> Validator:
    """Validates `model`; validation in a thread gets a model of its own. Collective."""
    layout = layout_of(configuration.algorithm, comm.size)
    needs_copy = configuration.validation.mode == "thread" and comm.rank in layout.workers
    with agreed_errors(comm):
        copy = _build(configuration, comm.rank, dataset) if needs_copy else None
    return Validator(configuration, comm, dataset, layout, model, copy)


def with_latent_noise(dataset: Dataset, configuration: TrainingConfiguration) -> Dataset:
    """The same samples; for a GAN with the noise that its generator gets."""
    gan = configuration.gan
    if gan is None:
        return dataset
    noise = Noise(configuration.seed, gan.latent, gan.turns_per_batch, is_normal=gan.noise == "normal")
    return replace(dataset, noise=noise)


def make_training_optimizer(
    configuration: TrainingConfiguration,
    layout: FlatLayout,
    n_workers: int,
    options: AnyOptimizer | None,
    updates_per_epoch: float,
) -> Optimizer:
    """An optimizer with its learning rate schedule; for a GAN one per model.

    Args:
        configuration: Of the training.
        layout: Of the weights.
        n_workers: For schedules that scale with it.
        options: A section of the configuration; None: ``optimizer:``, or for a GAN the section of each model.
        updates_per_epoch: Number of updates by this optimizer.
    """

    def make(part: FlatLayout, chosen: AnyOptimizer, updates: float) -> Optimizer:
        rate = Rate(chosen.learning_rate, chosen.schedule, updates, configuration.epochs, n_workers)
        return make_optimizer(chosen, part, rate)

    gan = configuration.gan
    if gan is None:
        return make(layout, options or configuration.optimizer, updates_per_epoch)
    own = (gan.discriminator_optimizer, gan.generator_optimizer)
    optimizers = []
    for number, (_, part) in enumerate(layout.places()):
        share = sum(turn[number] for turn in gan.turns) / len(gan.turns)
        optimizers.append(make(part, options or own[number] or configuration.optimizer, updates_per_epoch * share))
    return SeparateOptimizers(layout, optimizers)


def open_timeline(configuration: TrainingConfiguration, comm: Communicator, layout: Layout) -> Timeline:
    """This rank's timeline. Collective."""
    if configuration.trace is None:
        return Timeline()
    with agreed_errors(comm):
        if comm.rank == 0:
            make_folder(configuration.trace, "trace")
            clear_traces(configuration.trace)
    role = "master" if comm.rank in layout.masters else "worker"
    with agreed_errors(comm):
        if not configuration.trace.is_dir():  # on a host with another file system
            make_folder(configuration.trace, "trace")
        return RecordedTimeline(configuration.trace, comm.rank, host_name(), role)
