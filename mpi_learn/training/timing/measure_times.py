"""Measures what a training spends its time on, by training for a few seconds on a part of its samples.

`measure_times` runs the usual training, which stops early, so that it has the same compiler, data and messages.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import fmean

from mpi_learn.algorithms.configuration import AllReduce, AnyAlgorithm, Clusters
from mpi_learn.algorithms.rank_layout import rank_layout_of
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.optimizers.optimizer import Optimizer
from mpi_learn.training.configuration import TrainingConfiguration
from mpi_learn.training.timing.times import TrainingTimes
from mpi_learn.training.timing.tracing import DATA, Item, TimedOptimizer, Timeline
from mpi_learn.training.train import train

N_EXCHANGES = 5
"""The steps of a measured epoch contain this number of exchanges between ranks."""

COMPUTE_SPANS, EXCHANGE_SPANS = ("batch", "gradient", "update"), ("exchange",)


@dataclass
class SpanTimes(Timeline):
    """Sums the times of spans by their names. The time of a nested span counts for that span alone.

    Attributes:
        seconds: Name -> seconds since `restart`.
    """

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _nested_s: list[float] = field(default_factory=lambda: [0.0])  # of the open spans

    @contextmanager
    def span(self, name: str, kind: str) -> Iterator[None]:
        started_s = time.perf_counter()
        self._nested_s.append(0.0)
        try:
            yield
        finally:
            duration_s = time.perf_counter() - started_s
            self.seconds[name] += duration_s - self._nested_s.pop()
            self._nested_s[-1] += duration_s

    def waiting(self, items: Iterable[Item]) -> Iterable[Item]:
        iterator, end = iter(items), object()
        while True:
            with self.span("batch", DATA):
                item = next(iterator, end)
            if item is end:
                return
            yield item  # type: ignore[misc]  # it is no `end`

    def timed(self, optimizer: Optimizer) -> Optimizer:
        return TimedOptimizer(optimizer, self)

    def restart(self) -> dict[str, float]:
        """The seconds by name so far, which begin again at 0."""
        seconds, self.seconds = dict(self.seconds), defaultdict(float)
        return seconds


def measure_times(
    configuration: TrainingConfiguration, comm: Communicator, data: Dataset, limit_s: float
) -> TrainingTimes:
    """Trains for about `limit_s` seconds after the first epoch, at least one epoch. Collective over `comm`.

    The epochs have few steps. Callbacks, early stopping, the target and checkpoints are left out.

    Args:
        data: The samples of the whole training.

    Returns:
        The times of the whole training, the same on every rank.

    Raises:
        UserError, TrainingError: As for `train`.
    """
    n_workers = rank_layout_of(configuration.algorithm, comm.size, configuration.n_stages).n_replicas
    total = configuration.total_batch
    n_of_step = configuration.samples_at_once(n_workers) * n_workers if total is None else total.total
    n_training = min(data.n_training, N_EXCHANGES * _steps_per_exchange(configuration.algorithm) * n_of_step)
    part = data.part(n_training, n_training)
    spans, epochs, started_s = SpanTimes(), list[tuple[float, dict[str, float]]](), time.perf_counter()

    def after_epoch(number: int, metrics: dict[str, float]) -> bool:
        epochs.append((time.perf_counter(), spans.restart()))
        measured_s = epochs[-1][0] - epochs[0][0]  # without the first epoch, in which the step is compiled
        return bool(comm.bcast(len(epochs) > 1 and measured_s >= limit_s))

    short = configuration.model_copy(
        update={
            # as many samples as in the whole training, on whose number the choice of a compiler depends
            "epochs": max(2, math.ceil(configuration.epochs * data.n_training / n_training)),
            "validation": configuration.validation.model_copy(update={"every": 1}),
            "early_stopping": None,
            "target": None,
            "callbacks": [],
            "checkpoint": None,
            "trace": None,
        }
    )
    train(short, comm, data=part, on_epoch=after_epoch, timeline=spans)
    ended_s, n = time.perf_counter(), len(epochs) - 1
    mean_s = (epochs[-1][0] - epochs[0][0]) / n
    names = {name for _, seconds in epochs[1:] for name in seconds}
    own = {name: sum(seconds.get(name, 0.0) for _, seconds in epochs[1:]) / n for name in names}
    found = comm.allgather((own, mean_s, ended_s - started_s - mean_s * len(epochs)))
    n_validations = data.n_validation / max(1, part.n_validation) / configuration.validation.every
    n_epochs = data.n_training / n_training
    times = _combined(found, n_epochs, n_validations)
    most_ranks = data.n_training if total is None else total.most_ranks
    return replace(
        times, epochs=configuration.epochs, n_steps=math.ceil(data.n_training / n_of_step), most_ranks=most_ranks
    )


def _combined(
    found: list[tuple[dict[str, float], float, float]], n_epochs: float, n_validations: float
) -> TrainingTimes:
    """The times of a training of one epoch.

    Args:
        found: Of each rank: seconds by span in a measured epoch, the whole of it, and the rest of the training.
        n_epochs: Number of measured epochs with as many samples as the training has.
        n_validations: The same for the samples of the validation.
    """

    def of_ranks(*names: str) -> list[float]:
        return [sum(seconds.get(name, 0.0) for name in names) for seconds, _, _ in found]

    exchanges, validation_s = of_ranks(*EXCHANGE_SPANS), fmean(of_ranks("validation"))
    # masters are in no exchange; they wait for workers
    exchanges = [seconds for seconds, gradient in zip(exchanges, of_ranks("gradient"), strict=True) if gradient]
    steps_s = fmean(of_ranks(*COMPUTE_SPANS, *EXCHANGE_SPANS, "serve"))
    communication_s = min(exchanges) if len(found) > 1 else 0.0
    waiting_s = fmean(exchanges) - communication_s if len(found) > 1 else 0.0
    return TrainingTimes(
        start_s=max(0.0, fmean(start_s for *_, start_s in found)),
        compute_s=n_epochs * max(0.0, steps_s - communication_s - waiting_s),
        communication_s=n_epochs * communication_s,
        waiting_s=n_epochs * waiting_s,
        validation_s=n_validations * validation_s,
        rest_s=max(0.0, fmean(whole_s for _, whole_s, _ in found) - steps_s - validation_s),
        epochs=1,
        n_steps=1,
        most_ranks=1,
    )


def _steps_per_exchange(algorithm: AnyAlgorithm) -> int:
    """Number of steps of a worker between two exchanges."""
    if isinstance(algorithm, AllReduce):
        return algorithm.accumulate
    return algorithm.exchange_every if isinstance(algorithm, Clusters) else algorithm.sync_every
