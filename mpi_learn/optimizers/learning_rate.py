"""The learning rate of a training: by ``schedule:``, or as callbacks have set it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mpi_learn.errors import ConfigurationError
from mpi_learn.optimizers.configuration import AnyOptimizer, NotFused, Schedule
from mpi_learn.optimizers.schedule import ScheduledRate
from mpi_learn.update_rule import UpdateRule


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
            self.fixed_by = "the optimizer determines its learning rate itself"
            if schedule != Schedule():
                raise ConfigurationError(self.fixed_by, where="optimizer.schedule", cure="leave schedule out")

    def _history_before(self, epoch: int) -> Mapping[str, Sequence[float]]:
        """The values on which the rate of an epoch depends."""
        n_epochs = max(epoch - self.delay, 0)
        return {metric: values[:n_epochs] for metric, values in self.history().items()}
