"""The trials and curves of a study, sorted, grouped and averaged, for figures, texts and pages."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime

from mpi_opt.core.thinning import thinned
from mpi_opt.core.trial import TrialRecord, is_usable
from mpi_opt.errors import ConfigurationError
from mpi_opt.store.records import CurveRecord, StudyRecord
from mpi_opt.study.study import Study

MAX_VALUES, MIN_TRIALS, MAX_TRIALS = 1_000_000, 200, 20_000
"""A figure reads about `MAX_VALUES` values of curves, but at least `MIN_TRIALS` and at most `MAX_TRIALS` trials."""

MeanCurves = dict[str, dict[int, list[float]]]
"""Metric -> trial number -> one value per epoch."""


def main_figure_name(study: StudyRecord) -> str:
    """The name of the figure of merit, or of the first if there are several."""
    if study.figures_of_merit.are_several:
        return study.figures_of_merit.names[0]
    name = str(study.configuration.get("figure_of_merit") or "val_loss")
    is_unnamed = name == "val_loss" and study.configuration.get("objective", "train") != "train"
    return "figure of merit" if is_unnamed else name


def complete(study: Study) -> list[TrialRecord]:
    """The complete trials, best first."""
    return [trial for trial in study.ranked(("complete",)) if is_usable(trial.figure_of_merit)]


def main_figures(trials: Iterable[TrialRecord]) -> list[float]:
    """The figures of merit of the trials that have one."""
    return [trial.figure_of_merit for trial in trials if trial.figure_of_merit is not None]


def by_end_time(study: Study) -> list[TrialRecord]:
    """The finished trials in the order in which they ended."""
    return sorted((t for t in study.trials if t.finished_at), key=lambda t: (t.finished_at, t.number))


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


def mean_curves(curves: Iterable[CurveRecord]) -> MeanCurves:
    """The mean over the folds of each metric in each epoch; NaN where no fold has a value."""
    gathered: dict[str, dict[int, list[list[float]]]] = {}
    for curve in curves:
        gathered.setdefault(curve.name, {}).setdefault(curve.number, []).append(curve.values)
    return {name: {number: _mean(folds) for number, folds in by_trial.items()} for name, by_trial in gathered.items()}


def main_metric(study: StudyRecord, means: MeanCurves) -> str | None:
    """The metric whose curves are shown first: the figure of merit, else a validation metric, else any metric."""
    wanted = main_figure_name(study)
    if wanted in means:
        return wanted
    return next((name for name in means if name.startswith("val_")), next(iter(means), None))


def sensible_range(values: Iterable[float], maximize: bool) -> tuple[float, float] | None:
    """The limits of an axis that shows `values` except very bad ones; None without values."""
    known = sorted(0.25 * value for value in values if math.isfinite(value))  # differences and margins are finite
    if not known:
        return None
    quarter, middle, three_quarters = (known[int(q * (len(known) - 1))] for q in (0.25, 0.5, 0.75))
    width = three_quarters - quarter or abs(middle) or 0.25
    if maximize:
        low, high = max(known[0], quarter - 1.5 * width), known[-1]
    else:
        low, high = known[0], min(known[-1], three_quarters + 1.5 * width)
    return _with_margins(low, high)


def curve_range(values: Iterable[float]) -> tuple[float, float] | None:
    """The limits of an axis that shows `values` between the first and the last percentile; None without values."""
    known = sorted(0.25 * value for value in values if math.isfinite(value))
    if not known:
        return None
    return _with_margins(known[len(known) // 100], known[-1 - len(known) // 100])


def _with_margins(low: float, high: float) -> tuple[float, float]:
    """The limits of an axis, for a quarter of the smallest and of the largest value on it."""
    margin = 0.06 * (high - low) or 0.06 * (abs(high) or 0.25)
    largest = 0.25 * sys.float_info.max
    return 4.0 * max(low - margin, -largest), 4.0 * min(high + margin, largest)


def _mean(folds: list[list[float]]) -> list[float]:
    means = []
    for epoch in range(max(map(len, folds))):
        values = [fold[epoch] for fold in folds if epoch < len(fold) and math.isfinite(fold[epoch])]
        means.append(sum(values) / len(values) if values else math.nan)
    return means


def local_time(stamp: str | None) -> datetime | None:
    """A time of the store as local time without a time zone, for libraries that require it."""
    return None if stamp is None else datetime.fromisoformat(stamp).astimezone().replace(tzinfo=None)
