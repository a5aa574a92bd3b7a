"""Choices by timing a few steps: the samples of a worker per step, and whether XLA compiles the step.

Numbers of samples are powers of two. Each is timed in the training loop, with the exchange between ranks and the
optimizer, on a model that is built for this alone. The training itself therefore begins as one whose configuration has
the number.

No fixed choice of XLA is right: on one core of a CPU, a step with XLA took 0.56 times as long for a GRU and 0.84 times
for a small transformer, but 1.7 times for a CNN and 8 times for a small dense network (TensorFlow 2.21).
"""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice, pairwise
from statistics import median
from typing import Any

import numpy as np

from mpi_learn.data.loading import host_memory_bytes
from mpi_learn.data.samples.batches import Dataset, completed
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.environment import n_ranks_on_host, return_freed_memory
from mpi_learn.errors import MPILearnError, OutOfMemory
from mpi_learn.models.model import Model
from mpi_learn.mpi.communicators import Communicator, agreed_errors, private, result_of_rank, sum_in_place
from mpi_learn.mpi.host_fault import MEMORY
from mpi_learn.mpi.library import MPI
from mpi_learn.training.checkpoints.checkpointing import batch_size_of_checkpoint
from mpi_learn.training.configuration import TrainingConfiguration
from mpi_learn.training.context import TrainingContext, open_context
from mpi_learn.training.loop import Training
from mpi_learn.training.sections import AUTO
from mpi_learn.training.setup import build_model
from mpi_learn.training.timing.tracing import Timeline

WORTH_S = 60.0
"""Shorter trainings are not timed: compiling and timing would take too large a part of them."""
WORTH_STEPS = 600
"""Trainings with fewer steps are not timed: the six steps of a timing would be a hundredth of them."""
XLA_GAIN = 0.96
"""XLA is chosen if it takes less than this fraction of the time; smaller gains are within the noise."""
N_TIMED = 5
TIMING_S = 2.0
"""Steps without and with XLA are timed in turn for this many seconds, each at least once."""


