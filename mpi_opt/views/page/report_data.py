"""The data of the report as one JSON value, in columns.

Figures of merit have all digits, other numbers nine, which is the precision of float32.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

from mpi_opt.core.space import Categorical, Dimension, Integer, Real, Space
from mpi_opt.core.thinning import thinned
from mpi_opt.core.trial import TrialRecord
from mpi_opt.store.records import CurveRecord, FoldRecord, readable
from mpi_opt.study.study import Study
from mpi_opt.views import series
from mpi_opt.views.block_label import block_label
from mpi_opt.views.figures.axes import position, unit_positions
from mpi_opt.views.figures.importance import MIN_TRIALS, Forest
from mpi_opt.views.figures.timeline import Timeline
from mpi_opt.views.text.tables import error_line

MAX_CURVE_VALUES = 250_000
"""The largest number of values of learning curves in a page, over all metrics."""

MAX_EPOCHS = 60
"""The largest number of points per curve. In longer curves, a point is the last known value of 2, 3, … epochs."""

N_PAIRS = 4
"""The number of most important hyperparameters; contours are drawn of all pairs of these."""


def report_data(
    study: Study,
    forest: Forest | None,
    timeline: Timeline | None,
    folds: Sequence[FoldRecord],
    curves: Sequence[CurveRecord],
) -> dict[str, Any]:
    """The data of all figures of the page. Trials are identified by their index in the order of their numbers."""
    index = {trial.number: i for i, trial in enumerate(study.trials)}
    limits = series.sensible_range(series.main_figures(series.complete(study)), study.record.maximize)
    return {
        "study": {"figure_of_merit": series.main_figure_name(study.record), "sign": -1 if study.record.maximize else 1},
        "space": [_dimension(name, i, dimension) for i, (name, dimension) in enumerate(study.space.items())],
        "trials": _trials(study.trials),
        "values": [_values(name, dimension, study.trials) for name, dimension in study.space.items()],
        "ended": [index[trial.number] for trial in series.by_end_time(study)],
        "limits": limits and _finite(limits),
        "folds": _folds(folds, index),
        "curves": _curves(study, curves, index),
        "forest": _forest(study, forest) if forest else None,
        "min_trials": MIN_TRIALS,
        "front": _front(study) if study.figures_of_merit.are_several else None,
        "blocks": _blocks(timeline, index) if timeline else None,
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


def short(value: float | None) -> float | int | None:
    """`value` with nine significant digits; None in place of NaN and infinity."""
    known = finite(value)
    if known is None:
        return None
    rounded = float(f"{known:.9g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _shortened(values: Iterable[float | None]) -> list[float | int | None]:
    return [short(value) for value in values]


def _trials(trials: Sequence[TrialRecord]) -> dict[str, Any]:
    return {
        "number": [trial.number for trial in trials],
        "state": [trial.state for trial in trials],
        "figure_of_merit": _finite(trial.figure_of_merit for trial in trials),
        "uncertainty": _shortened(trial.uncertainty for trial in trials),
        "duration": _shortened(trial.duration_s for trial in trials),
        "attempts": [trial.attempts for trial in trials],
        "error": {i: (error_line(trial.error) or "")[:200] for i, trial in enumerate(trials) if trial.error},
    }


def _front(study: Study) -> dict[str, Any]:
    """The figures of merit of every trial, None if it has none, and whether it is on the Pareto front."""
    names = study.figures_of_merit.names
    known = [trial.figures_of_merit for trial in study.trials]
    figures = [_finite(by_name[name] for name in names) if by_name else None for by_name in known]
    pareto = [int(bool(trial.pareto)) for trial in study.trials]
    return {"names": names, "directions": study.figures_of_merit.directions, "values": figures, "pareto": pareto}


def _dimension(name: str, index: int, dimension: Dimension) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "index": index}
    if isinstance(dimension, Categorical):
        return entry | {"categories": [str(category) for category in dimension.categories], "width": 0.9}
    assert isinstance(dimension, Real | Integer), dimension
    is_log, is_whole = dimension.prior == "log-uniform", isinstance(dimension, Integer)
    entry |= {"low": dimension.low, "high": dimension.high, "log": is_log, "whole": is_whole}
    is_coarse = is_whole and dimension.size <= 20 and not is_log
    return entry | ({"width": dimension.step} if is_coarse else {})


def _values(name: str, dimension: Dimension, trials: Sequence[TrialRecord]) -> list[float | int | None]:
    """The position of one hyperparameter of each trial on its axis; None if it is inactive."""
    return [short(position(dimension, t.parameters[name])) if name in t.parameters else None for t in trials]


def _folds(folds: Iterable[FoldRecord], index: dict[int, int]) -> list[list[float | None]]:
    by_trial: list[list[float | None]] = [[] for _ in index]
    for fold in folds:
        if fold.figure_of_merit is not None:
            by_trial[index[fold.number]].append(finite(fold.figure_of_merit))
    return by_trial


def _curves(study: Study, curves: Iterable[CurveRecord], index: dict[int, int]) -> dict[str, Any]:
    """Metric -> its curves, for at most six metrics, the figure of merit first.

    Of many trials, the best and some others are drawn.
    """
    means = series.mean_curves(curves)
    main = series.main_metric(study.record, means)
    ranks = {trial.number: rank for rank, trial in enumerate(series.complete(study))}
    found: dict[str, Any] = {}
    for name in sorted(means, key=lambda name: (name != main, name))[:6]:
        longest = max(map(len, means[name].values()))
        stride = math.ceil(longest / MAX_EPOCHS)
        most = max(200, MAX_CURVE_VALUES // (min(len(means), 6) * min(longest, MAX_EPOCHS)))
        numbers = thinned(sorted(means[name], key=lambda number: ranks.get(number, math.inf)), most)
        values = {n: _shortened(_last_known(means[name][n], stride)) for n in numbers}
        limits = series.curve_range(v for curve in values.values() for v in curve if v is not None) or (0.0, 1.0)
        lines = [{"trial": index[n], "values": curve} for n, curve in values.items()]
        found[name] = {"stride": stride, "limits": _shortened(limits), "lines": lines}
    return found


def _last_known(values: Sequence[float], stride: int) -> list[float]:
    """The last finite value of each group of `stride` epochs; NaN if a group has none."""
    groups = (values[first : first + stride] for first in range(0, len(values), stride))
    return [next((value for value in reversed(group) if math.isfinite(value)), math.nan) for group in groups]


def _forest(study: Study, forest: Forest) -> dict[str, Any]:
    """The importances, the curve of each hyperparameter, and the contours of the most important pairs."""
    index, ranked = {name: i for i, name in enumerate(study.space)}, forest.ranked()
    return {
        "shares": [{"name": name, "index": index[name], "share": short(forest.shares[name])} for name in ranked],
        "curves": [_mean_curve(forest, name, dimension) for name, dimension in study.space.items()],
        "pairs": [
            {"x": index[x], "y": index[y]} | _contour(forest, x, y, study.space)
            for x, y in combinations(ranked[:N_PAIRS], 2)
        ],
    }


def _mean_curve(forest: Forest, name: str, dimension: Dimension) -> dict[str, Any]:
    units, places = unit_positions(dimension)
    return {"x": _shortened(places), "y": _finite(forest.curve(name, units))}


def _contour(forest: Forest, x: str, y: str, space: Space) -> dict[str, Any]:
    (units_x, places_x), (units_y, places_y) = unit_positions(space[x]), unit_positions(space[y])
    means = forest.surface(x, y, units_x, units_y)
    return {"px": _shortened(places_x), "py": _shortened(places_y), "z": [_finite(row) for row in means]}


def _blocks(timeline: Timeline, index: dict[int, int]) -> dict[str, Any]:
    rows = {block: row for row, block in enumerate(timeline.rows)}
    return {
        "names": list(map(block_label, timeline.rows)),
        "began": readable(timeline.began_at),
        "span": short(timeline.span_s),
        "bars": [
            [rows[bar.block], index[bar.number], round(bar.begin_s, 3), round(bar.end_s, 3), bar.outcome]
            for bar in timeline.bars
        ],
    }
