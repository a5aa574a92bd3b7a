"""The learning rate of a training: by ``schedule:``, with its formulas, or as callbacks have set it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import UpdateRule
from mpi_learn.optimizers.configuration import AnyOptimizer, NotFused, Schedule


class LearningRate:
    """The learning rate of a training.

    Args:
        n_workers: Number of workers, for schedules that scale with it.
        history: Returns the history so far, metric -> one value per epoch.
        delay: Delay of the history in epochs. With `delay` 1, the rate of epoch k depends on the epochs before k - 1,
            because the validation of epoch k - 1 may still run. Otherwise 0.
        also_fixed_by: A reason other than a schedule why callbacks cannot set the rate; empty if there is none.
        n_steps: Steps per epoch, for callbacks on a rank without an optimizer.

    Attributes:
        base: The configured rate.
        chosen: The rate that callbacks have set, on all ranks alike; None if they have not.
        fixed_by: Why callbacks cannot set the rate; empty if they can.
    """

    def __init__(
        self,
        options: AnyOptimizer,
        epochs: int,
        n_workers: int,
        history: Callable[[], Mapping[str, Sequence[float]]],
        delay: int,
        also_fixed_by: str,
        n_steps: float,
    ) -> None:
        self.schedule, self.epochs, self.n_workers = options.schedule, epochs, n_workers
        self.history, self.delay = history, delay
        self._steps_per_epoch = n_steps
        self.base = 0.0 if isinstance(options, NotFused) else options.learning_rate
        self.chosen: float | None = None
        self._of_framework: UpdateRule | None = None  # an optimizer with a schedule of its own
        self._scheduled: list[ScheduledRate] = []
        has_schedule = self.schedule.name != "constant" or self.schedule.warmup_epochs
        self.fixed_by = also_fixed_by or ("optimizer.schedule determines it" if has_schedule else "")

    def choose(self, rate: float | None) -> None:
        """Sets the rate for all further steps, on all ranks alike; None returns to the configured one."""
        self.chosen = rate

    def per_step(
        self, base: float, schedule: Schedule, steps_per_epoch: float, *, is_settable: bool
    ) -> Callable[[int], float]:
        """The rate as a function of the step, counted from 0.

        Args:
            base: The rate at the beginning.
            is_settable: Whether the rate that callbacks set is used.
        """
        scheduled = ScheduledRate(base, schedule, steps_per_epoch, self.epochs, self.n_workers)
        self._scheduled.append(scheduled)
        if not is_settable:
            return scheduled
        self._steps_per_epoch = steps_per_epoch
        return lambda step: scheduled(step) if self.chosen is None else self.chosen

    def begin_epoch(self, epoch: int) -> None:
        """Determines the history on which the rate of an epoch depends. Called before its first step."""
        history = self._history_before(epoch)
        for scheduled in self._scheduled:
            scheduled.begin_epoch(epoch, history)

    def at_start_of(self, epoch: int) -> float:
        """The rate at the beginning of an epoch, as callbacks read it."""
        if self.chosen is not None:
            return self.chosen
        if self._of_framework is not None:
            return self._of_framework.learning_rate
        scheduled = ScheduledRate(self.base, self.schedule, self._steps_per_epoch, self.epochs, self.n_workers)
        scheduled.begin_epoch(epoch, self._history_before(epoch))
        return scheduled(0)

    def take_base_from(self, rule: UpdateRule, schedule: Schedule) -> None:
        """Takes the initial rate from the optimizer of a framework.

        Raises:
            ConfigurationError: The optimizer determines its rate itself, and so does `schedule`.
        """
        self.base = rule.learning_rate
        if rule.has_schedule:
            self._of_framework = rule
            self.fixed_by = "the optimizer determines its learning rate itself"
            if schedule != Schedule():
                raise ConfigurationError(self.fixed_by, where="optimizer.schedule", cure="leave schedule out")

    def _history_before(self, epoch: int) -> Mapping[str, Sequence[float]]:
        """The values on which the rate of an epoch depends."""
        n_epochs = max(epoch - self.delay, 0)
        return {metric: values[:n_epochs] for metric, values in self.history().items()}


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
        # after a warm-up as long as the training, there is nothing to decay over: 1e-9 keeps it from dividing by zero
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
