"""What the report's script draws from, as one JSON value: columns instead of rows, five digits instead of sixteen."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mpi_opt.core.space import Categorical, Dimension, Integer
from mpi_opt.views.figures import series
from mpi_opt.views.figures.axes import place, unit_places
from mpi_opt.views.text.tables import error_line

if TYPE_CHECKING:
    from mpi_opt.core.trial import TrialRecord
    from mpi_opt.store.records import CurveRecord, FoldRecord
    from mpi_opt.study.study import Study
    from mpi_opt.views.figures.importance import Surrogate
    from mpi_opt.views.figures.timeline import Timeline

MAX_CURVE_VALUES = 250_000
"""So many values of learning curves go into a page, over all metrics."""

MAX_EPOCHS = 60
"""Of longer curves every second, third, … epoch is drawn."""

N_PAIRS = 4
"""Contours are drawn of all pairs of so many hyperparameters, the most important ones."""


def report_data(
    study: Study,
    surrogate: Surrogate | None,
    spans: Timeline | None,
    folds: Sequence[FoldRecord],
    curves: Sequence[CurveRecord],
) -> dict[str, Any]:
    """Everything that is drawn; trials are named by their index in the order of their numbers."""
    index = {trial.number: i for i, trial in enumerate(study.trials)}
    merits = [trial.figure_of_merit for trial in series.complete(study)]
    limits = series.sensible_range(merits, study.record.maximize)
    return {
        "study": {"merit": series.merit_name(study), "sign": -1 if study.record.maximize else 1},
        "space": [_dimension(name, i, study.space[name]) for i, name in enumerate(study.space)],
        "trials": _trials(study.trials),
        "values": [[_value(study.space[name], t.parameters, name) for t in study.trials] for name in study.space],
        "ended": [index[trial.number] for trial in series.in_order_of_ending(study)],
        "limits": limits and [short(limit) for limit in limits],
        "folds": _folds(folds, index),
        "curves": _curves(study, curves, index),
        "forest": _forest(study, surrogate) if surrogate else None,
        "front": _front(study) if study.merits.are_several else None,
        "blocks": _blocks(spans, index) if spans else None,
    }


def as_script(data: Any) -> str:
    """`data` as JSON that may stand within a <script> element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def short(value: float | None) -> float | int | None:
    """`value` with five digits; None for what JSON has no number for."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _trials(trials: Sequence[TrialRecord]) -> dict[str, Any]:
    return {
        "number": [trial.number for trial in trials],
        "state": [trial.state for trial in trials],
        "merit": [short(trial.figure_of_merit) for trial in trials],
        "spread": [short(trial.uncertainty) for trial in trials],
        "duration": [short(trial.duration_s) for trial in trials],
        "attempts": [trial.attempts for trial in trials],
        "error": {i: (error_line(trial.error) or "")[:200] for i, trial in enumerate(trials) if trial.error},
    }


def _front(study: Study) -> dict[str, Any]:
    """Several figures of merit of every trial, None where it has none, and whether it is on the Pareto front."""
    names = study.merits.names
    known = [trial.figures_of_merit for trial in study.trials]
    figures = [[short(by_name[name]) for name in names] if by_name else None for by_name in known]
    pareto = [int(bool(trial.pareto)) for trial in study.trials]
    return {"names": names, "ways": study.merits.directions, "values": figures, "pareto": pareto}


def _dimension(name: str, index: int, dimension: Dimension) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "index": index}
    if isinstance(dimension, Categorical):
        return entry | {"categories": [str(category) for category in dimension.categories], "width": 0.9}
    entry |= {"low": dimension.low, "high": dimension.high, "log": dimension.prior == "log-uniform"}
    entry["whole"] = isinstance(dimension, Integer)
    is_coarse = entry["whole"] and dimension.size <= 20 and not entry["log"]
    return entry | ({"width": dimension.step} if is_coarse else {})


def _value(dimension: Dimension, parameters: dict[str, Any], name: str) -> float | int | None:
    if name not in parameters:
        return None
    return short(place(dimension, parameters[name]))


def _folds(folds: Iterable[FoldRecord], index: dict[int, int]) -> list[list[float | int | None]]:
    by_trial: list[list[float | int | None]] = [[] for _ in index]
    for fold in folds:
        if fold.figure_of_merit is not None:
            by_trial[index[fold.number]].append(short(fold.figure_of_merit))
    return by_trial


def _curves(study: Study, curves: Iterable[CurveRecord], index: dict[int, int]) -> dict[str, Any]:
    """Metric -> its curves, the figure of merit first; of too many the best trials' and every so-manieth other."""
    means = series.mean_curves(curves)
    main = series.main_metric(study, means)
    ranks = {trial.number: rank for rank, trial in enumerate(series.complete(study))}
    found = {}
    for name in sorted(means, key=lambda name: (name != main, name))[:6]:
        longest = max(map(len, means[name].values()))
        stride = math.ceil(longest / MAX_EPOCHS)
        most = max(200, MAX_CURVE_VALUES // (min(len(means), 6) * min(longest, MAX_EPOCHS)))
        numbers = series.some(sorted(means[name], key=lambda number: ranks.get(number, math.inf)), most)
        lines = [{"trial": index[n], "values": [short(v) for v in means[name][n][::stride]]} for n in numbers]
        values = [value for line in lines for value in line["values"] if value is not None]
        limits = series.curve_range(values) or (0.0, 1.0)
        found[name] = {"stride": stride, "limits": [short(limit) for limit in limits], "lines": lines}
    return found


def _forest(study: Study, surrogate: Surrogate) -> dict[str, Any]:
    positions = {name: i for i, name in enumerate(study.space)}
    ranked = surrogate.ranked()
    places = {name: unit_places(study.space[name]) for name in ranked}
    curves: list[dict[str, Any]] = [{} for _ in ranked]
    for name in ranked:
        units, x = places[name]
        curves[positions[name]] = {"x": [short(v) for v in x], "y": [short(v) for v in surrogate.curve(name, units)]}
    pairs = []
    for i, x in enumerate(ranked[:N_PAIRS]):
        for y in ranked[i + 1 : N_PAIRS]:
            z = surrogate.surface(x, y, places[x][0], places[y][0])
            pairs.append(
                {
                    "x": positions[x],
                    "y": positions[y],
                    "px": [short(v) for v in places[x][1]],
                    "py": [short(v) for v in places[y][1]],
                    "z": [[short(v) for v in row] for row in z],
                }
            )
    shares = [{"name": name, "index": positions[name], "share": short(surrogate.shares[name])} for name in ranked]
    return {"shares": shares, "curves": curves, "pairs": pairs}


def _blocks(spans: Timeline, index: dict[int, int]) -> dict[str, Any]:
    rows = {block: row for row, block in enumerate(spans.blocks)}
    return {
        "names": spans.blocks,
        "began": spans.began_at[:19].replace("T", " "),
        "span": short(spans.span_s),
        "bars": [
            [rows[bar.block], index[bar.number], round(bar.begin_s, 3), round(bar.end_s, 3), bar.outcome]
            for bar in spans.bars
        ],
    }
