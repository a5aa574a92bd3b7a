"""The learning rate of a training: by ``schedule:``, or as callbacks of Keras have set it."""

from __future__ import annotations

from mpi_learn.errors import ConfigurationError
from mpi_learn.optimizers.configuration import NotFused, Schedule
from mpi_learn.optimizers.optimizer import UpdateRule
from mpi_learn.optimizers.schedule import Rate
from mpi_learn.training.configuration import TrainingConfiguration
from mpi_learn.training.state import State


class LearningRate:
    """The learning rate of a training.

    Args:
        configuration: Of the training.
        n_workers: For schedules that scale with it.
        state: The progress of the training, which contains the rate that callbacks have set.

    Attributes:
        fixed_by: Why callbacks cannot set the rate; empty if they can.
    """

    def __init__(self, configuration: TrainingConfiguration, n_workers: int, state: State) -> None:
        self.configuration, self.n_workers, self.state = configuration, n_workers, state
        optimizer = configuration.optimizer
        self.base = 0.0 if isinstance(optimizer, NotFused) else optimizer.learning_rate
        self.fixed_by = ""
        if configuration.gan is not None:
            self.fixed_by = "a GAN has two optimizers"
        elif optimizer.schedule.name != "constant" or optimizer.schedule.warmup_epochs:
            self.fixed_by = "optimizer.schedule determines it"

    def of_steps(self, base: float, schedule: Schedule, steps_per_epoch: float, *, is_settable: bool) -> Rate:
        """The rate as a function of the step.

        Args:
            base: The rate at the beginning.
            schedule: How it changes.
            steps_per_epoch: Optimizer steps per epoch.
            is_settable: Whether the rate that callbacks set is used.
        """
        return Rate(
            base,
            schedule,
            steps_per_epoch,
            self.configuration.epochs,
            self.n_workers,
            lambda: self.state.history.columns,
            lambda: self.state.learning_rate if is_settable else None,
        )

    def at(self, epoch: int) -> float:
        """The rate at the beginning of an epoch, as callbacks read it."""
        return self.of_steps(self.base, self.configuration.optimizer.schedule, 1, is_settable=True)(epoch)

    def set(self, rate: float) -> None:
        """Sets the rate of the following steps; to be called on all ranks alike."""
        self.state.learning_rate = rate

    def follow(self, rule: UpdateRule, schedule: Schedule) -> None:
        """Takes the initial rate from the optimizer of a framework.

        Raises:
            ConfigurationError: The optimizer determines its rate itself, and so does `schedule`.
        """
        self.base = rule.learning_rate
        if rule.has_schedule:
            self.fixed_by = "the optimizer has a schedule of its own"
            if schedule != Schedule():
                raise ConfigurationError(self.fixed_by, where="optimizer.schedule", cure="leave one of the two out")
