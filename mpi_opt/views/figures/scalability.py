"""The scalability report as a figure."""

from __future__ import annotations

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mpi_opt.core.scalability import BlockSize, Scalability
from mpi_opt.views.figures.drawing import COLOURS, add_note, label, styled
from mpi_opt.views.series.scalability import heading, sentences


@styled
def scalability(name: str, found: Scalability, *, depends_on_ranks: bool) -> Figure:
    """The speed-up of a trial with the shares of its time, and the time of the search, by the size of the blocks."""
    figure = Figure(figsize=(8, 3.4), dpi=150)
    left, right = figure.subplots(1, 2)
    first, sizes = found.sizes[0], found.sizes
    ranks = [size.n_ranks for size in sizes]
    left.plot(ranks, [n / first.n_ranks for n in ranks], "--", color=COLOURS["faint"], label="ideal")
    _draw(left, sizes, [size.speed_up for size in sizes], COLOURS["complete"], "speed-up of a trial")
    left.set(yscale="log", ylabel="speed-up")
    shares = left.twinx()
    shares.fill_between(ranks, 0, [size.communication for size in sizes], color=COLOURS["failed"], alpha=0.25, lw=0)
    shares.set(ylim=(0, 1), ylabel="share of communication (red)")
    shares.grid(visible=False)
    _draw(right, sizes, [size.search_s / 60 for size in sizes], COLOURS["complete"], "time of the search")
    best = found.best
    right.plot([best.n_ranks], [best.search_s / 60], "o", ms=10, mfc="none", color=COLOURS["best"], label="recommended")
    right.set(yscale="log", ylabel="minutes until the last trial has ended")
    number = ticker.FuncFormatter(lambda value, _: f"{value:g}")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(number)
        axes.yaxis.set_major_formatter(number)
        axes.yaxis.set_minor_locator(ticker.LogLocator(subs=(2.0, 5.0)))
        axes.yaxis.set_minor_formatter(number)
        axes.set_xlabel("ranks per block")
        axes.legend(fontsize=8)
    figure.suptitle(label(heading(name, found), 120), fontsize=9)
    add_note(figure, "; ".join(sentences(found, depends_on_ranks=depends_on_ranks)))
    return figure


def _draw(axes: Axes, sizes: list[BlockSize], values: list[float], colour: str, text: str) -> None:
    """Draws one value per size; those that are extrapolated as rings."""
    ranks = [size.n_ranks for size in sizes]
    axes.plot(ranks, values, color=colour, lw=1.2, label=text)
    for is_extrapolated, fill in ((False, colour), (True, "white")):
        chosen = [i for i, size in enumerate(sizes) if size.is_extrapolated is is_extrapolated]
        if chosen:
            of_dots = "extrapolated" if is_extrapolated else None
            x, y = [ranks[i] for i in chosen], [values[i] for i in chosen]
            axes.plot(x, y, "o", ms=5, color=colour, mfc=fill, label=of_dots)
