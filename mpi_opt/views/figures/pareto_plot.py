"""The picture of a Pareto front: two figures of merit of every trial, against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_opt.errors import ConfigurationError
from mpi_opt.views.figures.drawing import COLOURS, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mpi_opt.core.trial import TrialRecord
    from mpi_opt.study.study import Study

FEW = 12
"""So many trials of the front are named by their numbers."""


@styled
def pareto(study: Study, x: str | None = None, y: str | None = None) -> Figure:
    """Two figures of merit against each other, the Pareto front stands out; default: the first two.

    Of more than two figures the front is that of all of them, so that some of its trials look beaten in the picture.

    Raises:
        ConfigurationError: There is one figure of merit, or none of this name.
    """
    x, y = _pair(study, x, y)
    trials = [trial for trial in study.trials if trial.state == "complete" and trial.figures_of_merit]
    front = sorted((trial for trial in trials if trial.pareto), key=lambda trial: trial.figures_of_merit[x])
    figure, axes = new_figure(5.4, 4.0)
    others = [trial for trial in trials if not trial.pareto]
    size = 14 if len(trials) < 1000 else 4
    axes.scatter(*_places(others, x, y), s=size, color=COLOURS["complete"], alpha=0.5, lw=0, label="other trials")
    places = _places(front, x, y)
    spreads = [[trial.uncertainties.get(name, 0.0) for trial in front] for name in (x, y)]
    style = {"color": COLOURS["best"], "ecolor": COLOURS["faint"], "ms": 5, "elinewidth": 0.8, "label": "Pareto front"}
    axes.errorbar(*places, xerr=spreads[0], yerr=spreads[1], fmt="o", **style)
    if len(study.merits.names) == 2:
        axes.step(*places, where="post" if _is_increasing(study, x) else "pre", color=COLOURS["best"], lw=1)
    for trial, *place in zip(front, *places, strict=True) if len(front) <= FEW else ():
        axes.annotate(str(trial.number), place, xytext=(4, 4), textcoords="offset points", fontsize=7)
    directions = dict(zip(study.merits.names, study.merits.directions, strict=True))
    axes.set(xlabel=f"{x} ({directions[x]})", ylabel=f"{y} ({directions[y]})", title=study.name)
    if trials:
        axes.legend(fontsize=8)
    return figure


def _places(trials: list[TrialRecord], x: str, y: str) -> tuple[list[float], list[float]]:
    return [trial.figures_of_merit[x] for trial in trials], [trial.figures_of_merit[y] for trial in trials]


def _is_increasing(study: Study, x: str) -> bool:
    """Whether a trial of the front dominates what lies to its right in the picture."""
    return study.merits.directions[study.merits.names.index(x)] == "minimize"


def _pair(study: Study, x: str | None, y: str | None) -> tuple[str, str]:
    """The two figures of merit to show: those named, then the first ones."""
    names = study.merits.names
    if not study.merits.are_several:
        raise ConfigurationError(
            "a Pareto front needs several figures of merit, and there is one",
            where=f"study {study.name}",
            cure="mpi-opt plot history",
        )
    for name in (x, y):
        if name is not None and name not in names:
            raise ConfigurationError(
                f"{name!r} is no figure of merit of this study", cure=f"one of: {', '.join(names)}"
            )
    left = [name for name in names if name not in (x, y)]
    first = x or left.pop(0)
    return first, y or left.pop(0)
