"""The data of the report as one JSON value, in columns.

Figures of merit have all digits, other numbers nine, which is the precision of float32.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from itertools import chain, combinations
from typing import Any

from mpi_opt.core.search_space.space import Categorical, Dimension, Integer
from mpi_opt.core.trial import TrialRecord
from mpi_opt.store.records import CurveRecord, FoldRecord
from mpi_opt.study.budgets import budget_text
from mpi_opt.study.presentation import main_figure_name, with_null
from mpi_opt.study.study import Study
from mpi_opt.views.block_label import block_label
from mpi_opt.views.figures.importance import MIN_TRIALS, Forest
from mpi_opt.views.figures.timeline import Timeline
from mpi_opt.views.page.drawn_trials import Drawn
from mpi_opt.views.series import figures as series
from mpi_opt.views.series.axes import Axis, hyperparameter_axis, unit_positions, whole_axis
from mpi_opt.views.series.figures import (
    Curve,
    contour_of,
    curves_of,
    front_axes,
    front_note,
    history_of,
    parallel_of,
    points_of_trials,
)
from mpi_opt.views.text.tables import error_line

MAX_CURVE_VALUES = 250_000
"""The largest number of values of learning curves in a page, over all metrics."""

MAX_EPOCHS = 60
"""The largest number of points per curve. In longer curves, a point is the last known value of 2, 3, … epochs."""

DIGITS = 9
"""Significant digits of the numbers of the page, except figures of merit."""

N_PAIRS = 4
"""The number of most important hyperparameters; contours are drawn of all pairs of these."""


def report_data(
    study: Study,
    drawn: Drawn,
    forest: Forest | None,
    folds: Sequence[FoldRecord],
    curves: Sequence[CurveRecord],
) -> dict[str, Any]:
    """The data of all figures of the page. Trials are identified by their index among those that are drawn."""
    trials = drawn.trials
    index = {trial.number: i for i, trial in enumerate(trials)}
    parallel = parallel_of(study)
    return {
        "study": {"figure_of_merit": main_figure_name(study.record), "sign": -1 if study.record.maximize else 1},
        "space": [_dimension(trials, name, dimension) for name, dimension in study.space.items()],
        "trials": _trials(study, trials),
        "values": [_places(study, trials, name) for name in study.space],
        "history": _history(study, index),
        "y": _axis(parallel.axes[-1]),
        "note": parallel.note,
        "folds": _folds(study, folds, index),
        "curves": _curves(study, curves, index),
        "forest": _forest(study, forest) if forest else None,
        "min_trials": MIN_TRIALS,
        "front": _front(study, trials) if study.figures_of_merit.are_several else None,
        "blocks": _blocks(drawn.timeline, index, drawn.blocks_note) if drawn.timeline else None,
    }


def as_script(data: Any) -> str:
    """`data` as JSON that is valid within a <script> element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def finite(value: float | None) -> float | None:
    """`value`; None in place of NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def _finite(values: Iterable[float | None]) -> list[float | None]:
    return [finite(value) for value in values]


def short(value: float | None, digits: int = DIGITS) -> float | int | None:
    """`value` with `digits` significant digits; None in place of NaN and infinity."""
    known = finite(value)
    if known is None:
        return None
    rounded = float(f"{known:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _shortened(values: Iterable[float | None]) -> list[float | int | None]:
    return [short(value) for value in values]


def _trials(study: Study, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    return {
        "number": [trial.number for trial in trials],
        "state": [trial.state for trial in trials],
        "figure_of_merit": _finite(trial.figure_of_merit for trial in trials),
        "uncertainty": _shortened(trial.uncertainty for trial in trials),
        "duration": _shortened(trial.duration_s for trial in trials),
        "attempts": [trial.attempts for trial in trials],
        # sparse columns are mappings: most studies of 100,000 trials have neither budgets, notes nor errors
        "budget": {i: text for i, trial in enumerate(trials) if (text := budget_text(study.record, trial))},
        "note": {i: trial.note for i, trial in enumerate(trials) if trial.note},
        "error": {i: (error_line(trial.error) or "")[:200] for i, trial in enumerate(trials) if trial.error},
    }


def _front(study: Study, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    """The figures of merit of each of `trials`, None if it has none, and whether it is on the Pareto front."""
    names, axes = study.figures_of_merit.names, front_axes(study)
    known = [trial.figures_of_merit for trial in trials]
    figures = [_finite(by_name[name] for name in names) if by_name else None for by_name in known]
    pareto = [int(bool(trial.pareto)) for trial in trials]
    pairs = [
        {"x": i, "y": j, "note": front_note(study, axes, names[i], names[j])}
        for i, j in combinations(range(len(names)), 2)
    ]
    shown = {"axes": [_axis(axes[name]) for name in names], "pairs": pairs}
    return {"names": names, "values": figures, "pareto": pareto} | shown


def _axis(axis: Axis) -> dict[str, Any]:
    ends = {"low": axis.low, "high": axis.high}
    return {"title": axis.title, "kind": axis.kind, **ends, "ticks": [list(tick) for tick in axis.ticks]}


def _dimension(trials: Sequence[TrialRecord], name: str, dimension: Dimension) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "axis": _axis(hyperparameter_axis(name, dimension))}
    if isinstance(dimension, Categorical):
        entry["categories"] = [str(category) for category in dimension.categories]
    if isinstance(dimension, Integer):
        entry["whole"] = True
    if isinstance(dimension, Integer) and max(abs(dimension.low), abs(dimension.high)) >= 10**DIGITS:
        # numbers of the page are rounded, and those of JavaScript are not exact beyond 2**53
        entry["texts"] = [str(with_null(t.parameters[name])) if name in t.parameters else None for t in trials]
    return entry


def _places(study: Study, trials: Sequence[TrialRecord], name: str) -> list[float | int | None]:
    """The positions of `trials` on the axis of a hyperparameter, with as many digits as the axis needs."""
    axis = hyperparameter_axis(name, study.space[name])
    size, width = max(abs(axis.low), abs(axis.high)), axis.high - axis.low
    digits = DIGITS if axis.kind == "log" else min(17, DIGITS + max(0, math.ceil(math.log10(size / width))))
    return [short(value, digits) for value in points_of_trials(study, trials, name)]


def _history(study: Study, index: dict[int, int]) -> dict[str, Any]:
    shown = history_of(study)
    places = [place for place, trial in enumerate(shown.trials) if trial.number in index]
    return {
        "ended": [index[shown.trials[place].number] for place in places],
        # all of them are the numbers 0, 1, 2, …
        "places": None if len(places) == len(shown.trials) else places,
        "best": [[i, index[trial.number]] for i, trial in shown.best],
        "x": _axis(shown.x),
        "y": _axis(shown.y),
        "whole": _axis(shown.whole),
        "note": shown.note,
        "whole_note": shown.whole_note,
    }


def _folds(study: Study, folds: Iterable[FoldRecord], index: dict[int, int]) -> dict[str, Any]:
    """The figures of merit of the folds of the best trials with several folds."""
    by_trial: dict[int, list[float]] = {}
    for fold in folds:
        if fold.figure_of_merit is not None and math.isfinite(fold.figure_of_merit):
            by_trial.setdefault(fold.number, []).append(fold.figure_of_merit)
    found = [t for t in series.complete(study) if len(by_trial.get(t.number, ())) > 1]
    chosen = [trial for trial in found if trial.number in index][
        : 12 if len(study.trials) > 1000 else 20
    ]  # long numbers need more space
    values = [by_trial[trial.number] for trial in chosen]
    ticks = tuple((float(i), str(trial.number)) for i, trial in enumerate(chosen))
    return {
        "trials": [index[trial.number] for trial in chosen],
        "values": values,
        "x": _axis(Axis("trial", -0.5, len(chosen) - 0.5, "category", ticks)),
        "y": _axis(whole_axis(main_figure_name(study.record), chain(*values, series.main_figures(chosen)))),
        "note": ""
        if len(chosen) == len(found)
        else f"the best {len(chosen)} of {len(found):,} trials with several folds",
    }


def _curves(study: Study, curves: Iterable[CurveRecord], index: dict[int, int]) -> dict[str, Any]:
    """Metric -> its curves, for at most six metrics, the figure of merit first.

    Of many trials, the best and some others are drawn.
    """
    means = series.mean_curves(curves)
    main = series.main_metric(study.record, means)
    found: dict[str, Any] = {}
    for name in sorted(means, key=lambda name: (name != main, name))[:6]:
        of_drawn = {number: curve for number, curve in means[name].items() if number in index}
        if not of_drawn:
            continue
        most_values = max(1, *map(len, of_drawn.values()))
        most = max(200, MAX_CURVE_VALUES // (min(len(means), 6) * min(most_values, MAX_EPOCHS)))
        shown = curves_of(study, name, of_drawn, most=most, max_points=MAX_EPOCHS)
        lines = [{"trial": index[n], "values": _dense(curve)} for n, curve in shown.values.items()]
        axes = {"x": _axis(shown.x), "y": _axis(shown.y), "note": shown.note}
        found[name] = {"stride": shown.stride, "lines": lines} | axes
    return found


def _dense(curve: Curve) -> list[float | int | None]:
    """The values of all points of a curve, None where there is none."""
    return _shortened(map(curve.get, range(1 + max(curve, default=-1))))


def _forest(study: Study, forest: Forest) -> dict[str, Any]:
    """The importances, the curve of each hyperparameter, and the contours of the most important pairs."""
    index, ranked = {name: i for i, name in enumerate(study.space)}, forest.ranked()
    return {
        "shares": [{"name": name, "index": index[name], "share": short(forest.shares[name])} for name in ranked],
        "curves": [_mean_curve(forest, name, dimension) for name, dimension in study.space.items()],
        "pairs": [
            {"x": index[x], "y": index[y]} | _contour(study, forest, x, y) for x, y in combinations(ranked[:N_PAIRS], 2)
        ],
    }


def _mean_curve(forest: Forest, name: str, dimension: Dimension) -> dict[str, Any]:
    units, places = unit_positions(dimension)
    return {"x": _shortened(places), "y": _finite(forest.curve(name, units))}


def _contour(study: Study, forest: Forest, x: str, y: str) -> dict[str, Any]:
    shown = contour_of(study, forest.surface, x, y)
    places = {"px": _shortened(shown.places_x), "py": _shortened(shown.places_y)}
    means = [_finite(row) for row in shown.means]
    return places | {"z": means, "tones": _axis(shown.z), "n_rings": len(shown.trials), "note": shown.note}


def _blocks(timeline: Timeline, index: dict[int, int], note: str) -> dict[str, Any]:
    rows = {block: row for row, block in enumerate(timeline.rows)}
    return {
        "names": list(map(block_label, timeline.rows)),
        "note": note,
        "unit": timeline.unit_s,
        "x": _axis(timeline.axis),
        "bars": [
            [rows[bar.block], index[bar.number], round(bar.begin_s, 3), round(bar.end_s, 3), bar.outcome]
            + ([bar.strip, bar.strips, round(bar.width, 3)] if bar.strips > 1 or bar.width < 1 else [])
            for bar in timeline.bars
        ],
    }
