"""The Gantt chart of a search: which block ran which trial when."""

from __future__ import annotations

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mpi_opt.errors import ConfigurationError
from mpi_opt.store.records import readable
from mpi_opt.study.study import Study
from mpi_opt.views.figures.drawing import COLOURS, label, new_figure, styled
from mpi_opt.views.figures.timeline import Timeline, make_timeline

OUTCOMES = ("complete", "pruned", "failed", "lost", "killed", "running")


@styled
def timeline(study: Study) -> Figure:
    """A bar for each attempt on its block; the title has the fraction of the time in which the blocks were busy.

    Raises:
        ConfigurationError: No trial has started.
    """
    spans = make_timeline(study.attempts())
    if spans is None:
        cure = "start trials with mpi-opt search"
        raise ConfigurationError("no trial has started yet", where=f"study {study.name}", cure=cure)
    figure, axes = new_figure(8, 1.3 + 0.28 * min(len(spans.blocks), 40))
    unit_s, unit = (3600, "h") if spans.span_s > 7200 else (60, "min") if spans.span_s > 120 else (1, "s")
    present = [outcome for outcome in OUTCOMES if any(bar.outcome == outcome for bar in spans.bars)]
    for outcome in present:
        _draw_bars(axes, spans, outcome, unit_s)
    patches = [Patch(color=COLOURS[outcome], label=outcome) for outcome in present]
    figure.legend(handles=patches, ncols=5, fontsize=8, loc="outside lower right")
    _label_blocks(axes, spans.blocks)
    axes.set(xlabel=f"time since {readable(spans.began_at)} UTC [{unit}]", ylabel="block")
    axes.set_title(f"{label(study.name)}: blocks busy {spans.utilisation:.0%} of the time")
    axes.grid(axis="y", visible=False)
    return figure


def _draw_bars(axes: Axes, spans: Timeline, outcome: str, unit_s: float) -> None:
    """Draws the attempts with this outcome, one row per block."""
    edges = {"edgecolor": "white", "linewidth": 0.4} if len(spans.bars) < 1000 else {"linewidth": 0}
    for row, block in enumerate(spans.blocks):
        bars = [bar for bar in spans.bars if bar.outcome == outcome and bar.block == block]
        lengths = [(bar.begin_s / unit_s, (bar.end_s - bar.begin_s) / unit_s) for bar in bars]
        if bars:
            axes.broken_barh(lengths, (row - 0.36, 0.72), facecolor=COLOURS[outcome], **edges)


def _label_blocks(axes: Axes, blocks: list[int]) -> None:
    axes.set_ylim(len(blocks) - 0.4, -0.6)
    axes.set_yticks(range(len(blocks)), [str(block) for block in blocks])
    if len(blocks) > 40:
        axes.yaxis.set_major_locator(ticker.MaxNLocator(20, integer=True))
