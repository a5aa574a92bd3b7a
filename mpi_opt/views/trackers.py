"""Records the trials of a search elsewhere as they end: in TensorBoard, in MLflow, or as lines of JSON.

A specification is ``tensorboard:FOLDER`` or ``mlflow:URI``. The first error of a tracker is printed, and the tracker is
no longer used. The search continues, and the store contains all trials.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpi_learn.settings.paths import file_name
from mpi_opt.core.search_space.space import Parameters
from mpi_opt.core.trial import Outcome, Proposal, TrialRecord
from mpi_opt.errors import ConfigurationError, without_passwords
from mpi_opt.store.records import CurveRecord, now
from mpi_opt.study.presentation import with_null
from mpi_opt.study.progress import Progress
from mpi_opt.views.series import figures as series

MLFLOW_BATCH = 900
"""The number of metrics per request; a server accepts 1000."""


class Tracker(ABC):
    """Records the trials of a study."""

    @abstractmethod
    def record(self, outcome: Outcome, parameters: Parameters) -> None:
        """Records a trial that has ended. The record is written, or sent to the server, when this method returns."""


class TensorBoard(Tracker):
    """Writes a run per trial, in ``FOLDER/STUDY/trial-NUMBER``: curves, hyperparameters and figures of merit."""

    def __init__(self, place: str, study: str) -> None:
        from tensorboardX import SummaryWriter
        from tensorboardX.summary import hparams

        self._folder = Path(place or "runs") / file_name(study)
        self._make_writer, self._hparams = SummaryWriter, hparams

    def record(self, outcome: Outcome, parameters: Parameters) -> None:
        writer = self._make_writer(str(self._folder / f"trial-{outcome.number:05d}"))
        for name, curve in _mean_curves(outcome).items():
            for epoch, value in curve.items():
                writer.add_scalar(name, value, epoch)
        figures = _figures(outcome)
        shown = {name: with_null(value) for name, value in parameters.items()}
        for summary in self._hparams(shown, figures):
            writer.file_writer.add_summary(summary)
        for name, value in figures.items():
            writer.add_scalar(name, value, 0)
        writer.close()


class Mlflow(Tracker):
    """Writes an experiment with the name of the study and a run per trial. Without a URI, MLflow uses its default."""

    def __init__(self, place: str, study: str) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient(place or None)
        found = self._client.get_experiment_by_name(study)
        self._experiment = found.experiment_id if found else self._client.create_experiment(study)

    def record(self, outcome: Outcome, parameters: Parameters) -> None:
        from mlflow.entities import Metric, Param, RunTag

        run = self._client.create_run(self._experiment, run_name=f"trial {outcome.number}").info.run_id
        start_ms = self._client.get_run(run).info.start_time
        metrics = [Metric(name, value, start_ms, epoch) for name, value, epoch in _metrics(outcome)]
        tags = [RunTag("state", outcome.state)]
        if outcome.error:
            tags.append(RunTag("error", without_passwords(outcome.error)[:5000]))
        shown = [Param(name, str(with_null(value))) for name, value in parameters.items()]
        self._client.log_batch(run, params=shown, tags=tags)
        for first in range(0, len(metrics), MLFLOW_BATCH):
            self._client.log_batch(run, metrics[first : first + MLFLOW_BATCH])
        self._client.set_terminated(run, "FAILED" if outcome.state == "failed" else "FINISHED")


KINDS: dict[str, Callable[[str, str], Tracker]] = {"tensorboard": TensorBoard, "mlflow": Mlflow}


class FailSafeTracker(Tracker):
    """Wraps a tracker whose errors must not end a search: it is not used any more after its first error."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker: Tracker | None = tracker

    def record(self, outcome: Outcome, parameters: Parameters) -> None:
        if self._tracker is None:
            return
        try:
            self._tracker.record(outcome, parameters)
        except _errors() as error:
            name, self._tracker = type(self._tracker).__name__, None
            problem = f"{name} failed and records no more trials ({error}); the store contains all of them"
            print(without_passwords(problem), file=sys.stderr)


