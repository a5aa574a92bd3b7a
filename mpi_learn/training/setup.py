"""Prepares a training: samples, model, optimizers, validation and timeline."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from mpi_learn.algorithms.configuration import AllReduce
from mpi_learn.data.samples.batches import BatchOptions, Dataset, completed
from mpi_learn.data.samples.make_batches import AnyBatches, make_batches, make_sharded_batches
from mpi_learn.data.samples.stored_samples import CopyRows, Samples, StreamedSamples
from mpi_learn.environment import allow_a_second_graph, return_freed_memory
from mpi_learn.errors import ConfigurationError, DataError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.model import COMPARES_SAMPLES, Composition, Model
from mpi_learn.models.settings import Example, ModelSettings
from mpi_learn.models.weights_only import ModelSizes, WeightsOnly
from mpi_learn.mpi.communicators import Communicator, agreed_errors, broadcast_in_place, host_name
from mpi_learn.optimizers.configuration import AnyOptimizer, FrameworkOptimizer, NotFused
from mpi_learn.optimizers.learning_rate import LearningRate
from mpi_learn.optimizers.optimizer import Optimizer, RuleOptimizer, make_optimizer
from mpi_learn.optimizers.wrapped_optimizers import LossScaling, SeparateOptimizers
from mpi_learn.settings.paths import make_folder
from mpi_learn.training.checkpoints.checkpoint_file import saved_layers_of_stages
from mpi_learn.training.configuration import TrainingConfiguration
from mpi_learn.training.context import TrainingContext
from mpi_learn.training.evaluation import Validator
from mpi_learn.training.ranks.same_model import Mark, agree_on_arrays, agree_on_outputs
from mpi_learn.training.ranks.shards import COMPRESSED, dependence_on_ranks
from mpi_learn.training.timing.tracing import RecordedTimeline, Timeline, clear_traces

N_IN_EXAMPLE = 8
"""Number of samples with which a model is built and tested before the first step."""


def build_model(context: TrainingContext) -> Model:
    """The model with the same initial weights on every rank, after all checks that need no step. Collective.

    Raises:
        UserError: Model and data do not fit together.
    """
    comm, dataset, first = context.comm, context.dataset, context.first_worker
    model, marks, composition = None, list[Mark](), context.configuration.composition
    with agreed_errors(comm, waits_long=True):  # before the ranks of several stages build them together
        if dataset.n_training == 0:
            raise ConfigurationError(
                "there is no sample to train on",
                where="data.train",
                cure="name files that have samples, or decrease validation_fraction",
            )
        example = _example(dataset)
    if composition is not None and context.chain is not None:
        with agreed_errors(comm, waits_long=True):
            if comm.rank == 0:
                composition = _measured(context, composition, example)
        composition = comm.bcast(composition)  # all ranks divide the model at the same places
    with agreed_errors(comm, waits_long=True):
        if context.worker is not None:
            model = _one_model(context, example, composition)
        if comm.rank == context.first_with_loss and model is not None:
            _check_labels(model, dataset)
            if model.divides_by_weights and context.n_workers > 1:
                check_signs(dataset)
    _note_dependence(context, model, example)
    if comm.size > 1:  # before the broadcast, which would mix up the arrays of models with other shapes
        with agreed_errors(comm):  # the ranks of another stage may have found the same arrays
            agree_on_arrays(context.peers, model, example)

    def build() -> Model:
        """The model, on a master."""
        made = _one_model(context, example, composition)
        for mark in marks:
            mark.check(made, example)
        return made

    worker = model  # a master without a worker's model has nothing to compare
    if context.layout.masters:
        sizes = comm.bcast(ModelSizes.of(model) if model is not None else None, root=first)
        model = model or WeightsOnly(sizes, build)
    assert model is not None
    _broadcast(context.peers, model, first)
    if comm.size > 1:
        marks.append(agree_on_outputs(comm, worker, example, first, context.configuration.precision))
    if context.chain is not None:  # the other stages, which this rank may have built too
        return_freed_memory()
    return model


def _note_dependence(context: TrainingContext, model: Model | None, example: Example) -> None:
    """Adds to the model why a training with ``batch_size: {total: …}`` depends on the number of ranks. Collective."""
    if (total := context.configuration.total_batch) is None:
        return
    # in a block of its own: the stages compute together, and only the last one has checked labels
    with agreed_errors(context.comm, waits_long=True):
        if context.worker != 0 or model is None:
            return
        found = [dependence_on_ranks(model, example, has_shards=total.shards is not None)]
        if context.chain is not None:  # another stage may draw random numbers
            found = context.chain.allgather(found[0])
        if context.configuration.is_compressed:
            found.append(COMPRESSED)
        why = tuple(filter(None, sorted(set(found))))
        is_compared = total.shards is None and COMPARES_SAMPLES in model.notes
        model.notes, model.depends_on_ranks = (*model.notes, *why), is_compared or bool(why)


def _broadcast(comm: Communicator, model: Model, first: int) -> None:
    """Gives all ranks weights and state of the rank `first`, except for the states of random generators. Collective."""
    state = model.state
    broadcast_in_place(comm, model.weights, first)
    statistics, integers = state.floats(), state.integers()
    mine = integers.copy()
    broadcast_in_place(comm, statistics, first)
    broadcast_in_place(comm, integers, first)
    state.set_floats(statistics)
    state.set_integers(np.where(state.random_mask(), mine, integers))


def _check_labels(model: Model, dataset: Dataset) -> None:
    """Raises UserError unless the model's losses accept all labels."""
    for labels in chain.from_iterable(samples.labels() for samples in _all_samples(dataset)):
        model.check_labels(labels)


