"""A study's trials and curves in the orders and groups that pictures need."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from mpi_opt.core.trial import TrialRecord, is_usable

if TYPE_CHECKING:
    from mpi_opt.store.records import CurveRecord
    from mpi_opt.study.study import Study

MAX_VALUES, MIN_TRIALS, MAX_TRIALS = 1_000_000, 200, 20_000
"""So many values of curves are read to be drawn, of so many trials at least, of so many at most."""

MeanCurves = dict[str, dict[int, list[float]]]
"""Metric -> trial number -> one value an epoch."""


def merit_name(study: Study) -> str:
    """What the figure of merit is called; of several the first."""
    if study.merits.are_several:
        return study.merits.names[0]
    name = str(study.configuration.get("figure_of_merit") or "figure of merit")
    return name if study.configuration.get("objective", "train") == "train" else "figure of merit"


def complete(study: Study) -> list[TrialRecord]:
    """The complete trials, best first."""
    return [trial for trial in study.ranked(("complete",)) if is_usable(trial.figure_of_merit)]


def in_order_of_ending(study: Study) -> list[TrialRecord]:
    """The finished trials, as they ended."""
    return sorted((t for t in study.trials if t.finished_at), key=lambda t: (t.finished_at, t.number))


def improvements(trials: Sequence[TrialRecord], maximize: bool) -> list[tuple[int, TrialRecord]]:
    """Where in `trials` one is complete and better than all before it, and which."""
    found: list[tuple[int, TrialRecord]] = []
    sign = -1.0 if maximize else 1.0
    for index, trial in enumerate(trials):
        if trial.state != "complete" or not is_usable(trial.figure_of_merit):
            continue
        if not found or sign * trial.figure_of_merit < sign * found[-1][1].figure_of_merit:
            found.append((index, trial))
    return found


def curves_to_draw(study: Study) -> list[CurveRecord]:
    """The curves of all trials; of a study that has too many values to read, of the best and of some others."""
    if not study.trials:
        return []
    ordered = [trial.number for trial in study.ranked()]
    n_values = sum(len(curve.values) for curve in study.curves(ordered[:1]))
    most = min(MAX_TRIALS, max(MIN_TRIALS, MAX_VALUES // max(n_values, 1)))
    return study.curves(None if len(ordered) <= most else some(ordered, most))


def some(ordered: list[int], most: int) -> list[int]:
    """At most `most` of `ordered`: the first half of these from its beginning, the others spread over the rest."""
    if len(ordered) <= most:
        return ordered
    first, rest = ordered[: most // 2], ordered[most // 2 :]
    return first + rest[:: math.ceil(len(rest) / (most - len(first)))]


def mean_curves(curves: Iterable[CurveRecord]) -> MeanCurves:
    """The mean over the folds of each metric, epoch by epoch; NaN where no fold has a value."""
    gathered: dict[str, dict[int, list[list[float]]]] = {}
    for curve in curves:
        gathered.setdefault(curve.name, {}).setdefault(curve.number, []).append(curve.values)
    return {name: {number: _mean(folds) for number, folds in by_trial.items()} for name, by_trial in gathered.items()}


def main_metric(study: Study, means: MeanCurves) -> str | None:
    """The metric that curves are shown of first: the figure of merit, or another validation metric, or any."""
    wanted = merit_name(study)
    if wanted in means:
        return wanted
    return next((name for name in means if name.startswith("val_")), next(iter(means), None))


def sensible_range(values: Iterable[float], maximize: bool) -> tuple[float, float] | None:
    """The limits of an axis that shows `values` but for those far on the bad side; None without values."""
    known = sorted(value for value in values if math.isfinite(value))
    if not known:
        return None
    quarter, middle, three_quarters = (known[int(q * (len(known) - 1))] for q in (0.25, 0.5, 0.75))
    width = three_quarters - quarter or abs(middle) or 1.0
    if maximize:
        low, high = max(known[0], quarter - 1.5 * width), known[-1]
    else:
        low, high = known[0], min(known[-1], three_quarters + 1.5 * width)
    margin = 0.06 * (high - low) or 0.06 * (abs(high) or 1.0)
    return low - margin, high + margin


def curve_range(values: Iterable[float]) -> tuple[float, float] | None:
    """The limits of an axis that shows all of `values` but the most extreme hundredths; None without values."""
    known = sorted(value for value in values if math.isfinite(value))
    if not known:
        return None
    low, high = known[len(known) // 100], known[-1 - len(known) // 100]
    margin = 0.06 * (high - low) or 0.06 * (abs(high) or 1.0)
    return low - margin, high + margin


def _mean(folds: list[list[float]]) -> list[float]:
    means = []
    for epoch in range(max(map(len, folds))):
        values = [fold[epoch] for fold in folds if epoch < len(fold) and math.isfinite(fold[epoch])]
        means.append(sum(values) / len(values) if values else math.nan)
    return means


def local_time(stamp: str | None) -> datetime | None:
    """A time of the store as local time without a zone, as some libraries want it."""
    return None if stamp is None else datetime.fromisoformat(stamp).astimezone().replace(tzinfo=None)
