"""Trackers: a search's trials in TensorBoard or MLflow, as they end, by the libraries of these.

Named in one line, ``tensorboard:FOLDER`` or ``mlflow:URI``. A tracker that fails says so once and is left alone: the
store has everything.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpi_opt.core.space import Parameters
from mpi_opt.core.trial import Outcome, is_usable
from mpi_opt.errors import ConfigurationError, without_passwords
from mpi_opt.store.records import CurveRecord
from mpi_opt.views.figures import series


class Tracker(ABC):
    """Takes a study's trials as they end."""

    @abstractmethod
    def record(self, outcome: Outcome, parameters: Parameters) -> None:
        """Takes a trial that ended."""

    @abstractmethod
    def close(self) -> None:
        """Writes what is still held back."""


class TensorBoard(Tracker):
    """A run for each trial, in ``FOLDER/STUDY/trial-NUMBER``: its curves, hyperparameters and figure of merit.

    Args:
        place: The folder.
        study: The study's name.
    """

    def __init__(self, place: str, study: str) -> None:
        from tensorboardX import SummaryWriter
        from tensorboardX.summary import hparams

        self._folder = Path(place or "runs") / _file_name(study)
        self._make_writer, self._hparams = SummaryWriter, hparams

    def record(self, outcome: Outcome, parameters: Parameters) -> None:
        writer = self._make_writer(str(self._folder / f"trial-{outcome.number:05d}"))
        for name, values in _mean_curves(outcome).items():
            for epoch, value in enumerate(values):
                writer.add_scalar(name, value, epoch)
        merits = {"figure_of_merit": outcome.figure_of_merit} if is_usable(outcome.figure_of_merit) else {}
        merits |= outcome.figures_of_merit
        shown = {name: "none" if value is None else value for name, value in parameters.items()}
        for summary in self._hparams(shown, merits):
            writer.file_writer.add_summary(summary)
        for name, value in merits.items():
            writer.add_scalar(name, value, 0)
        writer.close()

    def close(self) -> None:
        """Every trial is written by itself: nothing is held back."""


class Mlflow(Tracker):
    """An experiment of the study's name, with a run for each trial.

    Args:
        place: The tracking server's or store's URI; empty for MLflow's own default.
        study: The study's name.
    """

    def __init__(self, place: str, study: str) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient(place or None)
        found = self._client.get_experiment_by_name(study)
        self._experiment = found.experiment_id if found else self._client.create_experiment(study)

    def record(self, outcome: Outcome, parameters: Parameters) -> None:
        from mlflow.entities import Metric, Param, RunTag

        run = self._client.create_run(self._experiment, run_name=f"trial {outcome.number}").info.run_id
        end_ms = self._client.get_run(run).info.start_time
        metrics = [
            Metric(name, value, end_ms, epoch)
            for name, values in _mean_curves(outcome).items()
            for epoch, value in enumerate(values)
        ]
        for name in ("figure_of_merit", "uncertainty", "duration_s"):
            if is_usable(getattr(outcome, name)):
                metrics.append(Metric(name, getattr(outcome, name), end_ms, 0))
        metrics += [Metric(name, value, end_ms, 0) for name, value in outcome.figures_of_merit.items()]
        tags = [RunTag("state", outcome.state)] + (
            [RunTag("error", without_passwords(outcome.error)[:5000])] if outcome.error else []
        )
        params = [Param(name, str(value)) for name, value in parameters.items()]
        for first in range(0, max(len(metrics), 1), 900):  # the server takes 1000 at once
            self._client.log_batch(
                run, metrics[first : first + 900], params if not first else [], tags if not first else []
            )
        self._client.set_terminated(run, "FAILED" if outcome.state == "failed" else "FINISHED")

    def close(self) -> None:
        """Every trial is sent by itself: nothing is held back."""


KINDS: dict[str, Callable[[str, str], Tracker]] = {"tensorboard": TensorBoard, "mlflow": Mlflow}


class Guarded(Tracker):
    """A tracker that cannot end a search: after its first error it is told nothing more.

    Args:
        tracker: What may fail.
        complain: Told why, once.
    """

    def __init__(self, tracker: Tracker, complain: Callable[[str], None]) -> None:
        self._tracker: Tracker | None = tracker
        self._complain = complain

    def record(self, outcome: Outcome, parameters: Parameters) -> None:
        self._try(lambda tracker: tracker.record(outcome, parameters))

    def close(self) -> None:
        self._try(lambda tracker: tracker.close())

    def _try(self, action: Callable[[Tracker], None]) -> None:
        if self._tracker is None:
            return
        try:
            action(self._tracker)
        except _errors() as error:
            name, self._tracker = type(self._tracker).__name__, None
            self._complain(without_passwords(f"{name} takes no more trials ({error}); the store has them all"))


def make_tracker(specification: str, study: str, complain: Callable[[str], None] | None = None) -> Tracker:
    """The tracker that ``tensorboard:FOLDER`` or ``mlflow:URI`` names.

    Args:
        specification: Kind and place; the place may be left out.
        study: The study's name.
        complain: Told when the tracker fails later on; default: standard error.

    Raises:
        ConfigurationError: There is no such kind, its library is not installed, or its place cannot be reached.
    """
    kind, _, place = specification.partition(":")
    if kind not in KINDS:
        cure = f"one of: {', '.join(f'{name}:PLACE' for name in KINDS)}"
        raise ConfigurationError(f"there is no tracker {kind!r}", where="track", cure=cure)
    try:
        tracker = KINDS[kind](place, study)
    except ImportError as error:
        cure = f"pip install mpi-opt[{kind}]"
        raise ConfigurationError(f"{kind} is not installed: {error}", where="track", cure=cure) from None
    except _errors() as error:
        problem = without_passwords(f"{specification}: {error}")
        raise ConfigurationError(problem, where="track", cure="check the address, and that the server runs") from None
    return Guarded(tracker, complain or (lambda text: print(text, file=sys.stderr)))


def _errors() -> tuple[type[Exception], ...]:
    """What writing to a disk or a server raises."""
    mlflow: Any = sys.modules.get("mlflow")
    return (OSError, ValueError) if mlflow is None else (OSError, ValueError, mlflow.MlflowException)


def _mean_curves(outcome: Outcome) -> dict[str, list[float]]:
    curves = [
        CurveRecord(outcome.number, fold.fold, name, values)
        for fold in outcome.folds
        for name, values in fold.history.items()
    ]
    return {name: by_trial[outcome.number] for name, by_trial in series.mean_curves(curves).items()}


def _file_name(study: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in study)