def choose_compiler(context: TrainingContext, model: Model) -> None:
    """Lets XLA compile the model's step if the configuration says so, or with ``auto`` if it is faster.

    All workers make the same choice. XLA is faster if it takes less than the fraction `XLA_GAIN` of the time, summed
    over all workers. Weights and state do not change. Collective.
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
        model.compile_step(by_xla=bool(seconds[1] < XLA_GAIN * seconds[0]))


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


SMALLEST = 32
"""The first size that is timed."""
LEAST_STEPS = 20
"""An epoch has at least this number of steps: with fewer, optimizers make too few updates."""
GAIN = 1.05
"""A size is worth its memory if it trains this factor more samples per second than each smaller one."""
N_WITHOUT_GAIN = 2
"""After this number of sizes in a row without a gain, no larger one is timed: a single one may be a hiccup."""
N_CHUNKS, CHUNK_S = 3, 0.1
"""The time of a step is the median over chunks of steps, which take about this many seconds each."""
LIMIT_S = 15.0
"""No size is timed that would probably end later than this after the start."""
KIB = 1024


def choose_batch_size(configuration: TrainingConfiguration, comm: Communicator, *, data: Dataset) -> tuple[int, str]:
    """The number for ``batch_size: auto``, and why, without a training or its checkpoint. Collective over `comm`.

    Raises:
        UserError, TrainingError: As for `train`.
    """
    configuration = configuration.model_copy(update={"checkpoint": None, "trace": None})
    with private(comm) as own, open_context(configuration, own, data) as context:
        return _measured(context)


def with_batch_size(context: TrainingContext) -> tuple[TrainingContext, str]:
    """The context with a number in place of ``batch_size: auto``, and a sentence about it. Collective.

    The number is that of the checkpoint from which the training begins, or else measured. The sentence is empty, and
    the context the same, if the configuration has a number.
    """
    configuration = context.configuration
    if configuration.batch_size != AUTO:
        return context, ""
    section = configuration.checkpoint
    size = result_of_rank(context.comm, lambda: batch_size_of_checkpoint(section) if section is not None else None)
    why = f"{size} samples per worker and step, as in the checkpoint"
    if size is None:
        size, why = _measured(context)
    chosen = configuration.model_copy(update={"batch_size": size})
    return replace(context, configuration=chosen), f"batch_size: auto: {why}"


def best_size(rates: dict[int, float]) -> int:
    """The largest size that is faster than each smaller one by the factor `GAIN`.

    Args:
        rates: Samples per step -> samples per second.
    """
    return max(size for size in rates if all(rates[size] > GAIN * rates[less] for less in rates if less < size))


def _measured(context: TrainingContext) -> tuple[int, str]:
    """The chosen size, and a sentence with the reason why it is not larger. Collective."""
    most = max(1, context.dataset.n_training // (context.n_workers * LEAST_STEPS))
    most = 2 ** (most.bit_length() - 1)
    why = f"with more, an epoch would have fewer than {LEAST_STEPS} steps"
    if most <= SMALLEST:
        return most, f"{most} samples per worker and step: {why}"
    with closing(build_model(context)) as model:
        rates, reason = _rates(context, model, most)
    return_freed_memory()  # that of the model, before the training builds its own
    size = best_size(rates)
    if 2 * size in rates:
        reason = f"larger batches are at most {100 * (GAIN - 1):.0f} % faster"
    return size, f"{size} samples per worker and step, {rates[size]:,.0f} samples/s: {reason or why}"


def _rates(context: TrainingContext, model: Model, most: int) -> tuple[dict[int, float], str]:
    """Size -> samples per second of all workers, and why no larger size was timed; empty after `most`. Collective.

    All ranks time the same sizes. If there is too little memory for the first size, smaller ones are tried.
    """
    rates: dict[int, float] = {}
    size, started_s, memory = SMALLEST, time.perf_counter(), _HostMemory()
    while True:
        begun_s = time.perf_counter()
        try:
            rates[size] = _rate(context, model, size)
        except MPILearnError as error:
            is_too_large = isinstance(error, OutOfMemory) or error.host_fault == MEMORY
            if not is_too_large or size == 1:
                raise
            if not rates:
                size //= 2
                continue
        if size not in rates or size < SMALLEST:
            return rates, "twice as many need too much memory"
        if size == most or size >= best_size(rates) * 2**N_WITHOUT_GAIN:
            return rates, ""
        # memory and time differ between ranks, and all of them must time the same sizes: they decide together
        now_s = time.perf_counter()
        is_late = now_s - started_s + 2 * (now_s - begun_s) > LIMIT_S
        if any(context.comm.allgather(not memory.has_room())):
            return rates, "twice as many would need too much memory"
        if context.comm.bcast(is_late, root=0):
            return rates, f"timing larger ones would take more than {LIMIT_S:.0f} s"
        size *= 2


def _rate(context: TrainingContext, model: Model, size: int) -> float:
    """Samples per second of all workers with `size` samples per worker and step. Collective.

    Raises:
        MPILearnError: Of the step; `OutOfMemory`, or with the `host_fault` `MEMORY`, if there is too little memory.
    """
    comm, is_worker = context.comm, context.worker is not None
    validation = context.configuration.validation.model_copy(update={"mode": "distributed"})
    changes = {"callbacks": [], "validation": validation, "batch_size": size}  # callbacks may write files
    configuration = context.configuration.model_copy(update=changes)
    if is_worker and configuration.xla is True:
        model.compile_step(by_xla=True)
    with Training(replace(context, configuration=configuration), model, timeline=Timeline()) as training:
        first_s = _step_seconds(training, n_chunks=1, n=1) if is_worker else _serve(training)
        slowest_s = comm.allreduce(first_s, op=MPI.MAX)
        n = min(math.ceil(CHUNK_S / slowest_s), (training.batches.n_steps - 1) // N_CHUNKS)
        step_s = _step_seconds(training, N_CHUNKS, n) if is_worker else _serve(training)
        if model.uses_gpu and context.dataset.n_validation > 0:  # its memory must be enough for the validation, too
            with agreed_errors(comm):
                if is_worker:
                    _validate(context, model, training.validator.batch_size)
    return float(comm.allreduce(size / step_s if is_worker else 0.0))


def _step_seconds(training: Training, n_chunks: int, n: int) -> float:
    """Seconds of a step: the median over chunks of `n` steps, after one more step. Collective."""
    times: list[float] = []

    def watched(steps: Iterator[Any]) -> Iterator[Any]:
        for number, step in enumerate(islice(steps, 1 + n_chunks * n)):
            yield step
            # the algorithm asks for the next step when it has exchanged and applied this one
            if number % n == 0 and number < n_chunks * n:
                training.model.wait()
                times.append(time.perf_counter())

    training.run_steps(watched)  # which also waits for the last step
    times.append(time.perf_counter())
    return median((end - begin) / n for begin, end in pairwise(times))


def _serve(training: Training) -> float:
    """The part of a rank without a model in `_step_seconds`. Collective."""
    training.run_steps(iter)
    return 0.0


def _validate(context: TrainingContext, model: Model, size: int) -> None:
    """Evaluates the model on a batch of the validation."""
    dataset = context.dataset
    batch = next(completed(dataset.training.take(slice(0, size)), dataset, 0, 0))
    model.evaluate(batch.x, batch.y, batch.weights)


class _HostMemory:
    """Whether this rank's share of the memory of its host is enough for twice as many samples.

    Linux ends a process that uses more, which no exception can prevent.
    """

    def __init__(self) -> None:
        self.share = host_memory_bytes() // n_ranks_on_host(os.environ)
        self._peaks: list[int] = []

    def has_room(self) -> bool:
        """To be called after each size. The first sizes also allocate what does not depend on the size."""
        self._peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB)
        if len(self._peaks) < 3:
            return True
        growth = self._peaks[-1] - self._peaks[-2]
        return self._peaks[-1] + 2 * growth <= self.share
