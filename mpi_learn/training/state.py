"""The progress of a training: history, best weights, and the decision to stop before the last epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_learn.training.sections import EarlyStopping, Target

LASTING_ENDS = ("early_stopping", "target")
"""Sections of the configuration that end a training for good: the same command trains no further epoch."""
BEST = ("best_weights", "best_batch_statistics")
"""Names of the arrays of the best epoch in a checkpoint."""


class Stopping:
    """Early stopping and target. Keeps the weights of the best epoch if they are to be restored.

    Args:
        early_stopping, target: Sections of the configuration, or None.

    Attributes:
        best_weights: Weights of the best epoch so far, (n,) float32; None before it, or if nothing is restored.
        best_statistics: Batch statistics of that epoch, (k,) float32, or None.
    """

    def __init__(self, early_stopping: EarlyStopping | None, target: Target | None) -> None:
        self.early_stopping, self.target = early_stopping, target
        self.best_value, self.best_epoch, self.waited = math.inf, -1, 0
        self.best_weights: np.ndarray | None = None
        self.best_statistics: np.ndarray | None = None

    def reason(self, metrics: dict[str, float]) -> str | None:
        """``early_stopping``, ``target`` or None; to be called once per epoch, after `remember`."""
        if self._is_on_target(metrics):
            return "target"
        stopping = self.early_stopping
        return "early_stopping" if stopping is not None and self.waited >= stopping.patience else None

    def remember(self, epoch: int, metrics: dict[str, float], weights: np.ndarray, statistics: np.ndarray) -> None:
        """Takes an epoch into account. An epoch without the metric, because it had no validation, is not counted."""
        stopping = self.early_stopping
        if stopping is None or stopping.metric not in metrics:
            return
        value = -metrics[stopping.metric] if stopping.direction == "max" else metrics[stopping.metric]
        if not value < self.best_value - stopping.min_delta:  # NaN is not an improvement
            self.waited += 1
            return
        self.best_value, self.best_epoch, self.waited = value, epoch, 0
        if stopping.restore_best:
            self.best_weights, self.best_statistics = weights.copy(), statistics.copy()

    def _is_on_target(self, metrics: dict[str, float]) -> bool:
        target = self.target
        if target is None or target.metric not in metrics:
            return False
        value = metrics[target.metric]
        if target.above is not None:
            return value >= target.above
        return target.below is not None and value <= target.below

    def state(self) -> dict[str, float]:
        """The values that a checkpoint holds besides the best weights."""
        return {"best_value": self.best_value, "best_epoch": self.best_epoch, "waited": self.waited}

    def is_continued(self, earlier: dict[str, Any] | None) -> bool:
        """Whether a run with the section `earlier` had the same metric and direction, so that its best epoch counts."""
        if earlier is None or self.early_stopping is None:
            return False
        then, now = EarlyStopping.model_validate(earlier), self.early_stopping
        return (then.metric, then.direction) == (now.metric, now.direction)

    def restore(
        self,
        state: dict[str, float],
        best_weights: np.ndarray | None = None,
        best_statistics: np.ndarray | None = None,
    ) -> None:
        """Continues from `state`, with the weights and batch statistics of the best epoch if they are restored."""
        self.best_value = state["best_value"]
        self.best_epoch, self.waited = int(state["best_epoch"]), int(state["waited"])
        if self.early_stopping is not None and self.early_stopping.restore_best:
            self.best_weights, self.best_statistics = best_weights, best_statistics


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

    def replace(self, epoch: int, metrics: dict[str, float]) -> None:
        """Replaces values of an epoch."""
        for name, value in metrics.items():
            self.columns.setdefault(name, [math.nan] * len(self))[epoch] = value


@dataclass(frozen=True)
class EpochReport:
    """The report of rank 0 about an epoch.

    Attributes:
        epoch: Number of the epoch, from 0.
        seconds: Wall time, with that of the validation or, if it runs during the next epoch, of waiting for its end.
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
        steps_s: Wall time of its steps, in seconds.
        seconds: Wall time of its steps and of the start of its validation.
        finish_validation: Waits for the validation and returns its metrics. Collective.
        weights: The model's weights after it, (n,) float32; a copy only if a thread validates.
        statistics: The model's batch statistics after it, (k,) float32.
    """

    number: int
    metrics: dict[str, float]
    steps_s: float
    seconds: float
    finish_validation: Callable[[], dict[str, float]]
    weights: np.ndarray
    statistics: np.ndarray


class State:
    """The progress of a training. Others read its attributes; only its own methods change them.

    Attributes:
        stopping: Early stopping and target, with the weights of the best epoch.
        history: The metrics of all finished epochs.
        epoch: Number of finished epochs.
        epochs_before: Number of epochs of the checkpoint with which this run began.
        began: Number of epochs of another training's checkpoint with which this training began, in this run or an
            earlier one.
        seconds: Wall time of the training loop so far, with that of earlier runs.
        steps_s: Wall time of all training steps so far, with those of earlier runs.
        n_samples: Samples of these steps, of all ranks.
        callbacks: The progress of the callbacks; see `Callbacks.state`.
        ended_by: ``early_stopping`` or ``target``, if it has ended the training, in this run or an earlier one; or
            ``callback``, after which a later run continues.
    """

    def __init__(self, stopping: Stopping) -> None:
        self.stopping, self.history = stopping, History()
        self.epoch = self.epochs_before = self.began = self.n_samples = 0
        self.seconds = self.steps_s = 0.0
        self.callbacks: list[dict[str, float]] = []
        self.ended_by: str | None = None

    def count_steps(self, seconds: float, n_samples: int) -> None:
        """Takes the steps of an epoch into account, whose validation may still be running."""
        self.steps_s += seconds
        self.n_samples += n_samples

    def finish_epoch(self, epoch: Epoch, metrics: dict[str, float]) -> str | None:
        """Adds an epoch with the metrics of training and validation; returns the reason to stop, if any."""
        self.epoch = epoch.number + 1
        self.history.append(metrics)
        self.stopping.remember(epoch.number, metrics, epoch.weights, epoch.statistics)
        return self.stopping.reason(metrics)

    def add_metrics(self, epoch: int, metrics: dict[str, float]) -> None:
        """Adds metrics that an earlier epoch did not have, of a validation or of callbacks."""
        self.history.replace(epoch, metrics)

    def pause(self, ended_by: str | None, seconds: float, callbacks: list[dict[str, float]]) -> None:
        """Takes down what is known only between two epochs, before `snapshot`."""
        self.ended_by, self.seconds, self.callbacks = ended_by, seconds, callbacks

    def end(self, seconds: float) -> None:
        """Ends this run."""
        self.seconds = seconds

    def snapshot(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The values and the arrays that a checkpoint holds."""
        names = ("epoch", "began", "seconds", "steps_s", "n_samples", "callbacks", "ended_by")
        values = {name: getattr(self, name) for name in names}
        best = self.stopping.best_weights, self.stopping.best_statistics
        return (
            values | {"history": self.history.columns, "stopping": self.stopping.state()},
            {name: array for name, array in zip(BEST, best, strict=True) if array is not None},
        )

    def restore(self, values: Mapping[str, Any]) -> None:
        """Continues after the epochs of a `snapshot` of any training of the same model."""
        self.epoch = self.epochs_before = self.began = int(values["epoch"])
        self.history.columns = {name: list(column) for name, column in values["history"].items()}
        self.seconds, self.steps_s = values.get("seconds", 0.0), values.get("steps_s", 0.0)
        self.n_samples = values.get("n_samples", 0)

    def restore_same(
        self,
        values: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        then: Mapping[str, Any],
        now: Mapping[str, Any],
    ) -> None:
        """Restores what holds only for the same training; after `restore`.

        Args:
            values, arrays: See `snapshot`.
            then, now: The configuration of the snapshot and the present one; a few keys may differ.
        """
        self.began = int(values.get("began", 0))
        if then.get("callbacks") == now["callbacks"]:
            self.callbacks = values.get("callbacks", [])
        if self.stopping.is_continued(then.get("early_stopping")):
            self.stopping.restore(values["stopping"], *map(arrays.get, BEST))
        # a new target or patience may be met already: then no further epoch is trained
        self.ended_by = self.stopping.reason({name: column[-1] for name, column in self.history.columns.items()})
        ended_by = values.get("ended_by")
        if ended_by in LASTING_ENDS and then.get(ended_by) == now[ended_by]:
            self.ended_by = ended_by  # with validation in a thread, by an epoch before the last one
