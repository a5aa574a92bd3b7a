"""What a training needs before its first step: the model on every rank, and somewhere to write a timeline."""

from __future__ import annotations

from itertools import chain

from mpi_learn.buffers import broadcast_in_place
from mpi_learn.comm import Communicator, agreed_errors, host_name
from mpi_learn.configuration import TrainingConfiguration
from mpi_learn.data import Dataset
from mpi_learn.errors import ConfigurationError
from mpi_learn.layout import Layout, layout_of
from mpi_learn.models.build import make_model
from mpi_learn.models.model import Model
from mpi_learn.models.weights_only import WeightsOnly
from mpi_learn.timeline import RecordedTimeline, Timeline, clear_traces
from mpi_learn.validating import Validator


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
        sizes = model and (model.layout.shapes, model.n_sums, model.moving().size, model.counters().size)
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
    model = configuration.model, configuration.parameters, configuration.loss, configuration.metrics
    return make_model(*model, few.x, few.y, seed=configuration.seed, stream=rank)


def open_timeline(configuration: TrainingConfiguration, comm: Communicator, layout: Layout) -> Timeline:
    """This rank's timeline. Collective."""
    if configuration.trace is None:
        return Timeline()
    with agreed_errors(comm):
        if comm.rank == 0:
            clear_traces(configuration.trace)
    role = "master" if comm.rank in layout.masters else "worker"
    return RecordedTimeline(configuration.trace, comm.rank, host_name(), role)