def make_tracker(specification: str, study: str) -> Tracker:
    """Creates the tracker of a specification.

    Args:
        specification: ``tensorboard:FOLDER`` or ``mlflow:URI``; the folder or URI is optional.
        study: The name of the study.

    Raises:
        ConfigurationError: The kind is unknown, its library is not installed, or the server cannot be reached.
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
    return FailSafeTracker(tracker)


def _errors() -> tuple[type[Exception], ...]:
    """The exceptions of a failed write to a disk or server."""
    mlflow: Any = sys.modules.get("mlflow")
    return (OSError, ValueError) if mlflow is None else (OSError, ValueError, mlflow.MlflowException)


def _metrics(outcome: Outcome) -> Iterator[tuple[str, float, int]]:
    """Yields name, value and epoch of the curves, then of the figures of merit and the duration (epoch 0)."""
    for name, curve in _mean_curves(outcome).items():
        for epoch, value in curve.items():
            yield name, value, epoch
    for name, figure in _figures(outcome).items():
        yield name, figure, 0
    yield "duration_s", outcome.duration_s, 0


def _figures(outcome: Outcome) -> dict[str, float]:
    """The first figure of merit with its uncertainty, and each of several by its name."""
    figures, found = outcome.figures_of_merit, dict[str, float]()
    if figures.main is not None:
        found["figure_of_merit"] = figures.main
        if figures.main.uncertainty is not None:
            found["uncertainty"] = figures.main.uncertainty
    if len(figures) > 1:  # with a prefix, because a curve may have the same name
        found |= {f"figure_of_merit/{name}": figure for name, figure in figures.items()}
    return found


def _mean_curves(outcome: Outcome) -> dict[str, series.Curve]:
    curves = []
    for fold in outcome.folds:
        for name, points in fold.curves():
            known = list(points)
            values, steps = [value for _, value in known], [step for step, _ in known]
            curves.append(CurveRecord(outcome.number, fold.fold, name, values, steps))
    return {name: by_trial[outcome.number] for name, by_trial in series.mean_curves(curves).items()}


class JsonLog(Progress):
    """Appends one JSON object per event to a file, and passes the events on to another observer.

    Each object has the keys ``at`` (UTC, ISO-8601) and ``event``: ``begins``, ``block_ready``, ``trial_started``,
    ``trial_ended``, ``trial_requeued``, ``block_given_up``, ``block_dissolved``, ``note`` or ``ended``.

    Raises:
        ConfigurationError: The file cannot be written.
    """

    def __init__(self, path: Path, observer: Progress) -> None:
        self._observer, self._has_failed = observer, False
        try:
            is_cut = path.is_file() and path.stat().st_size > 0 and _last_byte(path) != b"\n"
            self._file = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            problem = f"{path} cannot be written: {error.strerror}"
            raise ConfigurationError(problem, where="--log-json", cure="name a file that you may write") from None
        if is_cut:  # an earlier search was killed while it wrote, or the disk was full
            with suppress(OSError):
                self._file.write("\n")

    def begins(self, text: str) -> None:
        self._write("begins", text=text)
        self._observer.begins(text)

    def resumed(self, ended: Sequence[TrialRecord]) -> None:
        self._observer.resumed(ended)

    def ready(self, block: int) -> None:
        self._write("block_ready", block=block)
        self._observer.ready(block)

    def started(self, block: int, number: int) -> None:
        self._write("trial_started", block=block, trial=number)
        self._observer.started(block, number)

    def finished(self, block: int, outcome: Outcome, proposal: Proposal) -> None:
        self._write(
            "trial_ended",
            block=block,
            trial=outcome.number,
            state=outcome.state,
            figure_of_merit=outcome.figure_of_merit,
            **({"figures_of_merit": dict(outcome.figures_of_merit)} if len(outcome.figures_of_merit) > 1 else {}),
            duration_s=outcome.duration_s,
            parameters=dict(proposal.parameters),
            error=outcome.error,
        )
        self._observer.finished(block, outcome, proposal)

    def requeued(self, block: int) -> None:
        self._write("trial_requeued", block=block)
        self._observer.requeued(block)

    def given_up(self, block: int) -> None:
        self._write("block_given_up", block=block)
        self._observer.given_up(block)

    def dissolved(self, block: int) -> None:
        self._write("block_dissolved", block=block)
        self._observer.dissolved(block)

    def note(self, text: str) -> None:
        self._write("note", text=text)
        self._observer.note(text)

    def tick(self) -> None:
        self._observer.tick()

    def close(self) -> None:
        """Ends the log."""
        self._write("ended")
        with suppress(OSError):
            self._file.close()

    def _write(self, event: str, **content: Any) -> None:
        # passwords are removed first: in the text of JSON, one may contain an escape character
        text = json.dumps({"at": now(), "event": event} | _masked(content), default=str)
        try:
            with suppress(ValueError):  # a notice may end after the log
                self._file.write(text + "\n")
        except OSError as error:  # a full disk is no reason to end a search
            if not self._has_failed:
                self._has_failed = True
                self._observer.note(f"--log-json: {error.strerror or error}; the log will lack events")


def _masked(value: Any) -> Any:
    """`value` with `without_passwords` of each text in it."""
    if isinstance(value, dict):
        return {key: _masked(content) for key, content in value.items()}
    return without_passwords(value) if isinstance(value, str) else value


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read()