def check_signs(dataset: Dataset) -> None:
    """Raises DataError for negative weights with a loss that is divided by the sum of the weights of each batch.

    Batches of several ranks have other sums. Close to zero, or negative, these make the mean over batches another one.
    """
    pieces = chain.from_iterable(samples.sample_weights() for samples in _all_samples(dataset))
    of_classes = dataset.class_weights.factors.values() if dataset.class_weights is not None else ()
    if any(factor < 0 for factor in of_classes) or any((array < 0).any() for piece in pieces for array in piece):
        raise DataError(
            "with the reduction mean_with_sample_weight and negative weights, the loss in the history depends on how "
            "the samples are divided into batches, and so on the number of ranks",
            where="data.class_weight" if of_classes and min(of_classes) < 0 else "data.weights",
            cure="use the reduction sum_over_batch_size, weights that are not negative, or one rank",
        )


def _all_samples(dataset: Dataset) -> list[Samples | StreamedSamples]:
    """The samples to train on, and those to validate on if they are others."""
    is_same = dataset.validation is dataset.training
    return [dataset.training] if is_same else [dataset.training, dataset.validation]


def make_training_batches(context: TrainingContext, copy_rows: CopyRows | None = None) -> AnyBatches:
    """The batches of this rank; on a master those of the first worker, of which it needs only the number.

    Args:
        copy_rows: See `Model.copy_rows`.

    Raises:
        ConfigurationError: There are more workers than shards, or than samples in a step.
    """
    configuration, section, dataset = context.configuration, context.configuration.data, context.dataset
    if copy_rows is not None and isinstance(dataset.training, Samples):
        dataset = replace(dataset, training=replace(dataset.training, copy_rows=copy_rows))
    total, n_workers = configuration.total_batch, context.n_workers
    options = BatchOptions(
        batch_size=configuration.samples_at_once(n_workers),
        n_workers=n_workers,
        worker=context.worker or 0,
        seed=configuration.seed,
        shuffle=section is None or section.shuffle,
        drop_last=section is not None and section.drop_last,
        total=None if total is None else total.total,
        speeds=(1.0,) * n_workers if total is not None and total.balance else (),
    )
    if total is None:
        return make_batches(dataset, options)
    # each rank needs at least one sample or shard of every step
    if n_workers > total.most_ranks:
        parts = "samples" if total.shards is None else "shards"
        raise ConfigurationError(
            f"a step has {total.most_ranks} {parts}, which {n_workers} ranks cannot share",
            where="batch_size",
            cure=f"use at most {total.most_ranks} ranks, or write more {parts}",
        )
    if total.shards is None:
        return make_batches(dataset, options)
    return make_sharded_batches(dataset, options, total.shards)


