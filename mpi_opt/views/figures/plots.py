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
from matplotlib.patches import Patch

from mpi_opt.core.search_space.space import Categorical
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import ConfigurationError
from mpi_opt.study.study import Study
from mpi_opt.views.block_label import block_label
from mpi_opt.views.figures.drawing import (
    ABOVE,
    BELOW,
    COLOUR_MAP,
    COLOURS,
    INACTIVE,
    add_note,
    label,
    label_parallel,
    new_figure,
    scatter,
    set_axis,
    shades,
    styled,
    within,
)
from mpi_opt.views.figures.importance import MIN_TRIALS, Forest
from mpi_opt.views.figures.pareto_plot import pareto
from mpi_opt.views.figures.timeline import Timeline, make_timeline
from mpi_opt.views.output_file import written_aside
from mpi_opt.views.series import figures as series
from mpi_opt.views.series.axes import Axis, hyperparameter_axis, outside, unit_positions
from mpi_opt.views.series.figures import N_BEST as N_CURVES
from mpi_opt.views.series.figures import (
    Curves,
    History,
    axis_of_figures,
    contour_of,
    curves_of,
    has_point,
    history_of,
    parallel_heights,
    parallel_of,
    points_of_trials,
)

OUTCOMES = ("complete", "moved", "pruned", "failed", "lost", "killed", "running")

HEIGHT = 0.72
"""The height of a row's bars; rows are 1 apart."""

MIN_WIDTH = 1e-3
"""The smallest width of a bar, as a fraction of the axis: about a pixel."""


@styled
def timeline(study: Study) -> Figure:
    """A bar for each attempt on its block; the title has the fraction of the time in which the blocks were busy.

    The height of a bar is proportional to the number of ranks, which can differ between blocks.
    Attempts in workload systems are in one row. They can overlap, so the row is divided into strips.

    Raises:
        ConfigurationError: No trial has started.
    """
    spans = make_timeline(study.attempts(), study.events())
    if spans is None:
        cure = "start trials with mpi-opt search"
        raise ConfigurationError("no trial has started yet", where=f"study {study.name}", cure=cure)
    figure, axes = new_figure(8, 1.3 + 0.28 * min(len(spans.rows), 40))
    present = [outcome for outcome in OUTCOMES if any(bar.outcome == outcome for bar in spans.bars)]
    set_axis(axes, "x", spans.axis)
    for outcome in present:
        _draw_bars(axes, spans, outcome)
    patches = [Patch(color=COLOURS[outcome], label=outcome) for outcome in present]
    figure.legend(handles=patches, ncols=5, fontsize=8, loc="outside lower right")
    _label_rows(axes, spans.rows)
    has_widths = any(bar.width < 1 for bar in spans.bars)
    axes.set_ylabel("block (height: ranks)" if has_widths else "block")
    busy = "" if spans.utilisation is None else f": blocks busy {spans.utilisation:.0%} of the time"
    axes.set_title(f"{label(study.name)}{busy}")
    axes.grid(axis="y", visible=False)
    return figure


def _draw_bars(axes: Axes, spans: Timeline, outcome: str) -> None:
    """Draws the attempts with this outcome; the row of a workload system is divided into strips."""
    rows = {block: row for row, block in enumerate(spans.rows)}
    shortest = MIN_WIDTH * (spans.axis.high - spans.axis.low)
    places: dict[tuple[float, float, bool], list[tuple[float, float]]] = {}
    for bar in spans.bars:
        if bar.outcome == outcome:
            height = HEIGHT * bar.width / bar.strips
            bottom = rows[bar.block] - HEIGHT / 2 + bar.strip * height
            width = max((bar.end_s - bar.begin_s) / spans.unit_s, shortest)
            has_edges = len(spans.bars) < 1000 and height > 0.05 and width > 10 * shortest  # they would hide short bars
            places.setdefault((bottom, height, has_edges), []).append((bar.begin_s / spans.unit_s, width))
    for (bottom, height, has_edges), lengths in places.items():
        edges = {"edgecolor": "white", "linewidth": 0.4} if has_edges else {"linewidth": 0}
        axes.broken_barh(lengths, (bottom, height), facecolor=COLOURS[outcome], **edges)


def _label_rows(axes: Axes, rows: list[int]) -> None:
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [str(block_label(row)) for row in rows])
    if len(rows) > 40:
        axes.yaxis.set_major_locator(ticker.MaxNLocator(20, integer=True))


N_LINES = 1000
"""The largest number of trials in parallel coordinates. The best trials are drawn, and the figure says so."""

MAX_HYPERPARAMETERS = 60
"""The largest number of hyperparameters in a figure with a panel or a bar for each."""

SUFFIXES = (".png", ".svg", ".pdf")


