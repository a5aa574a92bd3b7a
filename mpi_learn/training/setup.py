"""What a training needs before its first step: the model on every rank, and somewhere to write a timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from mpi_learn.algorithms.rank_layout import Layout, layout_of
from mpi_learn.data import Dataset
from mpi_learn.data.samples.batches import as_batch, completed
from mpi_learn.data.samples.class_weights import ClassWeights, make_class_weights
from mpi_learn.data.samples.latent_noise import Noise
from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.build import make_model
from mpi_learn.models.configuration import Computing, ModelSettings
from mpi_learn.models.model import Example, Model
from mpi_learn.models.weights_only import ModelSizes, WeightsOnly
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

N_IN_EXAMPLE = 8
"""Samples from which a model learns shapes, and with which it is tried before the first step."""


def built_model(configuration: TrainingConfiguration, comm: Communicator, dataset: Dataset) -> Model:
    """The model, with the first worker's weights on every rank, after every check that needs no step. Collective."""
    with agreed_errors(comm):
        layout = layout_of(configuration.algorithm, comm.size)
        first = layout.workers[0]
        if dataset.n_training == 0:
            raise ConfigurationError("there is no sample to train on", where="data.train")

        def build() -> Model:
            return _one_model(configuration, comm.rank, dataset, len(layout.workers))

        model = build() if comm.rank in layout.workers else None
        if comm.rank == first:
            validation = [] if dataset.validation is dataset.training else [dataset.validation]
            for labels in chain.from_iterable(samples.labels() for samples in (dataset.training, *validation)):
                model.check_labels(labels)
    if layout.masters:
        sizes = comm.bcast(ModelSizes.of(model) if model is not None else None, root=first)
        model = model or WeightsOnly(sizes, build)
    broadcast_in_place(comm, model.weights, first)
    moving = model.moving()
    broadcast_in_place(comm, moving, first)
    model.set_moving(moving)
    return model


def check_settings(configuration: TrainingConfiguration, model: Model, least_samples: int) -> None:
    """What is known only with the model: metrics that it brings along, and whether every batch is large enough.

    Args:
        least_samples: The smallest batch of the training.

    Raises:
        ConfigurationError: A metric is missing, or a batch is too small.
    """
    names = list(model.metrics(np.zeros(model.n_sums)))
    for where, metric in configuration.watched_metrics().items():
        if names and metric.removeprefix("val_") not in names:
            raise ConfigurationError(
                f"the training does not produce the metric {metric}",
                where=where,
                cure=f"it produces: {', '.join(names)}, and the same with val_",
            )
    if least_samples < model.least_samples:
        raise ConfigurationError(
            f"some batch has {least_samples} sample, of which batch normalisation has no variance",
            where="batch_size",
            cure="write data.drop_last: true, or another batch_size",
        )


def make_validator(
    configuration: TrainingConfiguration, comm: Communicator, dataset: Dataset, model: Model
) -> Validator:
    """What validates `model`; a thread gets a model of its own. Collective."""
    layout = layout_of(configuration.algorithm, comm.size)
    needs_copy = configuration.validation.mode == "thread" and comm.rank in layout.workers
    with agreed_errors(comm):
        copy = _one_model(configuration, comm.rank, dataset, len(layout.workers)) if needs_copy else None
    return Validator(configuration, comm, dataset, layout, model, copy)


def _one_model(configuration: TrainingConfiguration, rank: int, dataset: Dataset, n_workers: int) -> Model:
    few = dataset.training.take(slice(0, N_IN_EXAMPLE))
    batch = next(completed(as_batch(few), dataset, 0, 0))
    settings = ModelSettings(
        model=configuration.model,
        parameters=configuration.parameters,
        loss=configuration.loss,
        metrics=configuration.metrics,
        weighted_metrics=configuration.weighted_metrics,
        loss_weights=configuration.loss_weights,
        framework=configuration.framework,
        gan=configuration.gan,
        computing=Computing(configuration.precision, configuration.gradient_checkpointing),
        seed=configuration.seed,
        stream=rank,
        n_workers=n_workers,
        has_optimizer="optimizer" in configuration.model_fields_set,
        is_validated=dataset.n_validation > 0,
    )
    example = Example(batch.x, batch.y, batch.weights, few.format.x_names, few.format.y_names)
    made = make_model(settings, example)
    if configuration.xla is True and not made.has_xla:
        raise ConfigurationError(
            "only the step of a single Keras model can be compiled by XLA", where="xla", cure="leave it out"
        )
    return made


def completed_dataset(dataset: Dataset, configuration: TrainingConfiguration, comm: Communicator) -> Dataset:
    """The same samples with class weights and noise for a generator, if these are configured. Collective."""
    gan, wanted = configuration.gan, configuration.data.class_weight if configuration.data is not None else None
    if gan is not None:
        noise = Noise(configuration.seed, gan.latent, gan.turns_per_batch, is_normal=gan.noise == "normal")
        dataset = replace(dataset, noise=noise)
    if wanted is None:
        return dataset
    weights: ClassWeights | None = None
    with agreed_errors(comm):
        if comm.rank == 0:
            weights = make_class_weights(wanted, [dataset.training_labels()])
    return replace(dataset, class_weights=comm.bcast(weights, root=0))


def make_training_optimizer(
    configuration: TrainingConfiguration,
    layout: FlatLayout,
    n_workers: int,
    options: Any,
    updates_per_epoch: float,
    history: Callable[[], Mapping[str, Sequence[float]]],
) -> Optimizer:
    """An optimizer with its learning rate's schedule; one for each of two models.

    Args:
        options: A section of the configuration; None: its ``optimizer``, or of two models each one's own.
        updates_per_epoch: Steps, whoever moves in them.
        history: Returns the history so far.
    """

    def make(part: FlatLayout, chosen: Any, updates: float) -> Optimizer:
        rate = Rate(chosen.learning_rate, chosen.schedule, updates, configuration.epochs, n_workers, history)
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