def check_settings(context: TrainingContext, model: Model, batches: AnyBatches) -> None:
    """Checks the settings that need the model and the batches of this rank.

    Raises:
        ConfigurationError: There is no step, a metric is missing, the optimizer would ignore the model's constraints,
            or a batch is too small.
    """
    configuration = context.configuration
    if batches.n_steps == 0:
        raise ConfigurationError(
            "the training samples do not fill one batch of every worker, and data.drop_last leaves out smaller batches",
            where="batch_size",
            cure="write a smaller batch_size, use fewer ranks, or leave out data.drop_last",
        )
    _check_metrics(configuration, model)
    if model.has_constraints:
        _check_constraints(configuration)
    if model.is_sized_later and (configuration.sync_batchnorm or configuration.shards):
        key = "sync_batchnorm" if configuration.sync_batchnorm else "batch_size.shards"
        raise ConfigurationError(
            "the model has buffers that get their sizes in the first batch, and ranks average them in every step",
            where=key,
            cure=f"call the module once in your function, before you return it, or leave {key} out",
        )
    _check_batch_sizes(context, model, batches)


def _check_metrics(configuration: TrainingConfiguration, model: Model) -> None:
    names = model.metric_names
    for where, metric in configuration.watched_metrics().items():
        if names and metric.removeprefix("val_") not in names:
            raise ConfigurationError(
                f"the training does not produce the metric {metric}",
                where=where,
                cure=f"it produces: {', '.join(names)}, and the same with val_",
            )


def _check_constraints(configuration: TrainingConfiguration) -> None:
    if not all(isinstance(part.optimizer, NotFused) for part in configuration.parts):
        raise ConfigurationError(
            "the model has constraints on its weights, which only an optimizer of Keras applies",
            where="optimizer",
            cure="write `optimizer: {name: keras.optimizers:CLASS, learning_rate: …}`, or leave the constraints out",
        )


def _check_batch_sizes(context: TrainingContext, model: Model, batches: AnyBatches) -> None:
    configuration, least_samples = context.configuration, batches.least_samples
    if configuration.is_dealt:
        size = configuration.samples_at_once(1)
        least_samples = batches.n_samples % size or size
    if least_samples >= model.least_samples:
        return
    total = configuration.total_batch
    if total is not None and total.balance and total.shards is None and context.n_workers > 1:
        raise ConfigurationError(
            f"the share of a slow rank may become {least_samples} sample, the model needs {model.least_samples} in "
            "training",
            where="batch_size.balance",
            cure="divide each step into shards, batch_size: {total: …, shards: …, balance: true}, or leave balance out",
        )
    raise ConfigurationError(
        f"the smallest batch has {least_samples} sample, the model needs {model.least_samples} in training",
        where="batch_size",
        cure="write data.drop_last: true, or another batch_size",
    )


def make_validator(context: TrainingContext, model: Model) -> Validator:
    """The validator of `model`. A validation in a thread has its own model. Collective."""
    needs_copy = context.configuration.validates_in_thread and context.worker is not None
    with agreed_errors(context.comm):
        copy = _second_model(context, model) if needs_copy else None
    return Validator(context, model, copy)


def _example(dataset: Dataset) -> Example:
    """The first samples."""
    few = dataset.training.take(slice(0, N_IN_EXAMPLE))
    batch = next(completed(few, dataset, 0, 0))
    names = few.format
    return Example(batch.x, batch.y, batch.weights, names.x_names, names.y_names, names.weight_names)


def _second_model(context: TrainingContext, model: Model) -> Model:
    """Another model like `model`, with the same weights."""
    example = _example(context.dataset)
    made = _one_model(context, example, context.configuration.composition)
    made.weights[:] = model.weights
    made.state.set_floats(model.state.floats())
    made.state.set_integers(model.state.integers())
    Mark.of(model, example, context.configuration.precision).check(made, example)
    return made