@styled
def history(study: Study) -> Figure:
    """Figures of merit in the order of ending, and the best so far with its standard deviation over the folds."""
    shown = history_of(study)
    figure, axes = new_figure(7, 3.6)
    set_axis(axes, "x", shown.x, pad=0.01)
    set_axis(axes, "y", shown.y)
    for state in ("complete", "pruned", "failed"):
        chosen = [(i, t) for i, t in enumerate(shown.trials) if t.state == state]
        points = [(i, t.figure_of_merit) for i, t in chosen if has_point(t) and t.figure_of_merit is not None]
        size = 12 if len(shown.trials) < 1000 else 3
        scatter(axes, points, shown.y, s=size, color=COLOURS[state], alpha=0.75, lw=0, label=state)
        if without := [i for i, t in chosen if not has_point(t)]:
            heights, transform = [0.015] * len(without), axes.get_xaxis_transform()
            text = "_" if points else state  # matplotlib leaves "_" out of a legend
            axes.plot(without, heights, "|", ms=6, color=COLOURS[state], transform=transform, label=text)
    _draw_best_so_far(axes, shown)
    axes.set_title(label(study.name))
    add_note(figure, shown.note)
    if shown.trials:
        figure.legend(ncols=4, fontsize=8, loc="outside upper right")
    return figure


def _draw_best_so_far(axes: Axes, shown: History) -> None:
    if not shown.best:
        return
    ends = [i for i, _ in shown.best] + [len(shown.trials) - 1]
    best = [t for _, t in shown.best] + [shown.best[-1][1]]
    values = np.array(series.main_figures(best))
    deviation = np.array([t.uncertainty or 0.0 for t in best])
    axes.step(ends, within(shown.y, values), where="post", color=COLOURS["best"], lw=1.6, label="best so far")
    low, high = within(shown.y, values - deviation), within(shown.y, values + deviation)
    axes.fill_between(ends, low, high, step="post", color=COLOURS["best"], alpha=0.18, lw=0)


@styled
def parallel(study: Study) -> Figure:
    """The best trials as lines across the hyperparameters; better trials are darker and in front.

    A line is below the axis of a hyperparameter that is inactive in the trial, and beside the range of the figure of
    merit if it is outside of it.
    """
    shown = parallel_of(study, N_LINES)
    figure, axes = new_figure(min(1.2 + 1.25 * len(shown.axes), 12), 3.8)
    heights = parallel_heights(study, shown, INACTIVE, (BELOW, ABOVE))
    x, n_trials = np.arange(len(shown.axes)), len(shown.trials)
    lines = [np.column_stack([x, row]) for row in heights]
    widths = np.where(np.arange(n_trials) < N_CURVES, 1.6, 0.6)
    colours = shades(n_trials)
    colours[N_CURVES:, 3] = max(0.15, 0.7 * (1 - n_trials / (1.3 * N_LINES)))
    axes.add_collection(LineCollection(lines[::-1], colors=colours[::-1], linewidths=widths[::-1]))
    for i, axis in enumerate(shown.axes):
        label_parallel(axes, i, axis, heights[:, i])
    low, high = heights.min(initial=0) - 0.04, max(1.04, heights.max(initial=1) + 0.04)
    axes.set(xlim=(-0.2, len(shown.axes) - 0.5), ylim=(low, high), yticks=[], title=label(study.name))
    labels = [label(axis.title, 26) for axis in shown.axes]
    axes.set_xticks(x, labels, rotation=20 if max(map(len, labels)) * len(labels) > 90 else 0)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    add_note(figure, shown.note)
    return figure


@styled
def slices(study: Study) -> Figure:
    """The figure of merit against each hyperparameter; the line is the mean of the forest over all others.

    Shows at most `MAX_HYPERPARAMETERS` hyperparameters: the most important ones, or the first ones of the space while
    too few trials are complete.
    """
    trials, forest, y = series.complete(study), Forest.of(study), axis_of_figures(study)
    names = (forest.ranked() if forest else list(study.space))[:MAX_HYPERPARAMETERS]
    n_columns = min(len(names), 3)
    n_rows = math.ceil(len(names) / n_columns)
    figure = Figure(figsize=(2.7 * n_columns, 2.4 * n_rows), dpi=150)
    for i, name in enumerate(names):
        axes = figure.add_subplot(n_rows, n_columns, i + 1)
        set_axis(axes, "x", hyperparameter_axis(name, study.space[name]), pad=0.03, is_small=True)
        set_axis(axes, "y", y, is_small=True)
        _draw_slice(axes, study, trials, name, y, forest)
        if i % n_columns:
            axes.set_ylabel("")
    of_all = f"the {len(names)} most important of {len(study.space)} hyperparameters" * (len(names) < len(study.space))
    add_note(figure, "; ".join(filter(None, [outside(y, series.main_figures(trials)), of_all])))
    return figure


