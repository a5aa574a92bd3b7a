"""Figures for papers (matplotlib). Every function takes a study and returns a figure, which a notebook displays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from mpi_opt.core.space import Categorical, Dimension
from mpi_opt.core.trial import TrialRecord, is_usable
from mpi_opt.errors import ConfigurationError
from mpi_opt.study.study import Study
from mpi_opt.views import series
from mpi_opt.views.figures.axes import jittered, position, unit_positions
from mpi_opt.views.figures.drawing import (
    COLOUR_MAP,
    COLOURS,
    INACTIVE,
    label,
    label_parallel,
    new_figure,
    scale_axis,
    shades,
    styled,
    zoom,
)
from mpi_opt.views.figures.gantt import timeline
from mpi_opt.views.figures.importance import MIN_TRIALS, Forest
from mpi_opt.views.figures.pareto_plot import pareto
from mpi_opt.views.output_file import written_aside

N_CURVES = 10
"""The number of highlighted best trials."""

N_LINES = 1000
"""The largest number of trials in a figure with a line or ring per trial. The best trials are drawn."""

MAX_HYPERPARAMETERS = 60
"""The largest number of hyperparameters in a figure with a panel or a bar for each."""

SUFFIXES = (".png", ".svg", ".pdf")


@styled
def history(study: Study) -> Figure:
    """Figures of merit in the order of ending, and the best so far with its standard deviation over the folds."""
    trials, maximize = series.by_end_time(study), study.record.maximize
    figure, axes = new_figure(7, 3.6)
    for state in ("complete", "pruned"):
        _draw_state(axes, trials, state)
    failed = [i for i, t in enumerate(trials) if t.state == "failed"]
    if failed:
        heights, transform = [0.015] * len(failed), axes.get_xaxis_transform()
        axes.plot(failed, heights, "|", ms=6, color=COLOURS["failed"], transform=transform, label="failed")
    _draw_best_so_far(axes, trials, maximize)
    zoom(axes, series.sensible_range(series.main_figures(series.complete(study)), maximize))
    axes.set(xlabel="trials in the order of ending", ylabel=_figure_label(study), title=label(study.name))
    if trials:
        figure.legend(ncols=4, fontsize=8, loc="outside lower right")
    return figure


def _draw_state(axes: Axes, trials: Sequence[TrialRecord], state: str) -> None:
    """Draws the trials in this state as points."""
    chosen = [i for i, t in enumerate(trials) if t.state == state and is_usable(t.figure_of_merit)]
    values = series.main_figures(trials[i] for i in chosen)
    if chosen:
        size = 12 if len(trials) < 1000 else 3
        axes.scatter(chosen, values, s=size, color=COLOURS[state], alpha=0.75, lw=0, label=state)


def _draw_best_so_far(axes: Axes, trials: Sequence[TrialRecord], maximize: bool) -> None:
    steps = series.improvements(trials, maximize)
    if not steps:
        return
    ends = [i for i, _ in steps] + [len(trials) - 1]
    best = [t for _, t in steps] + [steps[-1][1]]
    values = np.array(series.main_figures(best))
    deviation = np.array([t.uncertainty or 0.0 for t in best])
    axes.step(ends, values, where="post", color=COLOURS["best"], lw=1.6, label="best so far")
    axes.fill_between(
        ends, values - deviation, values + deviation, step="post", color=COLOURS["best"], alpha=0.18, lw=0
    )


@styled
def parallel(study: Study) -> Figure:
    """The best trials as lines across the hyperparameters; better trials are darker and in front.

    A line is below the axis of a hyperparameter that is inactive in the trial.
    """
    trials, names = series.complete(study)[:N_LINES], list(study.space)
    figure, axes = new_figure(min(1.2 + 1.25 * (len(names) + 1), 12), 3.8)
    limits = series.sensible_range(series.main_figures(trials), study.record.maximize)
    low, high = limits or (0.0, 1.0)
    values = np.clip(series.main_figures(trials), low, high)
    x = np.arange(len(names) + 1)
    heights = _heights(study, trials)
    lines = [np.column_stack([x, [*row, (m - low) / (high - low)]]) for row, m in zip(heights, values, strict=True)]
    widths = np.where(np.arange(len(trials)) < N_CURVES, 1.6, 0.6)
    colours = shades(len(trials))
    colours[N_CURVES:, 3] = max(0.15, 0.7 * (1 - len(trials) / (1.3 * N_LINES)))
    axes.add_collection(LineCollection(lines[::-1], colors=colours[::-1], linewidths=widths[::-1]))
    for i, name in enumerate(names):
        label_parallel(axes, i, study.space[name], has_inactive=bool((heights[:, i] == INACTIVE).any()))
    axes.vlines(len(names), 0, 1, color=COLOURS["faint"], lw=1, zorder=0)
    for fraction in (0.0, 0.5, 1.0):
        axes.text(len(names) + 0.04, fraction, f"{low + fraction * (high - low):.3g}", fontsize=7, va="center")
    axes.set(
        xlim=(-0.2, len(names) + 0.5), ylim=(heights.min(initial=0) - 0.04, 1.04), yticks=[], title=label(study.name)
    )
    labels = [label(name, 26) for name in (*names, series.main_figure_name(study.record))]
    axes.set_xticks(x, labels, rotation=20 if max(map(len, labels)) * len(labels) > 90 else 0)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    return figure


def _heights(study: Study, trials: Sequence[TrialRecord]) -> np.ndarray:
    """The heights of all hyperparameters in parallel coordinates; shape (n_trials, n_hyperparameters)."""
    shape = len(trials), len(study.space)
    units = np.reshape([study.space.encode(t.parameters) for t in trials], shape)
    is_active = np.reshape([[name in t.parameters for name in study.space] for t in trials], shape)
    return np.where(is_active, units, INACTIVE)


@styled
def slices(study: Study) -> Figure:
    """The figure of merit against each hyperparameter; the line is the mean of the forest over all others.

    Shows at most `MAX_HYPERPARAMETERS` hyperparameters: the most important ones, or the first ones of the space while
    too few trials are complete.
    """
    trials, forest = series.complete(study), Forest.of(study)
    names = (forest.ranked() if forest else list(study.space))[:MAX_HYPERPARAMETERS]
    n_columns = min(len(names), 3)
    n_rows = math.ceil(len(names) / n_columns)
    figure = Figure(figsize=(2.7 * n_columns, 2.4 * n_rows), dpi=150)
    limits = series.sensible_range(series.main_figures(trials), study.record.maximize)
    for i, name in enumerate(names):
        axes = figure.add_subplot(n_rows, n_columns, i + 1)
        _draw_slice(axes, trials, name, study.space[name], forest)
        zoom(axes, limits)
        axes.set(xlabel=label(name, 26), ylabel=_figure_label(study) if i % n_columns == 0 else "")
    return figure


def _draw_slice(
    axes: Axes, trials: Sequence[TrialRecord], name: str, dimension: Dimension, forest: Forest | None
) -> None:
    """Draws the trials, best first, and the mean of the forest over one hyperparameter."""
    chosen = [(t, shade) for t, shade in zip(trials, shades(len(trials)), strict=True) if name in t.parameters][::-1]
    places = jittered(dimension, [position(dimension, t.parameters[name]) for t, _ in chosen])
    size, values = 10 if len(chosen) < 1000 else 3, series.main_figures(t for t, _ in chosen)
    axes.scatter(places, values, s=size, c=[shade for _, shade in chosen], lw=0)
    scale_axis(axes, "x", dimension)
    if forest:
        units, places = unit_positions(dimension)
        line = "_" if isinstance(dimension, Categorical) else "-"
        axes.plot(places, forest.curve(name, units), line, color=COLOURS["ink"], lw=1, ms=26, mew=1.6)


@styled
def contour(study: Study, x: str | None = None, y: str | None = None) -> Figure:
    """The mean figure of merit of the forest over two hyperparameters; default: the two most important ones.

    Raises:
        ConfigurationError: A hyperparameter does not exist, or too few trials are complete.
    """
    forest = _forest_of(study)
    if len(forest.names) < 2:
        raise ConfigurationError(
            "a contour needs two hyperparameters, and the study has one", cure="mpi-opt plot slice"
        )
    x, y = series.choose_two(forest.ranked(), x, y, "hyperparameter")
    (units_x, places_x), (units_y, places_y) = (unit_positions(study.space[name]) for name in (x, y))
    means = forest.surface(x, y, units_x, units_y)
    figure, axes = new_figure(4.8, 3.8)
    scale_axis(axes, "x", study.space[x])
    scale_axis(axes, "y", study.space[y])
    colours = f"{COLOUR_MAP}_r" if study.record.maximize else COLOUR_MAP
    filled = axes.pcolormesh(places_x, places_y, means, cmap=colours, shading="nearest", rasterized=True)
    figure.colorbar(filled, ax=axes, label=_figure_label(study))
    _draw_points(axes, study, x, y)
    axes.set(xlabel=label(x), ylabel=label(y), title=label(study.name))
    axes.grid(visible=False)
    return figure


def _draw_points(axes: Axes, study: Study, x: str, y: str) -> None:
    """Draws the trials as points on a plane of two hyperparameters, and the best one as a star."""
    trials = [t for t in series.complete(study) if x in t.parameters and y in t.parameters][:N_LINES]
    points = [
        jittered(study.space[name], [position(study.space[name], t.parameters[name]) for t in trials], seed)
        for seed, name in enumerate((x, y))
    ]
    size = 9 if len(trials) < 200 else 3
    axes.scatter(points[0], points[1], s=size, color="white", edgecolors=COLOURS["ink"], linewidths=0.04 * size)
    if trials:
        best = f"best: trial {trials[0].number}"
        axes.plot(points[0][0], points[1][0], "*", ms=13, color=COLOURS["failed"], mec="white", label=best)
        axes.legend(fontsize=8, frameon=True)


@styled
def importance(study: Study) -> Figure:
    """The fraction of the variance of the figure of merit that each hyperparameter explains alone (fANOVA).

    Shows at most `MAX_HYPERPARAMETERS` hyperparameters, the most important ones.

    Raises:
        ConfigurationError: Too few trials are complete.
    """
    forest = _forest_of(study)
    names = forest.ranked()[:MAX_HYPERPARAMETERS][::-1]
    shares = [forest.shares[name] for name in names]
    figure, axes = new_figure(5, 1.0 + 0.32 * len(names))
    axes.barh(range(len(names)), shares, color=COLOURS["complete"], height=0.62)
    axes.set_yticks(range(len(names)), [label(name, 26) for name in names])
    for i, share in enumerate(shares):
        axes.text(share, i, f" {share:.0%}", va="center", fontsize=8)
    axes.set(xlabel="share of the variance explained alone (fANOVA)", xlim=(0, max(1e-3, *shares) * 1.15))
    axes.set_title(label(study.name))
    axes.xaxis.set_major_formatter(ticker.PercentFormatter(1.0))
    axes.grid(axis="y", visible=False)
    return figure


@styled
def curves(study: Study, metric: str | None = None) -> Figure:
    """The learning curves of all trials, averaged over the folds; the ten best trials are highlighted.

    Args:
        study: The study.
        metric: The metric; default: the figure of merit, if it is a metric.

    Raises:
        ConfigurationError: The metric was not recorded per epoch.
    """
    means = series.mean_curves(series.curves_to_draw(study))
    metric = metric or series.main_metric(study.record, means)
    if metric not in means:
        cure = f"one of: {', '.join(means)}" if means else "an objective records with trial.report(step, value)"
        raise ConfigurationError(
            f"there are no curves of {metric or 'any metric'}", where=f"study {study.name}", cure=cure
        )
    figure, axes = new_figure(6, 3.6)
    _draw_curves(axes, means[metric], [t.number for t in series.complete(study) if t.number in means[metric]])
    zoom(axes, series.curve_range(v for values in means[metric].values() for v in values))
    axes.set(xlabel="epoch", ylabel=label(metric), title=label(study.name))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes.legend(*(entries[::-1] for entries in axes.get_legend_handles_labels()), fontsize=7, ncols=2)
    return figure


def _draw_curves(axes: Axes, curves: dict[int, list[float]], ranked: list[int]) -> None:
    """Draws the curve of each trial; the first of `ranked` in front and in colour."""
    best = ranked[:N_CURVES]
    background = [_points(values) for number, values in curves.items() if number not in best]
    axes.add_collection(LineCollection(background, colors=COLOURS["faint"], linewidths=0.6, alpha=0.6))
    for rank, number in reversed(list(enumerate(best))):
        width = 2.2 if rank == 0 else 1.1
        points = _points(curves[number])
        style = {"color": shades(N_CURVES)[rank], "lw": width, "marker": "." if len(points) == 1 else ""}
        axes.plot([epoch for epoch, _ in points], [value for _, value in points], **style, label=f"trial {number}")
    axes.autoscale_view()


def _points(values: Sequence[float]) -> list[tuple[int, float]]:
    """(epoch, value) of the epochs that have a value: a line would end at an epoch without one."""
    return [(epoch, value) for epoch, value in enumerate(values) if math.isfinite(value)]


KINDS: dict[str, Callable[[Study], Figure]] = {
    "history": history,
    "parallel": parallel,
    "slice": slices,
    "contour": contour,
    "importance": importance,
    "timeline": timeline,
    "curves": curves,
    "pareto": pareto,
}


def save(figure: Figure, path: Path) -> None:
    """Writes a figure in the format of the suffix. The file is complete or does not exist.

    Raises:
        ConfigurationError: The suffix is not in `SUFFIXES`, or the folder does not exist.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigurationError(
            f"{path.name!r} has no known suffix of a figure", where="-o", cure="write .png, .svg or .pdf"
        )
    with written_aside(path) as aside:
        figure.savefig(aside, dpi=200, bbox_inches="tight")


def _figure_label(study: Study) -> str:
    return label(series.main_figure_name(study.record))


def _forest_of(study: Study) -> Forest:
    forest = Forest.of(study)
    if forest is None:
        problem = f"this needs {MIN_TRIALS} complete trials with different figures of merit"
        raise ConfigurationError(problem, where=f"study {study.name}", cure="run more trials; see mpi-opt results")
    return forest
