"""Trains a model on all ranks, or checks a training in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from mpi_learn.algorithms.configuration import AllReduce
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.make_batches import AnyBatches, Shards
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.environment import MIB, choose_gpu
from mpi_learn.errors import ConfigurationError, ModelError, SavingError
from mpi_learn.flat_layout import WEIGHT
from mpi_learn.models.building.frameworks import NAMES
from mpi_learn.models.model import COMPARES_SAMPLES, UNSAVED_RANDOM, Model, compares_samples
from mpi_learn.models.settings import Example
from mpi_learn.mpi.communicators import Communicator, agreed_errors, private, result_of_rank
from mpi_learn.training.checkpoints.checkpoint_file import KeptEpoch
from mpi_learn.training.configuration import TrainingConfiguration, read_configuration
from mpi_learn.training.context import TrainingContext, open_context
from mpi_learn.training.loop import OnBegin, OnEpoch, Progress, Training
from mpi_learn.training.ranks.same_model import same_code
from mpi_learn.training.result import OnUnsavable, Result, check_saving, why_unsavable
from mpi_learn.training.setup import build_model, make_training_batches
from mpi_learn.training.timing.timed_choices import choose_compiler, with_batch_size
from mpi_learn.training.timing.tracing import Timeline, resident_bytes


def train(
    configuration: TrainingConfiguration | dict[str, Any] | Path | str,
    comm: Communicator,
    *,
    data: Dataset | None = None,
    on_begin: OnBegin | None = None,
    on_epoch: OnEpoch | None = None,
    progress: Progress | None = None,
    on_note: Callable[[str], None] | None = None,
    on_unsavable: OnUnsavable | None = None,
    output: Path | None = None,
    kept: KeptEpoch | None = None,
    timeline: Timeline | None = None,
) -> Result:
    """Trains the model of `configuration` on all ranks of `comm`. Collective over `comm`.

    All messages travel over a duplicate of `comm`: they do not mix with messages of the caller. Rank 0 reads the Python
    files of the user's functions once, and all ranks run these: edits during the training apply to the next one.

    Args:
        configuration: A validated one, a file, or its content as a dict, whose paths are relative to the current
            folder.
        comm: All its ranks call this function with the same configuration.
        data: Samples in memory, used instead of ``configuration.data``; the same on all ranks.
        on_begin: Called on every rank before the first epoch, when data, model and checkpoint are loaded.
        on_epoch: Called on every rank after every epoch with the number of the epoch, from 0, and its metrics, the same
            on all ranks. It returns whether to stop, the same on all ranks.
        progress: Called on rank 0 after every epoch.
        on_note: Called on rank 0 before the first step with each sentence that a user should know, for example that the
            result depends on the number of ranks (see `Model.notes`), or that files have changed since the checkpoint
            was written. Given on all ranks or on none.
        on_unsavable: Called on rank 0 before the first step if the model cannot be saved as a whole, with the reason
            and the lines of Python that load its weights. None: this is not tested. Given on all ranks or on none.
        output: The folder in which the model will be saved, and in which `on_unsavable` is tested.
        kept: Where each rank keeps the last finished epoch in memory. If a rank has one of an earlier call with the
            same configuration, on any communicator, the training continues from the newest. Given on all ranks or on
            none.
        timeline: Receives the spans of this rank, in place of the files of ``configuration.trace``.

    Returns:
        The result, the same on every rank, with the trained model.

    Raises:
        UserError: Invalid configuration, data or model; raised before the first step, the same on every rank.
        SavingError: The model or a checkpoint cannot be written; the same on every rank.
        TrainingError: A rank failed; the same on every rank, with the traceback of that rank.
    """
    choose_gpu()
    with private(comm) as own:
        with agreed_errors(own):
            if not isinstance(configuration, TrainingConfiguration):
                configuration = read_configuration(configuration)
            if data is not None and not isinstance(data, Dataset):
                raise ConfigurationError(
                    f"expected a mpi_learn.data.samples.batches.Dataset, found {type(data).__name__}",
                    where="data",
                    cure="write arrays to an HDF5 file, and name it in the configuration's section `data`",
                )
        with same_code(configuration, own), open_context(configuration, own, data) as opened:
            context, choice = with_batch_size(opened)
            with closing(build_model(context)) as model:
                choose_compiler(context, model)
                with Training(context, model, kept, timeline) as training:
                    if on_note is not None:
                        notes = result_of_rank(own, lambda: tuple(model.notes), context.first_worker)
                        for note in filter(None, (choice, *notes)) if own.rank == 0 else ():
                            on_note(note)
                    if on_unsavable is not None:
                        check_saving(own, model, context.first_worker, on_unsavable, output)
                    training.run(on_epoch, progress, on_begin, on_note)
                return training.result()


OF_PROBABILITIES = (
    "binary_crossentropy",
    "categorical_crossentropy",
    "sparse_categorical_crossentropy",
    "binary_focal_crossentropy",
    "categorical_focal_crossentropy",
)
"""Losses of Keras whose gradient vanishes for outputs outside of [0, 1]."""

NO_PROBABILITIES = (
    "outputs of the first batch are outside of [0, 1]: end the model with a sigmoid or softmax activation, or write "
    "a loss of your own for logits"
)


def check(configuration: TrainingConfiguration, comm: Communicator, *, data: Dataset | None = None) -> str:
    """Prepares data, model and optimizer as `train` does, and runs one batch forward and backward.

    Reads no checkpoint, writes no timeline, and trains nothing.

    Args:
        configuration: The training; its algorithm is ignored, because there is one rank.
        comm: A communicator of one rank.
        data: Used instead of ``configuration.data``.

    Returns:
        Lines that describe inputs, labels, outputs, parameters, losses and memory.

    Raises:
        UserError: Invalid configuration, data or model, or a loss or gradient that is not finite.
    """
    alone = {"algorithm": AllReduce(), "checkpoint": None, "trace": None}  # one rank holds all stages of a pipeline
    configuration = configuration.model_copy(update=alone)
    with open_context(configuration, comm, data) as opened:
        context, choice = with_batch_size(opened)
        with closing(build_model(context)) as model:
            with Training(context, model):
                pass
            if configuration.precision == "mixed_float16":
                model.scale_loss(lambda: 1.0)  # no step halves the first scale, with which many gradients are infinite
            lines = [*_lines(context, model), *([("note", choice)] if choice else [])]
    return "\n".join(f"{name:<12} {text}" for name, text in lines)


def rehearse(configuration: TrainingConfiguration, comm: Communicator, *, data: Dataset) -> tuple[str, ...]:
    """Prepares data, model and algorithm as `train` does, and so raises the errors that it would raise there.

    It reads no checkpoint, writes no timeline and makes no step. Collective over `comm`.

    Returns:
        The sentences of `Model.notes`.

    Raises:
        UserError: Invalid configuration, data or model; the same on every rank.
    """
    configuration = configuration.model_copy(update={"trace": None})
    with (
        private(comm) as own,
        open_context(configuration, own, data) as context,
        closing(build_model(context)) as model,
        Training(context, model),
    ):
        return result_of_rank(own, lambda: tuple(model.notes), context.first_worker)


def _lines(context: TrainingContext, model: Model) -> list[tuple[str, str]]:
    configuration, dataset, added = context.configuration, context.dataset, context.dataset.added_input
    batches = make_training_batches(context)
    with closing(batches):
        batch = _first_batch(batches)
    names, parts = dataset.training.take(slice(0, 1)).format, [part for _, part in model.layout.by_model()]
    x_names = (*names.x_names, added.name) if names.x_names and added is not None else names.x_names
    n_parameters, n_arrays = sum(part.size for part in parts), sum(len(part.shapes) for part in parts)
    lines = [
        ("model", f"{configuration.model}, {NAMES[model.framework]}"),
        ("parameters", f"{n_parameters:,} in {n_arrays} trainable arrays"),
        ("inputs", _described(batch.x, x_names)),
        ("labels", _described(batch.y, names.y_names) or "none"),
    ]
    if batch.weights:
        lines.append(("weights", f"per sample, {_ranges(batch.weights, names.weight_names or ('',))} in this batch"))
    example = Example(batch.x, batch.y, batch.weights)
    notes = [COMPARES_SAMPLES] if compares_samples(model, example, configuration.precision) else []
    if model.has_unsaved_random:
        notes.append(UNSAVED_RANDOM)
    if model.takes_samples:
        with suppress(NotImplementedError, ModelError):  # a Keras model without `call`
            outputs = model.predict(batch.x)
            lines.append(("outputs", _described(outputs)))
            if (
                model.framework == "keras"
                and configuration.loss in OF_PROBABILITIES
                and not _are_probabilities(outputs)
            ):
                notes.append(f"{configuration.loss} expects probabilities, but {NO_PROBABILITIES}")
    metrics, norm, seconds = _one_step(model, batch)
    total = configuration.total_batch
    n_samples = configuration.samples_at_once(1) if total is None else total.total
    training = f"{dataset.n_training:,} samples, {batches.n_steps:,} steps of {n_samples} per epoch on one rank"
    validation = f"{dataset.n_validation:,} samples" if dataset.n_validation else "none"
    place = " on a GPU" if model.uses_gpu else ""
    return [
        *lines,
        ("training", training),
        ("validation", validation),
        ("one batch", "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())),
        ("gradient", f"norm {norm:.4g}, {1e3 * seconds:.1f} ms forward and backward{place}"),
        ("saving", _saving(model)),
        ("memory", f"{resident_bytes() / MIB:,.0f} MiB of this process"),
        *(("note", note) for note in dict.fromkeys([*notes, *model.notes])),
    ]


def _saving(model: Model) -> str:
    """How much of the model can be saved."""
    try:
        problem = why_unsavable(model)
    except SavingError as error:  # the training may have another folder
        return f"not tested: {str(error).splitlines()[0]}"
    return "as a whole" if problem is None else f"the weights alone ({problem[0]})"


def _ranges(arrays: Sequence[np.ndarray], names: Sequence[str]) -> str:
    ranges = [f"{array.min():.4g} to {array.max():.4g}" for array in arrays]
    return ", ".join(f"{name} {text}".strip() for name, text in zip(names, ranges, strict=True))


def _are_probabilities(outputs: Sequence[np.ndarray]) -> bool:
    return all(bool(np.all((array >= 0) & (array <= 1))) for array in outputs)


def _first_batch(batches: AnyBatches) -> Samples:
    """The first batch of the first epoch; with shards, that of the first one."""
    first: Iterator[Samples | Shards] = batches.epoch(0)
    batch = next(first)
    return batch if isinstance(batch, Samples) else batch.batches[0]


def _one_step(model: Model, batch: Samples) -> tuple[dict[str, float], float, float]:
    """Metrics, norm of the gradient, and seconds of a second step with the same batch.

    Raises:
        ModelError: The loss or the gradient is not finite.
    """
    model.gradient(batch.x, batch.y, batch.weights)  # the first step also allocates memory and chooses kernels
    begun = time.perf_counter()
    step = model.gradient(batch.x, batch.y, batch.weights)
    seconds = time.perf_counter() - begun
    metrics = model.metrics(step[model.layout.size :].astype(np.float64))
    weight = float(step[model.layout.size + WEIGHT])
    gradient = np.concatenate([step[place] for place, _ in model.layout.by_model()]) / (weight or 1.0)
    n_bad = int(np.count_nonzero(~np.isfinite(gradient)))
    if n_bad or not np.isfinite(metrics["loss"]):
        raise ModelError(
            f"the loss of the first batch is {metrics['loss']:.4g}, {n_bad:,} elements of its gradient are not finite",
            where="model",
            cure="look for NaN in the data, log or division in the loss, and inputs that are not scaled",
        )
    return metrics, float(np.linalg.norm(gradient.astype(np.float64))), seconds


def _described(arrays: Sequence[np.ndarray], names: Sequence[str] = ()) -> str:
    shown = [f"{array.shape[1:]} {array.dtype}" for array in arrays]
    return ", ".join(f"{name} {text}" for name, text in zip(names, shown, strict=True)) if names else ", ".join(shown)