def _draw_slice(
    axes: Axes, study: Study, trials: Sequence[TrialRecord], name: str, y: Axis, forest: Forest | None
) -> None:
    """Draws the trials, best first, and the mean of the forest over one hyperparameter."""
    places, colours = points_of_trials(study, trials, name), shades(len(trials))
    chosen = np.flatnonzero(~np.isnan(places))[::-1]  # the best in front
    figures = np.array(series.main_figures(trials))
    points = list(zip(places[chosen], figures[chosen], strict=True))
    scatter(axes, points, y, s=10 if len(chosen) < 1000 else 3, c=colours[chosen], lw=0)
    if forest:
        units, places = unit_positions(study.space[name])
        line = "_" if isinstance(study.space[name], Categorical) else "-"
        means = within(y, forest.curve(name, units))
        axes.plot(places, means, line, color=COLOURS["ink"], lw=1, ms=26, mew=1.6)


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
    shown = contour_of(study, forest.surface, x, y)
    figure, axes = new_figure(4.8, 3.8)
    set_axis(axes, "x", shown.x, pad=0.03)
    set_axis(axes, "y", shown.y, pad=0.03)
    colours = f"{COLOUR_MAP}_r" if study.record.maximize else COLOUR_MAP
    tones = shown.z.fractions(shown.means.ravel()).reshape(shown.means.shape)
    filled = axes.pcolormesh(
        shown.places_x, shown.places_y, tones, cmap=colours, vmin=0, vmax=1, shading="nearest", rasterized=True
    )
    bar = figure.colorbar(filled, ax=axes, label=label(shown.z.title))
    bar.set_ticks(
        shown.z.fractions(place for place, _ in shown.z.ticks).tolist(), labels=[text for _, text in shown.z.ticks]
    )
    _draw_points(axes, study, shown.trials, x, y)
    if shown.trials:
        figure.legend(fontsize=8, loc="outside upper right")  # beside the axes, where it hides no trial
    axes.set_title(label(study.name))
    axes.grid(visible=False)
    add_note(figure, shown.note)
    return figure


def _draw_points(axes: Axes, study: Study, trials: Sequence[TrialRecord], x: str, y: str) -> None:
    """Draws the trials as points on a plane of two hyperparameters, and the best one as a star."""
    points = points_of_trials(study, trials, x), points_of_trials(study, trials, y)
    size = 9 if len(trials) < 200 else 3
    axes.scatter(*points, s=size, color="white", edgecolors=COLOURS["ink"], linewidths=0.04 * size)
    if trials:
        best = f"best: trial {trials[0].number}"
        axes.plot(points[0][0], points[1][0], "*", ms=13, color=COLOURS["failed"], mec="white", label=best)


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
    if len(names) < len(forest.names):
        add_note(figure, f"the {len(names)} most important of {len(forest.names)} hyperparameters")
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
    shown = curves_of(study, metric, means[metric])
    figure, axes = new_figure(6, 3.6)
    set_axis(axes, "x", shown.x, pad=0.02)
    set_axis(axes, "y", shown.y)
    _draw_curves(axes, shown)
    axes.set_title(label(study.name))
    add_note(figure, shown.note)
    axes.legend(*(entries[::-1] for entries in axes.get_legend_handles_labels()), fontsize=7, ncols=2)
    return figure


def _draw_curves(axes: Axes, shown: Curves) -> None:
    """Draws the curve of each trial; the best in front and in colour."""
    best = set(shown.best)
    lines = {
        number: np.column_stack([[epoch * shown.stride for epoch in curve], within(shown.y, list(curve.values()))])
        for number, curve in shown.values.items()
        if curve
    }
    background = [line for number, line in lines.items() if number not in best]
    axes.add_collection(LineCollection(background, colors=COLOURS["faint"], linewidths=0.6, alpha=0.6))
    for rank, number in reversed(list(enumerate(shown.best))):
        if number in lines:
            style = {"color": shades(N_CURVES)[rank], "lw": 1.1 if rank else 2.2}
            axes.plot(*lines[number].T, marker="." if len(lines[number]) == 1 else "", label=f"trial {number}", **style)


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
    check_suffix(path)
    with written_aside(path) as aside:
        figure.savefig(aside, dpi=200, bbox_inches="tight")


def check_suffix(path: Path) -> None:
    """Verifies that figures can be written in the format of a file.

    Raises:
        ConfigurationError: The suffix is not in `SUFFIXES`.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigurationError(
            f"{path.name!r} has no known suffix of a figure", where="-o", cure="write .png, .svg or .pdf"
        )


def _forest_of(study: Study) -> Forest:
    forest = Forest.of(study)
    if forest is None:
        problem = f"this needs {MIN_TRIALS} complete trials with different figures of merit"
        raise ConfigurationError(problem, where=f"study {study.name}", cure="run more trials; see mpi-opt results")
    return forest
