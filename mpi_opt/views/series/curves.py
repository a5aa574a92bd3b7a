"""The learning curves of a study: those that are drawn, averaged over the folds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mpi_opt.core.thinning import thinned
from mpi_opt.store.records import CurveRecord, StudyRecord
from mpi_opt.study.presentation import main_figure_name
from mpi_opt.study.study import Study
from mpi_opt.views.series.axes import Axis, curve_range, linear_axis, outside
from mpi_opt.views.series.trials import complete

MAX_VALUES, MIN_TRIALS, MAX_TRIALS = 1_000_000, 200, 20_000
"""A figure reads about `MAX_VALUES` values of curves, but at least `MIN_TRIALS` and at most `MAX_TRIALS` trials."""

Curve = dict[int, float]
"""Epoch or step -> value, for those that have a finite value."""

MeanCurves = dict[str, dict[int, Curve]]
"""Metric -> trial number -> its curve."""


N_BEST = 10
"""The number of highlighted best trials."""


@dataclass(frozen=True)
class Curves:
    """The curves of one metric.

    Attributes:
        values: Trial number -> its curve, the best trial first. Epochs are counted in units of `stride`.
        stride: The number of epochs of a point, which has their last known value.
        best: The numbers of the best trials with a curve, best first; at most `N_BEST`.
        x: The axis of the epochs.
        y: The axis of the metric, from the first to the last percentile.
        note: How many trials and values are not in the figure, and where they are; empty if all are.
    """

    values: dict[int, Curve]
    stride: int
    best: list[int]
    x: Axis
    y: Axis
    note: str


def curves_of(
    study: Study, metric: str, means: dict[int, Curve], *, most: int | None = None, max_points: int | None = None
) -> Curves:
    """The curves `means` of a metric, in a form that can be drawn.

    Args:
        study: The study.
        metric: The name of the metric.
        means: Trial number -> its curve.
        most: The largest number of curves; if there are more, the best and some others are kept.
        max_points: The largest number of points per curve.
    """
    ranked = [trial.number for trial in complete(study) if trial.number in means]
    known = set(ranked)
    ordered = [*ranked, *(number for number in sorted(means) if number not in known)]
    numbers = ordered if most is None else thinned(ordered, most)
    # epochs are counted from 0, and short curves must keep their place in a study with one long one
    longest = 1 + max(max(curve, default=0) for curve in means.values())
    stride = 1 if max_points is None else math.ceil(longest / max_points)
    values = {number: last_known(means[number], stride) for number in numbers}
    every = [value for curve in values.values() for value in curve.values()]
    y = linear_axis(metric, curve_range(every) or (0.0, 1.0))
    x = linear_axis("epoch", (0.0, max(1.0, stride * (math.ceil(longest / stride) - 1.0))), whole=True)
    n_trials = sum(trial.state == "complete" for trial in study.trials)
    parts = [f"curves of {len(values):,} of {n_trials:,} trials"] if len(values) < n_trials else []
    return Curves(
        values, stride, ranked[:N_BEST], x, y, "; ".join([*parts, *filter(None, [outside(y, every, "value")])])
    )


def last_known(curve: Curve, stride: int) -> Curve:
    """The last value of each group of `stride` epochs that has one, by the number of the group."""
    return curve if stride == 1 else {epoch // stride: value for epoch, value in sorted(curve.items())}


def curves_to_draw(study: Study) -> list[CurveRecord]:
    """The curves of all trials.

    If these have more than about `MAX_VALUES` values, only those of the best trials and of some others are read. Every
    trial is assumed to have as many values as the best one.
    """
    if not study.trials:
        return []
    ordered = [trial.number for trial in study.ranked()]
    n_values = sum(len(curve.values) for curve in study.curves(ordered[:1]))
    most = min(MAX_TRIALS, max(MIN_TRIALS, MAX_VALUES // max(n_values, 1)))
    return study.curves(None if len(ordered) <= most else thinned(ordered, most))


def mean_curves(curves: Iterable[CurveRecord]) -> MeanCurves:
    """The mean over the folds of each metric in each epoch in which a fold has a finite value."""
    gathered: dict[str, dict[int, list[CurveRecord]]] = {}
    for curve in curves:
        gathered.setdefault(curve.name, {}).setdefault(curve.number, []).append(curve)
    return {name: {number: _mean(folds) for number, folds in by_trial.items()} for name, by_trial in gathered.items()}


def main_metric(study: StudyRecord, means: MeanCurves) -> str | None:
    """The metric whose curves are shown first: the figure of merit, else a validation metric, else any metric."""
    wanted = main_figure_name(study)
    if wanted in means:
        return wanted
    return next((name for name in means if name.startswith("val_")), next(iter(means), None))


def _mean(folds: list[CurveRecord]) -> Curve:
    by_epoch: dict[int, list[float]] = {}
    for fold in folds:
        for epoch, value in fold.points():
            if math.isfinite(value):
                by_epoch.setdefault(epoch, []).append(value)
    return {epoch: _mean_value(values) for epoch, values in sorted(by_epoch.items())}


def _mean_value(values: list[float]) -> float:
    total = sum(values)
    # the sum of huge values may overflow, the mean does not
    return total / len(values) if math.isfinite(total) else sum(value / len(values) for value in values)
