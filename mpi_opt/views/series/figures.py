"""The data of the figures of trials: history, parallel coordinates, slices, contour, folds, and the Pareto front."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from mpi_opt.core.trial import TrialRecord, is_usable
from mpi_opt.study.presentation import main_figure_name
from mpi_opt.study.study import Study
from mpi_opt.views.series.axes import (
    Axis,
    figure_axis,
    hyperparameter_axis,
    linear_axis,
    outside,
    position,
    spread_position,
    unit_positions,
    whole_axis,
)
from mpi_opt.views.series.trials import by_end_time, complete, improvements, main_figures

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
    drawn = [t.figure_of_merit for t in trials if has_point(t) and t.figure_of_merit is not None]
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
