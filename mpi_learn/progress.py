"""How far a training has come, and its way into a checkpoint and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm
from mpi_learn.checkpoint import Checkpoint
from mpi_learn.comm import Communicator
from mpi_learn.configuration import TrainingConfiguration
from mpi_learn.errors import ConfigurationError
from mpi_learn.history import History
from mpi_learn.models.model import Model
from mpi_learn.stopping import Stopping

MAY_DIFFER = ("epochs", "checkpoint", "early_stopping", "target", "validation", "trace", "monitor")
"""Keys that may be changed between an interruption and going on."""


@dataclass(frozen=True)
class EpochReport:
    """What there is to say of an epoch; `epoch` counts from 0."""

    epoch: int
    epochs: int
    metrics: dict[str, float]
    seconds: float
    samples_per_second: float


@dataclass(frozen=True)
class Epoch:
    """An epoch whose steps are made, and whose validation may still be under way.

    Attributes:
        number: From 0.
        metrics: Of the training, over all ranks.
        begun: On the clock `time.perf_counter`.
        spent: Seconds of its steps.
        finish: Ends its validation and gives the metrics of that.
        weights, moving: The model's, as they were after it.
    """

    number: int
    metrics: dict[str, float]
    begun: float
    spent: float
    finish: Callable[[], dict[str, float]]
    weights: np.ndarray
    moving: np.ndarray


@dataclass
class State:
    """How far a training has come.

    Attributes:
        history: Of all epochs so far.
        stopping: With the best epoch's weights.
        epoch: The number of epochs behind us.
        resumed_at: Of these, the number that an earlier run trained.
    """

    history: History
    stopping: Stopping
    epoch: int = 0
    resumed_at: int = 0


def snapshot(
    state: State, configuration: TrainingConfiguration, model: Model, algorithm: Algorithm, counters: np.ndarray
) -> Checkpoint:
    """The training as it is now.

    Args:
        counters: (ranks, n) int64, every rank's `Model.counters`.
    """
    arrays = {"weights": model.weights, "moving": model.moving(), "counters": counters}
    arrays |= {f"algorithm.{name}": array for name, array in algorithm.arrays().items()}
    if state.stopping.best_weights is not None:
        arrays |= {"best_weights": state.stopping.best_weights, "best_moving": state.stopping.best_moving}
    words = {
        "epoch": state.epoch,
        "history": state.history.columns,
        "stopping": state.stopping.state(),
        "shapes": model.layout.shapes,
        "training": configuration.model_dump(mode="json"),
    }
    return Checkpoint(words, arrays)


def restored(
    checkpoint: Checkpoint,
    state: State,
    configuration: TrainingConfiguration,
    model: Model,
    algorithm: Algorithm,
    comm: Communicator,
    is_own: bool,
) -> None:
    """Fills state, model and algorithm with what the checkpoint holds.

    Args:
        is_own: The checkpoint is of this very training, so it must agree with the configuration; else only the model
            must be of the same shape.

    Raises:
        ConfigurationError: It does not.
    """
    where = f"checkpoint {configuration.checkpoint.path if is_own else configuration.checkpoint.start_from}"
    if is_own:
        _check_same(checkpoint.words["training"], configuration.model_dump(mode="json"), where)
    shapes = tuple(tuple(shape) for shape in checkpoint.words["shapes"])
    if shapes != model.layout.shapes:
        raise ConfigurationError("it is of a model with other weights", where=where, cure="give another path")
    arrays = checkpoint.arrays
    model.weights[:] = arrays["weights"]
    model.set_moving(arrays["moving"])
    if len(arrays["counters"]) == comm.size:  # with another number of ranks each keeps its fresh random numbers
        model.set_counters(arrays["counters"][comm.rank])
    for name, array in algorithm.arrays().items():
        if f"algorithm.{name}" in arrays:
            array[...] = arrays[f"algorithm.{name}"]
    state.epoch = state.resumed_at = int(checkpoint.words["epoch"])
    state.history.columns = dict(checkpoint.words["history"])
    if is_own:
        state.stopping.restore(checkpoint.words["stopping"])
        state.stopping.best_weights, state.stopping.best_moving = arrays.get("best_weights"), arrays.get("best_moving")


def _check_same(then: dict, now: dict, where: str) -> None:
    for key in now:
        if key not in MAY_DIFFER and then.get(key) != now[key]:
            raise ConfigurationError(
                f"it is of a training with another {key}: {then.get(key)!r}, now {now[key]!r}",
                where=where,
                cure="give another checkpoint.path, or `resume: false` to start anew",
            )
