"""Trials in TensorBoard and MLflow, read back with these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpi_opt.core.trial import Outcome
from mpi_opt.errors import ConfigurationError
from mpi_opt.views import trackers
from mpi_opt.views.trackers import FailSafeTracker, Tracker, make_tracker
from tests.mpi_opt.outcomes import a_fold, an_outcome, several_figures
from tests.optional_packages import needs

FOLDS = [a_fold(fold, 0.5, 1.0, {"val_loss": [1.0 + fold, 0.5]}) for fold in (0, 1)]
GOOD = an_outcome(7, "complete", 0.5, 0.1, 2.0, FOLDS)
BAD = an_outcome(8, "failed", None, None, 1.0, [], "ValueError: no data at http://ada:secret@host")
TWO = replace(GOOD, number=9, figures_of_merit=several_figures({"val_loss": 0.5, "seconds": 12.0}, {"val_loss": 0.1}))
POINT = {"learning_rate": 0.01, "optimizer": "adam", "nesterov": True, "layers": None}


def test_figures_of_merit_and_the_duration_have_epoch_0() -> None:
    curves = [("val_loss", 1.5, 0), ("val_loss", 0.5, 1)]
    one = [("figure_of_merit", 0.5, 0), ("uncertainty", 0.1, 0), ("duration_s", 2.0, 0)]
    two = [("figure_of_merit/val_loss", 0.5, 0), ("figure_of_merit/seconds", 12.0, 0)]
    assert list(trackers._metrics(GOOD)) == [*curves, *one]
    assert list(trackers._metrics(TWO)) == [*curves, *one[:2], *two, one[2]]


@needs("tensorboardX")
def test_tensorboard_reads_curves_and_figure_of_merit(tmp_path: Path) -> None:
    import tensorboard.backend.event_processing.event_accumulator as reading

    tracker = make_tracker(f"tensorboard:{tmp_path / 'runs'}", "my study")
    for outcome in (GOOD, BAD, TWO):
        tracker.record(outcome, POINT)
    folders = sorted((tmp_path / "runs" / "my study").iterdir())
    assert [folder.name for folder in folders] == ["trial-00007", "trial-00008", "trial-00009"]
    events, of_two = (reading.EventAccumulator(str(folder)) for folder in (folders[0], folders[2]))
    events.Reload()
    of_two.Reload()
    assert [(e.step, e.value) for e in events.Scalars("val_loss")] == [(0, 1.5), (1, 0.5)]
    assert [(e.step, e.value) for e in events.Scalars("figure_of_merit")] == [(0, 0.5)]
    assert of_two.Scalars("figure_of_merit/seconds")[0].value == 12.0
    assert [(e.step, e.value) for e in of_two.Scalars("val_loss")] == [(0, 1.5), (1, 0.5)], "the curve alone"


@needs("mlflow")
def test_mlflow_reads_runs_with_parameters_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.setattr(trackers, "MLFLOW_BATCH", 2)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    try:
        tracker = make_tracker(f"mlflow:{uri}", "my study")
    except ConfigurationError as error:
        pytest.skip(f"this mlflow keeps nothing by itself: {error}")
    for outcome in (GOOD, BAD, TWO):
        tracker.record(outcome, POINT)
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("my study").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    good, bad, two = runs["trial 7"], runs["trial 8"], runs["trial 9"]
    assert good.data.params == {name: str(value) for name, value in POINT.items()} | {"layers": "null"}
    numbers = {"val_loss": 0.5, "figure_of_merit": 0.5, "uncertainty": 0.1, "duration_s": 2.0}
    assert good.data.metrics == numbers
    assert two.data.metrics == numbers | {"figure_of_merit/val_loss": 0.5, "figure_of_merit/seconds": 12.0}
    history = client.get_metric_history(good.info.run_id, "val_loss")
    assert [(m.step, m.value) for m in sorted(history, key=lambda m: m.step)] == [(0, 1.5), (1, 0.5)]
    assert (good.info.status, bad.info.status) == ("FINISHED", "FAILED")
    assert bad.data.tags["error"] == "ValueError: no data at http://ada:***@host"


def test_unknown_tracker_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="wandb") as caught:
        make_tracker("wandb:x", "s")
    assert "tensorboard:PLACE" in caught.value.cure


def test_tracker_that_fails_is_reported_once_and_not_used_again(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(Tracker):
        n_calls = 0

        def record(self, outcome: Outcome, parameters: dict) -> None:
            self.n_calls += 1
            raise OSError("disk full")

    broken = Broken()
    tracker = FailSafeTracker(broken)
    for _ in range(3):
        tracker.record(GOOD, POINT)
    assert broken.n_calls == 1
    assert capsys.readouterr().err.count("disk full") == 1
