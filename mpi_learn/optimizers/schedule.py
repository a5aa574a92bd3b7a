"""How the learning rate changes from step to step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from mpi_learn.optimizers.configuration import Schedule


@dataclass
class ScheduledRate:
    """The learning rate of `schedule:`, a function of the number of the step and of the history.

    The position in the schedule at the beginning of an epoch depends on the number of the epoch alone. A training that
    is resumed with another number of steps per epoch, for example on more ranks, therefore continues correctly.

    Attributes:
        n_workers: Number of workers, for ``scale``.
        history: Metric -> one value for each epoch before this one; for ``plateau``.
    """

    base: float
    schedule: Schedule = field(default_factory=Schedule)
    steps_per_epoch: float = 1
    epochs: int = 1
    n_workers: int = 1
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    _epoch: int = 0
    _first_step: int | None = 0  # of this epoch

    def begin_epoch(self, epoch: int, history: Mapping[str, Sequence[float]]) -> None:
        """The next step is the first one of `epoch`, counted from 0."""
        self._epoch, self._first_step, self.history = epoch, None, history

    def __call__(self, step: int) -> float:
        """The learning rate of `step`, counted from 0."""
        if self._first_step is None:
            self._first_step = step
        position = step - self._first_step + self._epoch * self.steps_per_epoch
        epoch = position / self.steps_per_epoch
        warmup = self.schedule.warmup_epochs
        rate = self.base * self._scale() * self._shape(max(epoch - warmup, 0.0), max(self.epochs - warmup, 1e-9))
        return rate * min(1.0, (position + 1) / max(warmup * self.steps_per_epoch, 1.0)) if warmup else rate

    def _scale(self) -> float:
        return {"none": 1.0, "linear": float(self.n_workers), "sqrt": math.sqrt(self.n_workers)}[self.schedule.scale]

    def _shape(self, epoch: float, epochs: float) -> float:
        if self.schedule.name == "step":
            return math.pow(self.schedule.factor, int(epoch / self.schedule.every))
        if self.schedule.name == "exponential":
            return math.pow(self.schedule.factor, epoch / self.schedule.every)
        if self.schedule.name == "plateau":
            return plateau_factor(self.schedule, tuple(self.history.get(self.schedule.metric, ())))
        if self.schedule.name == "cosine":
            floor = self.schedule.floor
            return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(epoch / epochs, 1.0)))
        return 1.0


@lru_cache(maxsize=8)
def plateau_factor(schedule: Schedule, values: tuple[float, ...]) -> float:
    """The factor of the learning rate after epochs with these values of the metric, NaN for epochs without it.

    Depends on the values alone, so that all ranks, and a training that continues from a checkpoint, agree.
    """
    best, n_waited, factor = math.inf, 0, 1.0
    for value in values:
        signed = -value if schedule.direction == "max" else value
        if math.isnan(signed):
            continue
        if signed < best - schedule.min_delta:
            best, n_waited = signed, 0
            continue
        n_waited += 1
        if n_waited >= schedule.patience:
            factor, n_waited = max(factor * schedule.factor, schedule.floor), 0
    return factor
