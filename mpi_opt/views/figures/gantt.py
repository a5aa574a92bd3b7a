"""The figure of who trained what when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mpi_opt.errors import ConfigurationError
from mpi_opt.views.figures.drawing import COLOURS, new_figure, styled
from mpi_opt.views.figures.timeline import Timeline, make_timeline

if TYPE_CHECKING:
    from mpi_opt.study.study import Study

OUTCOMES = ("complete", "pruned", "failed", "lost", "running")


@styled
def timeline(study: Study) -> Figure:
    """Which block ran which trial when, and how much of the time the blocks were busy.

    Raises:
        ConfigurationError: No trial has begun.
    """
    spans = make_timeline(study.attempts())
    if spans is None:
        cure = "begin with mpi-opt search"
        raise ConfigurationError("no trial has begun yet", where=f"study {study.name}", cure=cure)
    figure, axes = new_figure(8, 1.3 + 0.28 * min(len(spans.blocks), 40))
    unit = _draw_bars(axes, spans)
    began = spans.began_at[:19].replace("T", " ")
    axes.set(xlabel=f"time since {began} UTC [{unit}]", ylabel="block")
    axes.set_title(f"{study.name}: blocks busy {spans.utilisation:.0%} of the time")
    axes.grid(axis="y", visible=False)
    return figure


def _draw_bars(axes: Axes, spans: Timeline) -> str:
    """Draws the attempts; returns the unit of time."""
    rows = {block: row for row, block in enumerate(spans.blocks)}
    unit_s, unit = (3600, "h") if spans.span_s > 7200 else (60, "min") if spans.span_s > 120 else (1, "s")
    for outcome in OUTCOMES:
        for block, row in rows.items():
            bars = [bar for bar in spans.bars if bar.outcome == outcome and bar.block == block]
            lengths = [(bar.begin_s / unit_s, (bar.end_s - bar.begin_s) / unit_s) for bar in bars]
            edges = {"edgecolor": "white", "linewidth": 0.4} if len(spans.bars) < 1000 else {"linewidth": 0}
            if bars:
                axes.broken_barh(lengths, (row - 0.36, 0.72), facecolor=COLOURS[outcome], **edges)
    present = [outcome for outcome in OUTCOMES if any(bar.outcome == outcome for bar in spans.bars)]
    patches = [Patch(color=COLOURS[outcome], label=outcome) for outcome in present]
    axes.figure.legend(handles=patches, ncols=5, fontsize=8, loc="outside lower right")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(list(rows.values()), [str(block) for block in rows])
    if len(rows) > 40:
        axes.yaxis.set_major_locator(ticker.MaxNLocator(20, integer=True))
    return unit
