"""What a training needs before its first step: the model on every rank, and somewhere to write a timeline."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

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
from mpi_learn.optimizers.optimizer import Optimizer
from mpi_learn.optimizers.per_model import SeparateOptimizers
from mpi_learn.optimizers.schedule import Rate
from mpi_learn.settings.paths import make_folder
from mpi_learn.training.configuration import TrainingConfiguration
from mpi_learn.training.evaluation import Validator
from mpi_learn.training.tracing import RecordedTimeline, Timeline, clear_traces


def built_model(configuration: TrainingConfiguration, comm: Communicator, dataset: Dataset) -> Model:
    """The model, with the first worker's weights on every rank, after every check that needs no step. Collective."""
    with agreed_errors(comm):
        layout = layout_of(configuration.algorithm, comm.size)
        first = layout.workers[0]
        if dataset.n_training == 0:
            raise ConfigurationError("there is no sample to train on", where="data.train")

        def build() -> Model:
            return _one_model(configuration, comm.rank, dataset)

        model = build() if comm.rank in layout.workers else None
        if comm.rank == first:
            validation = [] if dataset.validation is dataset.training else [dataset.validation]
            for labels in chain.from_iterable(samples.labels() for samples in (dataset.training, *validation)):
                model.check_labels(labels)
    if layout.masters:
        sizes = model and (model.layout, model.n_sums, model.moving().size, model.counters().size)
        sizes = comm.bcast(sizes, root=first)
        model = model or WeightsOnly(*sizes, build)
    broadcast_in_place(comm, model.weights, first)
    moving = model.moving()
    broadcast_in_place(comm, moving, first)
    model.set_moving(moving)
    return model


def make_validator(
    configuration: TrainingConfiguration, comm: Communicator, dataset: Dataset, model: Model
) -> Validator:
    """What validates `model`; a thread gets a model of its own. Collective."""
    layout = layout_of(configuration.algorithm, comm.size)
    needs_copy = configuration.validation.mode == "thread" and comm.rank in layout.workers
    with agreed_errors(comm):
        copy = _one_model(configuration, comm.rank, dataset) if needs_copy else None
    return Validator(configuration, comm, dataset, layout, model, copy)


def _one_model(configuration: TrainingConfiguration, rank: int, dataset: Dataset) -> Model:
    few = dataset.training.take(slice(0, 2))
    noise = dataset.noise.draw(0, 0, len(few))[:1] if dataset.noise is not None else ()
    model = configuration.model, configuration.parameters, configuration.loss, configuration.metrics
    names = {"seed": configuration.seed, "stream": rank, "gan": configuration.gan}
    names["computing"] = Computing(configuration.precision, configuration.gradient_checkpointing)
    made = make_model(*model, (*few.x, *noise), few.y, **names)
    if configuration.xla is True and not made.has_xla:
        raise ConfigurationError(
            "only the step of a single Keras model can be compiled by XLA", where="xla", cure="leave it out"
        )
    return made


def with_noise(dataset: Dataset, configuration: TrainingConfiguration) -> Dataset:
    """The same samples, and where there is a generator, what it makes others of."""
    gan = configuration.gan
    if gan is None:
        return dataset
    return replace(
        dataset, noise=Noise(configuration.seed, gan.latent, gan.turns_per_batch, is_normal=gan.noise == "normal")
    )


def make_training_optimizer(
    configuration: TrainingConfiguration, layout: FlatLayout, n_workers: int, options: Any, updates_per_epoch: float
) -> Optimizer:
    """An optimizer with its learning rate's schedule; one for each of two models.

    Args:
        options: A section of the configuration; None: its ``optimizer``, or of two models each one's own.
        updates_per_epoch: Steps, whoever moves in them.
    """

    def make(part: FlatLayout, chosen: Any, updates: float) -> Optimizer:
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
        if not configuration.trace.is_dir():  # another host's disk
            make_folder(configuration.trace, "trace")
        return RecordedTimeline(configuration.trace, comm.rank, host_name(), role)
