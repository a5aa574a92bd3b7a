"""The Gantt chart of a search: which block ran which trial when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mpi_opt.errors import ConfigurationError
from mpi_opt.store.records import readable
from mpi_opt.study.past_trials import EXTERNAL_BLOCK
from mpi_opt.study.study import Study
from mpi_opt.views.block_label import block_label
from mpi_opt.views.figures.drawing import COLOURS, label, new_figure, styled
from mpi_opt.views.figures.timeline import Bar, Timeline, make_timeline

OUTCOMES = ("complete", "pruned", "failed", "lost", "killed", "running")

Strip = tuple[float, float, list[Bar]]
"""The position, the height and the bars of a row, or of a part of it."""


@styled
def timeline(study: Study) -> Figure:
    """A bar for each attempt on its block; the title has the fraction of the time in which the blocks were busy.

    Attempts in workload systems are in one row. They can overlap, so the row is divided into strips.

    Raises:
        ConfigurationError: No trial has started.
    """
    spans = make_timeline(study.attempts())
    if spans is None:
        cure = "start trials with mpi-opt search"
        raise ConfigurationError("no trial has started yet", where=f"study {study.name}", cure=cure)
    figure, axes = new_figure(8, 1.3 + 0.28 * min(len(spans.rows), 40))
    unit_s, unit = (3600, "h") if spans.span_s > 7200 else (60, "min") if spans.span_s > 120 else (1, "s")
    present = [outcome for outcome in OUTCOMES if any(bar.outcome == outcome for bar in spans.bars)]
    strips = list(_strips(spans))
    for outcome in present:
        _draw_bars(axes, strips, outcome, unit_s, has_edges=len(spans.bars) < 1000)
    patches = [Patch(color=COLOURS[outcome], label=outcome) for outcome in present]
    figure.legend(handles=patches, ncols=5, fontsize=8, loc="outside lower right")
    _label_rows(axes, spans.rows)
    axes.set(xlabel=f"time since {readable(spans.began_at)} UTC [{unit}]", ylabel="block")
    busy = "" if spans.utilisation is None else f": blocks busy {spans.utilisation:.0%} of the time"
    axes.set_title(f"{label(study.name)}{busy}")
    axes.grid(axis="y", visible=False)
    return figure


def _draw_bars(axes: Axes, strips: Iterable[Strip], outcome: str, unit_s: float, *, has_edges: bool) -> None:
    """Draws the attempts with this outcome."""
    for y, height, strip in strips:
        edges = {"edgecolor": "white", "linewidth": 0.4} if has_edges and height > 0.05 else {"linewidth": 0}
        bars = [bar for bar in strip if bar.outcome == outcome]
        lengths = [(bar.begin_s / unit_s, (bar.end_s - bar.begin_s) / unit_s) for bar in bars]
        if bars:
            axes.broken_barh(lengths, (y, height), facecolor=COLOURS[outcome], **edges)


def _strips(spans: Timeline) -> Iterator[Strip]:
    """One row per block, which is one strip, and one row for workload systems."""
    for row, block in enumerate(spans.rows):
        bars = [bar for bar in spans.bars if bar.block == block]
        strips = _without_overlap(bars) if block == EXTERNAL_BLOCK else [bars]
        height = 0.72 / len(strips)
        for i, strip in enumerate(strips):
            yield row - 0.36 + i * height, height, strip


def _without_overlap(bars: Iterable[Bar]) -> list[list[Bar]]:
    """`bars`, which are sorted by their start, in as few lists without overlap as possible."""
    strips: list[list[Bar]] = []
    for bar in bars:
        free = next((strip for strip in strips if strip[-1].end_s <= bar.begin_s), None)
        if free is None:
            strips.append([bar])
        else:
            free.append(bar)
    return strips


def _label_rows(axes: Axes, rows: list[int]) -> None:
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [str(block_label(row)) for row in rows])
    if len(rows) > 40:
        axes.yaxis.set_major_locator(ticker.MaxNLocator(20, integer=True))
