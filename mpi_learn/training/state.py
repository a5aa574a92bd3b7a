"""How far a training has come, and its way into a checkpoint and back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm
from mpi_learn.errors import ConfigurationError
from mpi_learn.models.model import Model
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.training.checkpoint_file import Arrays, Checkpoint, load_own
from mpi_learn.training.configuration import TrainingConfiguration
from mpi_learn.training.history import History
from mpi_learn.training.stopping import Stopping

MAY_DIFFER = ("epochs", "checkpoint", "early_stopping", "target", "validation", "trace", "monitor", "xla", "callbacks")
"""Keys that may be changed between an interruption and going on."""


OWN = 21
"""The tag of what one rank alone has."""


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
        ended_by: Why there are no more, where an earlier run of this very training has come to its end.
    """

    history: History
    stopping: Stopping
    epoch: int = 0
    resumed_at: int = 0
    ended_by: str | None = None


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
        "is_xla": model.is_xla,
    }
    return Checkpoint(words, arrays)


def restored(
    checkpoint: Checkpoint,
    state: State,
    configuration: TrainingConfiguration,
    model: Model,
    algorithm: Algorithm,
    comm: Communicator,
    own: Arrays | None,
) -> None:
    """Fills state, model and algorithm with what the checkpoint holds.

    Args:
        own: What it holds of this rank alone, if the checkpoint is of this very training, which must agree with the
            configuration then; None: only the model must be of the same shape.

    Raises:
        ConfigurationError: It does not.
    """
    is_own = own is not None
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
    if own:
        for name, array in algorithm.own_arrays().items():
            array[...] = own[name]
    state.epoch = state.resumed_at = int(checkpoint.words["epoch"])
    state.history.columns = dict(checkpoint.words["history"])
    if is_own:
        if (
            model.has_xla and configuration.xla == "auto"
        ):  # what timing would choose now may be something else, and its last digits others
            model.compile_step(bool(checkpoint.words.get("is_xla")))
        state.stopping.restore(checkpoint.words["stopping"])
        state.stopping.best_weights, state.stopping.best_moving = arrays.get("best_weights"), arrays.get("best_moving")
        state.ended_by = state.stopping.reason({name: column[-1] for name, column in state.history.columns.items()})


@contextmanager
def collected(comm: Communicator, own: Arrays) -> Iterator[Iterator[tuple[int, Arrays]]]:
    """For rank 0 every rank and its `own`, one after the other; for the others nothing. Collective.

    Whatever rank 0 does not take is taken at the end, so that no rank waits to get rid of its part.
    """
    if comm.rank != 0:
        comm.send(own, 0, OWN)
        yield iter(())
        return
    parts = ((rank, own if rank == 0 else comm.recv(source=rank, tag=OWN)) for rank in range(comm.size))
    try:
        yield parts
    finally:
        for _ in parts:
            pass


def dealt_out(comm: Communicator, folder: Path, n_ranks: int) -> Arrays:
    """What the checkpoint in `folder`, of `n_ranks` ranks, holds of this rank alone. Rank 0 reads it. Collective.

    With another number of ranks there is nothing of the kind, and each begins its part anew.
    """
    if comm.rank != 0:
        return comm.recv(source=0, tag=OWN)
    waiting = deque(range(1, comm.size))
    try:
        mine = load_own(folder, 0) if n_ranks == comm.size else {}
        while waiting:
            own = load_own(folder, waiting[0]) if n_ranks == comm.size else {}
            comm.send(own, waiting.popleft(), OWN)
    finally:
        for rank in waiting:
            comm.send({}, rank, OWN)
    return mine


def _check_same(then: dict, now: dict, where: str) -> None:
    for key in now:
        if key not in MAY_DIFFER and then.get(key) != now[key]:
            raise ConfigurationError(
                f"it is of a training with another {key}: {then.get(key)!r}, now {now[key]!r}",
                where=where,
                cure="give another checkpoint.path, or `resume: false` to start anew",
            )
