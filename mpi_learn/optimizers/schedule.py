"""How the learning rate changes from step to step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mpi_learn.optimizers.configuration import Schedule


@dataclass(frozen=True)
class Rate:
    """The learning rate as a function of the number of the step.

    Attributes:
        base: The configured learning rate.
        schedule: How it changes.
        steps_per_epoch: Optimizer steps per epoch.
        epochs: Epochs of the whole training.
        n_workers: Number of workers, for ``scale``.
    """

    base: float
    schedule: Schedule = field(default_factory=Schedule)
    steps_per_epoch: float = 1
    epochs: int = 1
    n_workers: int = 1

    def __call__(self, step: int) -> float:
        """The learning rate of `step`, counted from 0."""
        epoch = step / self.steps_per_epoch
        warmup = self.schedule.warmup_epochs
        rate = self.base * self._scale() * self._shape(max(epoch - warmup, 0.0), max(self.epochs - warmup, 1e-9))
        return rate * min(1.0, (step + 1) / max(warmup * self.steps_per_epoch, 1.0)) if warmup else rate

    def _scale(self) -> float:
        return {"none": 1.0, "linear": float(self.n_workers), "sqrt": math.sqrt(self.n_workers)}[self.schedule.scale]

    def _shape(self, epoch: float, epochs: float) -> float:
        if self.schedule.name == "step":
            return self.schedule.factor ** int(epoch / self.schedule.every)
        if self.schedule.name == "cosine":
            floor = self.schedule.floor
            return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(epoch / epochs, 1.0)))
        return 1.0
