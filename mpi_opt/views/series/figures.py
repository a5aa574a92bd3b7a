"""The data of all figures of trials: their order, curves, history, slices, contour, folds and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mpi_opt.core.thinning import thinned
from mpi_opt.core.trial import TrialRecord, is_usable
from mpi_opt.errors import ConfigurationError
from mpi_opt.store.records import CurveRecord, StudyRecord
from mpi_opt.study.presentation import main_figure_name
from mpi_opt.study.study import Study
from mpi_opt.views.series.axes import (
    Axis,
    curve_range,
    figure_axis,
    hyperparameter_axis,
    linear_axis,
    outside,
    position,
    spread_position,
    unit_positions,
    whole_axis,
)

MAX_RINGS = 1000
"""The largest number of trials that are drawn as rings on a contour: the best ones."""


@dataclass(frozen=True)
class History:
    """The figures of merit in the order of ending.

    Attributes:
        trials: All trials that have ended, in this order.
        best: The trials that were better than all before them, each with its index in `trials`.
        x: The axis of the order.
        y: The axis of the figure of merit, without very bad values.
        whole: The axis of all figures of merit.
        note: How many trials are outside of `y`, and where; empty if none is.
        whole_note: The same for `whole`, whose limits are those of `LARGEST`.
    """

    trials: list[TrialRecord]
    best: list[tuple[int, TrialRecord]]
    x: Axis
    y: Axis
    whole: Axis
    note: str
    whole_note: str


def history_of(study: Study) -> History:
    """The data of the history of a study."""
    trials, name = by_end_time(study), main_figure_name(study.record)
    drawn = main_figures(filter(has_point, trials))
    y, whole = axis_of_figures(study), whole_axis(name, drawn)
    x = linear_axis("trials in the order of ending", (-0.5, max(len(trials) - 0.5, 1.0)), whole=True)
    best = improvements(trials, study.record.maximize)
    return History(trials, best, x, y, whole, outside(y, drawn), outside(whole, drawn))


def has_point(trial: TrialRecord) -> bool:
    """Whether a trial that has ended has a figure of merit that can be drawn."""
    return trial.state in ("complete", "pruned") and is_usable(trial.figure_of_merit)


def axis_of_figures(study: Study) -> Axis:
    """The axis of the figure of merit in all figures of trials, without very bad values."""
    return figure_axis(main_figure_name(study.record), main_figures(complete(study)), study.record.maximize)


@dataclass(frozen=True)
class Parallel:
    """Parallel coordinates.

    Attributes:
        trials: The complete trials that are drawn, best first.
        axes: The axis of each hyperparameter, and of the figure of merit.
        note: How many trials are outside of the axis of the figure of merit, or not drawn; empty if none is.
    """

    trials: list[TrialRecord]
    axes: list[Axis]
    note: str


def parallel_of(study: Study, most: int | None = None) -> Parallel:
    """The data of parallel coordinates, of at most the `most` best trials."""
    found, y = complete(study), axis_of_figures(study)
    trials = found[:most]
    axes = [hyperparameter_axis(name, dimension) for name, dimension in study.space.items()]
    note = _joined(_number_drawn(len(trials), len(found)), outside(y, main_figures(trials)))
    return Parallel(trials, [*axes, y], note)


def parallel_heights(study: Study, shown: Parallel, inactive: float, beyond: tuple[float, float]) -> np.ndarray:
    """The heights of the lines at each axis, as fractions of the axis; shape (n_trials, n_axes).

    Args:
        study: The study.
        shown: The data.
        inactive: The height of a hyperparameter that is inactive in a trial.
        beyond: The heights of figures of merit below and above the range of their axis.
    """
    heights = np.full((len(shown.trials), len(shown.axes)), inactive)
    for column, (name, dimension) in enumerate(study.space.items()):
        active = [(row, trial) for row, trial in enumerate(shown.trials) if name in trial.parameters]
        places = shown.axes[column].fractions(position(dimension, trial.parameters[name]) for _, trial in active)
        heights[[row for row, _ in active], column] = places
    figures = main_figures(shown.trials)
    sides = np.array([shown.axes[-1].side(figure) for figure in figures], int)
    last = shown.axes[-1].fractions(figures)
    heights[:, -1] = np.select([sides < 0, sides > 0], beyond, last)
    return heights


@dataclass(frozen=True)
class Contour:
    """The mean of the forest over all hyperparameters except two.

    Attributes:
        x: The axis of the first hyperparameter.
        y: The axis of the second one.
        z: The axis of the mean, for the colours.
        places_x: The places of the columns of `means`.
        places_y: The places of its rows.
        means: Shape (n_y, n_x).
        trials: The trials that are drawn as rings, best first.
        note: How many trials are not drawn; empty if all are.
    """

    x: Axis
    y: Axis
    z: Axis
    places_x: np.ndarray
    places_y: np.ndarray
    means: np.ndarray
    trials: list[TrialRecord]
    note: str


Surface = Callable[[str, str, np.ndarray, np.ndarray], np.ndarray]
"""`Forest.surface`"""


def contour_of(study: Study, surface: Surface, x: str, y: str) -> Contour:
    """The data of the contour of two hyperparameters."""
    (units_x, places_x), (units_y, places_y) = unit_positions(study.space[x]), unit_positions(study.space[y])
    means = surface(x, y, units_x, units_y)
    z = linear_axis(main_figure_name(study.record), (float(means.min()), float(means.max())))
    found = [t for t in complete(study) if x in t.parameters and y in t.parameters]
    trials = found[:MAX_RINGS]
    x_axis, y_axis = (hyperparameter_axis(name, study.space[name]) for name in (x, y))
    return Contour(x_axis, y_axis, z, places_x, places_y, means, trials, _number_drawn(len(trials), len(found)))


def points_of_trials(study: Study, trials: Iterable[TrialRecord], name: str) -> np.ndarray:
    """The positions of trials on the axis of a hyperparameter; NaN where it is inactive; shape (n_trials,)."""
    index, dimension = list(study.space).index(name), study.space[name]
    return np.array(
        [
            spread_position(dimension, t.parameters[name], t.number, index) if name in t.parameters else np.nan
            for t in trials
        ],
        float,
    )


def _number_drawn(n: int, n_all: int) -> str:
    return f"the best {n:,} of {n_all:,} complete trials" if n < n_all else ""


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def front_of(study: Study) -> list[TrialRecord]:
    """The trials of the figure of a Pareto front, in any order: the complete ones."""
    return [trial for trial in study.trials if trial.state == "complete" and trial.figures_of_merit]


def front_axes(study: Study) -> dict[str, Axis]:
    """The axis of each of several figures of merit, over all complete trials."""
    pairs, trials = zip(study.figures_of_merit.names, study.figures_of_merit.directions, strict=True), front_of(study)
    return {
        name: whole_axis(f"{name} ({direction})", [t.figures_of_merit[name] for t in trials])
        for name, direction in pairs
    }


def front_note(study: Study, axes: dict[str, Axis], x: str, y: str) -> str:
    """How many trials are outside of the plane of two figures of merit; empty if none is."""
    found = {name: outside(axes[name], [t.figures_of_merit[name] for t in front_of(study)]) for name in (x, y)}
    return "; ".join(f"{name}: {text}" for name, text in found.items() if text)


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


def complete(study: Study) -> list[TrialRecord]:
    """The complete trials with a figure of merit that can be drawn, best first."""
    return study.ranked(("complete",), finite=True)


def main_figures(trials: Iterable[TrialRecord]) -> list[float]:
    """The figures of merit of the trials that have one."""
    return [figure for trial in trials if (figure := trial.figure_of_merit) is not None]


def by_end_time(study: Study) -> list[TrialRecord]:
    """The finished trials in the order in which they ended."""
    return sorted((t for t in study.trials if t.finished_at), key=_order_of_ending)


def _order_of_ending(trial: TrialRecord) -> tuple[float, str, int]:
    """The position that the store recorded: the clocks of hosts differ. Old stores have the same one for several."""
    return math.inf if trial.ended is None else trial.ended, trial.finished_at or "", trial.number


def improvements(trials: Sequence[TrialRecord], maximize: bool) -> list[tuple[int, TrialRecord]]:
    """The complete trials that are better than all before them, each with its index in `trials`."""
    found: list[tuple[int, TrialRecord]] = []
    sign, best = -1.0 if maximize else 1.0, math.inf
    for index, trial in enumerate(trials):
        figure = trial.figure_of_merit
        if trial.state == "complete" and figure is not None and is_usable(figure) and sign * figure < best:
            found.append((index, trial))
            best = sign * figure
    return found


def choose_two(names: Sequence[str], x: str | None, y: str | None, kind: str) -> tuple[str, str]:
    """Two of `names`, which are at least two: `x` and `y`, and the first others in place of None.

    Raises:
        ConfigurationError: `x` or `y` is not one of `names`, or both are the same.
    """
    for name in (x, y):
        if name is not None and name not in names:
            raise ConfigurationError(f"{name!r} is not a {kind} of this study", cure=f"one of: {', '.join(names)}")
    if x is not None and x == y:
        raise ConfigurationError(f"{x} is on both axes", where="--y", cure=f"another {kind}: {', '.join(names)}")
    others = [name for name in names if name not in (x, y)]
    first = x or others.pop(0)
    return first, y or others.pop(0)
