"""The Gantt chart of a search: which block ran which trial when."""

from __future__ import annotations

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mpi_opt.errors import ConfigurationError
from mpi_opt.study.study import Study
from mpi_opt.views.block_label import block_label
from mpi_opt.views.figures.drawing import COLOURS, label, new_figure, set_axis, styled
from mpi_opt.views.figures.timeline import Timeline, make_timeline

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
