"""The figure of a Pareto front: a scatter plot of two figures of merit of every trial."""

from __future__ import annotations

from operator import attrgetter
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mpi_opt.core.figures_of_merit import Direction
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import ConfigurationError
from mpi_opt.study.study import Study
from mpi_opt.views.figures.drawing import COLOURS, add_note, label, new_figure, set_axis, styled
from mpi_opt.views.series import figures as series
from mpi_opt.views.series.figures import front_axes, front_note, front_of

MAX_LABELLED = 12
"""The trials of a front are labelled with their numbers if they are at most this many."""


@styled
def pareto(study: Study, x: str | None = None, y: str | None = None) -> Figure:
    """Plots two figures of merit against each other and marks the Pareto front; default: the first two.

    With more than two figures of merit the front is that of all of them: some of its trials look dominated here.

    Raises:
        ConfigurationError: The study has one figure of merit, or none of this name.
    """
    if not study.figures_of_merit.are_several:
        raise ConfigurationError(
            "a Pareto front needs several figures of merit, and there is one",
            where=f"study {study.name}",
            cure="mpi-opt plot history",
        )
    x_name, y_name = series.choose_two(study.figures_of_merit.names, x, y, "figure of merit")
    directions = dict(zip(study.figures_of_merit.names, study.figures_of_merit.directions, strict=True))
    trials = front_of(study)
    front = sorted(filter(attrgetter("pareto"), trials), key=lambda trial: trial.figures_of_merit[x_name])
    figure, axes = new_figure(5.4, 4.0)
    shown = front_axes(study)
    set_axis(axes, "x", shown[x_name])
    set_axis(axes, "y", shown[y_name])
    add_note(figure, front_note(study, shown, x_name, y_name))
    size, colour = 14 if len(trials) < 1000 else 4, COLOURS["complete"]
    others = [trial for trial in trials if not trial.pareto]
    axes.scatter(*_places(others, x_name, y_name), s=size, color=colour, alpha=0.5, lw=0, label="other trials")
    _draw_front(axes, front, x_name, y_name)
    _draw_steps(axes, front, directions, x_name, y_name)
    axes.set_title(label(study.name))
    if trials:
        axes.legend(fontsize=8)
    return figure


def _draw_steps(axes: Axes, front: list[TrialRecord], directions: dict[str, Direction], x: str, y: str) -> None:
    """With two figures of merit, draws the edge of the area that the front dominates."""
    if len(directions) == 2:
        where: Literal["post", "pre"] = "post" if directions[x] == "minimize" else "pre"
        axes.step(*_places(front, x, y), where=where, color=COLOURS["best"], lw=1)


def _draw_front(axes: Axes, front: list[TrialRecord], x: str, y: str) -> None:
    """Draws the trials of the front with error bars and, if they are few, with their numbers."""
    places = _places(front, x, y)
    axes.errorbar(
        *places,
        xerr=[trial.figures_of_merit[x].uncertainty or 0.0 for trial in front],
        yerr=[trial.figures_of_merit[y].uncertainty or 0.0 for trial in front],
        fmt="o",
        color=COLOURS["best"],
        ecolor=COLOURS["faint"],
        ms=5,
        elinewidth=0.8,
        label="Pareto front",
    )
    for trial, *place in zip(front, *places, strict=True) if len(front) <= MAX_LABELLED else ():
        axes.annotate(str(trial.number), (place[0], place[1]), xytext=(4, 4), textcoords="offset points", fontsize=7)


def _places(trials: list[TrialRecord], x: str, y: str) -> tuple[list[float], list[float]]:
    return [trial.figures_of_merit[x] for trial in trials], [trial.figures_of_merit[y] for trial in trials]