def _measured(context: TrainingContext, composition: Composition, example: Example) -> Composition:
    """See `Composition.measured`."""
    configuration = context.configuration
    earlier = saved_layers_of_stages(configuration.checkpoint)
    n_samples = -(-configuration.samples_at_once(context.n_workers) // configuration.n_micro_batches)
    return composition.measured(_model_settings(context), example, earlier, n_samples)


def _model_settings(context: TrainingContext) -> ModelSettings:
    configuration = context.configuration
    return ModelSettings(
        configuration,
        stream=context.rank,
        n_workers=context.n_workers * configuration.n_micro_batches,
        has_optimizer="optimizer" in configuration.model_fields_set,
        is_validated=context.dataset.n_validation > 0,
        has_checkpoint=configuration.checkpoint is not None and not configuration.checkpoint.provisional,
        chain=context.chain,
    )


def _one_model(context: TrainingContext, example: Example, composition: Composition | None) -> Model:
    configuration = context.configuration
    if configuration.validates_in_thread:
        allow_a_second_graph()
    made = make_model(_model_settings(context), example, composition)
    if configuration.xla is True and not made.can_use_xla:
        raise ConfigurationError(
            "only the step of a single Keras model can be compiled by XLA", where="xla", cure="leave it out"
        )
    return made


def steps_stay_on_device(configuration: TrainingConfiguration) -> bool:
    """Whether algorithm and optimizer can change the weights on a GPU, so that no step copies them to the host.

    The other algorithms exchange weights over MPI from the memory of the host, and compress or sum gradients there.
    With `balance`, a step waits for its gradient: the host would measure only how long it takes to launch kernels.
    """
    algorithm, parts, total = configuration.algorithm, configuration.parts, configuration.total_batch
    is_balanced = total is not None and total.balance
    is_plain = isinstance(algorithm, AllReduce) and algorithm.compression == "none" and algorithm.accumulate == 1
    is_single = len(parts) == 1 and not isinstance(parts[0].optimizer, NotFused)
    return is_plain and is_single and configuration.shards is None and not is_balanced


def make_training_optimizer(
    context: TrainingContext,
    model: Model,
    options: AnyOptimizer | None,
    updates_per_epoch: float,
    rate: LearningRate,
    device: Any = None,
) -> Optimizer:
    """An optimizer with its learning rate schedule; for a model of several parts one for each.

    Args:
        options: A section of the configuration; None: that of each part, for a single model ``optimizer:``.
        updates_per_epoch: Number of updates by this optimizer.
        device: Where the weights are that it updates; see `Model.keep_on_device`.

    With `mixed_float16`, it also chooses the scale of the loss of `model`.

    Raises:
        ConfigurationError: The model's framework has no such optimizer.
    """

    def make(index: int, part: FlatLayout, wanted: AnyOptimizer, updates: float) -> Optimizer:
        is_settable = options is None
        if not isinstance(wanted, NotFused):
            steps = rate.per_step(wanted.learning_rate, wanted.schedule, updates, is_settable=is_settable)
            return make_optimizer(wanted, part, steps, device)
        # of the framework: it acts on the variables of the model, and has been created with a rate of its own
        rule = model.optimizer(wanted.component, index)
        rate.take_base_from(rule, wanted.schedule)
        algorithm = context.configuration.algorithm
        if rule.has_final_weights and not isinstance(algorithm, AllReduce):
            raise ConfigurationError(
                "it replaces the weights at the end of the training, and ranks have different weights with "
                f"{algorithm.name}",
                where=f"optimizer: {wanted.name}",
                cure="write algorithm: allreduce, or leave use_ema out",
            )
        steps = rate.per_step(rule.learning_rate, wanted.schedule, updates, is_settable=is_settable)
        decay = wanted.weight_decay if isinstance(wanted, FrameworkOptimizer) else 0.0
        return RuleOptimizer(wanted, rule, steps, decay)

    parts = context.configuration.parts
    if len(parts) == 1:
        made = make(0, model.layout, options or parts[0].optimizer, updates_per_epoch)
        if context.configuration.precision != "mixed_float16":
            return made
        scaling = LossScaling(made)
        model.scale_loss(scaling.scale)
        return scaling
    optimizers = [
        make(index, layout, options or part.optimizer, updates_per_epoch * part.share)
        for index, (part, (_, layout)) in enumerate(zip(parts, model.layout.by_model(), strict=True))
    ]
    return SeparateOptimizers(model.layout, optimizers)


def open_timeline(context: TrainingContext) -> Timeline:
    """This rank's timeline. Collective."""
    comm, folder = context.comm, context.configuration.trace
    if folder is None:
        return Timeline()
    with agreed_errors(comm):
        if comm.rank == 0:
            make_folder(folder, "trace")
            clear_traces(folder)
    role = "master" if context.worker is None else "worker"
    with agreed_errors(comm):
        if not folder.is_dir():  # on a host with another file system
            make_folder(folder, "trace")
        return RecordedTimeline(folder, comm.rank, host_name(), role)
