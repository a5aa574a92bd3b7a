"""Decides by timing a few steps whether XLA compiles the step of a model.

No fixed choice is right: on one core of a CPU, a step with XLA took 0.56 times as long for a GRU and 0.84 times for a
small transformer, but 1.7 times for a CNN and 8 times for a small dense network (TensorFlow 2.21).
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from mpi_learn.data.samples.batches import completed
from mpi_learn.data.samples.streamed import Samples
from mpi_learn.models.model import Model
from mpi_learn.mpi.communicators import agreed_errors, sum_in_place
from mpi_learn.training.context import TrainingContext

WORTH_S = 60.0
"""Shorter trainings are not timed: compiling and timing would take too large a part of them."""
WORTH_STEPS = 600
"""Trainings with fewer steps are not timed: the six steps of a timing would be a hundredth of them."""
GAIN = 0.96
"""XLA is chosen if it takes less than this fraction of the time; smaller gains are within the noise."""
N_TIMED = 5
TIMING_S = 2.0
"""Steps without and with XLA are timed in turn for this many seconds, each at least once."""


def choose_compiler(context: TrainingContext, model: Model) -> None:
    """Lets XLA compile the model's step if the configuration says so, or with ``auto`` if it is faster.

    All workers make the same choice. XLA is faster if it takes less than the fraction `GAIN` of the time, summed over
    all workers. Weights and state do not change. Collective.
    """
    configuration, comm, dataset = context.configuration, context.comm, context.dataset
    is_worker = context.worker is not None and model.can_use_xla
    if configuration.xla != "auto":
        if configuration.xla and is_worker:
            model.compile_step(by_xla=True)
        return
    n_at_once = configuration.samples_at_once(context.n_workers)
    steps = dataset.n_training * configuration.epochs / (n_at_once * context.n_workers)  # gradients of each worker
    if steps < WORTH_STEPS:
        return
    seconds = np.zeros(2)
    with agreed_errors(comm):
        samples = dataset.training.take(slice(0, n_at_once))
        batch = next(completed(samples, dataset, 0, 0))
        seconds[0] = step_seconds(model, batch) if is_worker else 0.0
    sum_in_place(comm, seconds)
    if seconds[0] / context.n_workers * steps < WORTH_S:
        return
    with agreed_errors(comm):
        seconds[:] = both_seconds(model, batch) if is_worker else 0.0
    sum_in_place(comm, seconds)
    if is_worker:
        model.compile_step(by_xla=bool(seconds[1] < GAIN * seconds[0]))


def both_seconds(model: Model, batch: Samples) -> tuple[float, float]:
    """Seconds of a step without and with XLA; infinite if XLA cannot compile the model.

    The two are timed in turn, so that other load on the machine affects both.
    """
    turns: dict[bool, list[float]] = {False: [step_seconds(model, batch)], True: []}
    started = time.perf_counter()
    try:
        while not turns[True] or time.perf_counter() - started < TIMING_S:
            for by_xla in (True, False):
                model.compile_step(by_xla=by_xla)
                turns[by_xla].append(step_seconds(model, batch))
    except Exception:  # noqa: BLE001 - XLA does not support every model
        return median(turns[False]), float("inf")
    finally:
        model.compile_step(by_xla=False)
    return median(turns[False]), median(turns[True])


def step_seconds(model: Model, batch: Samples) -> float:
    """Seconds of the fastest of a few steps after the first one. The model's state is restored."""
    floats, integers, times = model.state.floats(), model.state.integers(), []
    try:
        for _ in range(N_TIMED + 1):
            started = time.perf_counter()
            model.gradient(batch.x, batch.y, batch.weights)
            times.append(time.perf_counter() - started)
    finally:
        model.state.set_floats(floats)
        model.state.set_integers(integers)
    return min(times[1:])
