"""Chooses, by timing a few steps, whether XLA compiles a model's step: it wins on some models and loses on others."""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from mpi_learn.algorithms.rank_layout import layout_of
from mpi_learn.data import Batch, Dataset
from mpi_learn.data.samples.batches import as_batch, completed
from mpi_learn.models.model import Model
from mpi_learn.mpi.collectives import sum_in_place
from mpi_learn.mpi.communicators import Communicator, agreed_errors
from mpi_learn.training.configuration import TrainingConfiguration

WORTH_S = 60.0
"""A training shorter than this is not worth the seconds that compiling a step by XLA and trying it out takes."""
WORTH_STEPS = 600
"""Nor is one of fewer steps: timing six of them would be a hundredth of it."""
GAIN = 0.96
"""XLA must take less than this part of the time: less is within what timing tells."""
N_TIMED = 5
TIMING_S = 2.0
"""For so long steps without and with XLA take turns; each at least once."""


def choose_compiler(configuration: TrainingConfiguration, comm: Communicator, dataset: Dataset, model: Model) -> None:
    """Lets XLA compile the model's step if the configuration says so, or by ``auto`` if it is faster. Collective.

    All workers take the same: that which takes all of them together less time. Weights and state stay as they are.
    """
    workers = layout_of(configuration.algorithm, comm.size).workers
    is_worker = comm.rank in workers and model.has_xla
    if configuration.xla != "auto":
        if configuration.xla and is_worker:
            model.compile_step(by_xla=True)
        return
    steps = dataset.n_training * configuration.epochs / (configuration.batch_size * len(workers))
    if steps < WORTH_STEPS:
        return
    seconds = np.zeros(2)
    with agreed_errors(comm):
        samples = dataset.training.take(slice(0, min(configuration.batch_size, len(dataset.training))))
        batch = next(completed(as_batch(samples), dataset, 0, 0))
        seconds[0] = step_seconds(model, batch) if is_worker else 0.0
    sum_in_place(comm, seconds)
    if seconds[0] / len(workers) * steps < WORTH_S:
        return
    with agreed_errors(comm):
        seconds[:] = both_seconds(model, batch) if is_worker else 0.0
    sum_in_place(comm, seconds)
    if is_worker:
        model.compile_step(by_xla=bool(seconds[1] < GAIN * seconds[0]))


def both_seconds(model: Model, batch: Batch) -> tuple[float, float]:
    """Of a step without XLA, and with it: infinite where XLA cannot compile the model.

    The two take turns for a while, so that what else happens on the machine meets both.
    """
    turns: dict[bool, list[float]] = {False: [step_seconds(model, batch)], True: []}
    begun = time.perf_counter()
    try:
        while not turns[True] or time.perf_counter() - begun < TIMING_S:
            for by_xla in (True, False):
                model.compile_step(by_xla=by_xla)
                turns[by_xla].append(step_seconds(model, batch))
    except Exception:  # noqa: BLE001 - whatever XLA does not know: the model goes on without
        return median(turns[False]), float("inf")
    finally:
        model.compile_step(by_xla=False)
    return median(turns[False]), median(turns[True])


def step_seconds(model: Model, batch: Batch) -> float:
    """Of the fastest of a few steps after the first; the model's state is put back."""
    moving, counters, times = model.moving(), model.counters(), []
    for _ in range(N_TIMED + 1):
        begun = time.perf_counter()
        model.gradient(batch.x, batch.y, batch.weights)
        times.append(time.perf_counter() - begun)
    model.set_moving(moving)
    model.set_counters(counters)
    return min(times[1:])
