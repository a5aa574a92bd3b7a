"""The progress of a training: what changes from epoch to epoch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mpi_learn.training.stopping import Stopping


class History:
    """Metric name -> one float per epoch, NaN for epochs without it."""

    def __init__(self) -> None:
        self.columns: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return max(map(len, self.columns.values()), default=0)

    def append(self, metrics: dict[str, float]) -> None:
        """Adds an epoch."""
        n = len(self)
        for name in metrics:
            self.columns.setdefault(name, [math.nan] * n)
        for name, column in self.columns.items():
            column.append(metrics.get(name, math.nan))


@dataclass(frozen=True)
class EpochReport:
    """What rank 0 reports of an epoch.

    Attributes:
        epoch: Number of the epoch, from 0.
        epochs: Epochs of the whole training.
        metrics: All metrics of the epoch.
        seconds: Wall time, validation included.
        samples_per_second: Training samples over the wall time of the steps.
    """

    epoch: int
    epochs: int
    metrics: dict[str, float]
    seconds: float
    samples_per_second: float


@dataclass(frozen=True)
class Epoch:
    """An epoch whose steps are finished, and whose validation may still be running.

    Attributes:
        number: From 0.
        metrics: Metrics of the training over all ranks.
        started_s: Start on the clock of `time.perf_counter`.
        steps_s: Wall time of its steps, in seconds.
        finish_validation: Waits for the validation and returns its metrics. Collective.
        weights: The model's weights after it, (n,) float32.
        statistics: The model's batch statistics after it, (k,) float32.
    """

    number: int
    metrics: dict[str, float]
    started_s: float
    steps_s: float
    finish_validation: Callable[[], dict[str, float]]
    weights: np.ndarray
    statistics: np.ndarray


@dataclass
class State:
    """The progress of a training.

    Attributes:
        stopping: Early stopping and target, with the weights of the best epoch.
        history: Metrics of all epochs so far.
        epoch: Number of finished epochs.
        resumed_at: Number of epochs that an earlier run had finished.
        ended_by: Why no epoch follows, if an earlier run of the same training ended before its last epoch.
    """

    stopping: Stopping
    history: History = field(default_factory=History)
    epoch: int = 0
    resumed_at: int = 0
    ended_by: str | None = None
