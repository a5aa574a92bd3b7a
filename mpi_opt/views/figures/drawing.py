"""The style and the colours of all figures, and how axes, points and notes are drawn with matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mpi_opt.views.series.axes import LARGEST, Axis, every_other

STYLE: dict[Any, Any] = {  # the keys of matplotlib.rcParams
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e8ec",
    "grid.linewidth": 0.7,
    "axes.edgecolor": "#8a93a3",
    "xtick.color": "#4a5262",
    "ytick.color": "#4a5262",
    "axes.labelcolor": "#222834",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,  # text stays text in PDF and SVG
    "svg.fonttype": "none",
}
COLOURS = {
    "complete": "#2f6fde",
    "pruned": "#9aa3b2",
    "failed": "#d1453b",
    "lost": "#f0a59f",
    "killed": "#f0a59f",
    "moved": "#85abeb",
    "running": "#e0a100",
    "best": "#0b8a5c",
    "ink": "#222834",
    "faint": "#c3c9d4",
}
COLOUR_MAP = "viridis"

MAX_SLANTED = 11
"""The largest number of slanted names of categories that do not overlap below a small panel."""

INACTIVE, BELOW, ABOVE = -0.14, -0.12, 1.12
"""The heights in parallel coordinates, whose axes are from 0 to 1, of inactive hyperparameters, and of figures of merit
below and above the range of their axis."""


styled = matplotlib.rc_context(STYLE)
"""Decorates a function that draws a figure: it uses the style of all figures instead of the caller's."""


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of `width` × `height` inches, without a window, and its only axes."""
    figure = Figure(figsize=(width, height), dpi=150)
    return figure, figure.add_subplot()


def shades(n: int) -> np.ndarray:
    """Colours of `n` trials, best first, from dark to light; shape (n, 4)."""
    return np.asarray(matplotlib.colormaps[COLOUR_MAP](np.linspace(0.0, 0.92, max(n, 1)))[:n])


def label(text: str, length: int = 40) -> str:
    """`text` as a label: its middle is replaced by … if it is longer than `length`, and $ begins no formula."""
    half = (length - 1) // 2
    shortened = text if len(text) <= length else f"{text[:half]}…{text[-half:]}"
    return shortened.replace("$", r"\$")


def set_axis(axes: Axes, which: Literal["x", "y"], shown: Axis, *, pad: float = 0.0, is_small: bool = False) -> None:
    """Sets title, scale, range and ticks of the axis `which`.

    Args:
        axes: The axes of matplotlib.
        which: ``x`` or ``y``.
        shown: The axis.
        pad: The space at both ends, as a fraction of the axis.
        is_small: Whether the axis is that of a small panel.
    """
    axis = getattr(axes, f"{which}axis")
    axis.set_label_text(label(shown.title, 26 if is_small else 40))
    if shown.kind == "log":
        getattr(axes, f"set_{which}scale")("log")
    # about 70 characters fit below a panel: long names of categories are slanted, other ticks are left out
    if shown.kind == "category":
        most = MAX_SLANTED if is_small else len(shown.ticks)
    else:
        longest = max((len(text) for _, text in shown.ticks), default=0) if which == "x" else 1
        most = max(2, (26 if is_small else 70) // (longest + 2))
    ticks = every_other(shown.ticks, most)
    texts = [label(text, 16) for _, text in ticks]
    slanted = {"rotation": 35, "ha": "right", "fontsize": 7} if which == "x" and len("".join(texts)) > 24 else {}
    axis.set_ticks([place for place, _ in ticks], texts, **(slanted if shown.kind == "category" else {}))
    axis.set_minor_locator(ticker.NullLocator())
    low, high = shown.low, shown.high
    if shown.kind == "log":
        ratio = math.exp(pad * (math.log(high) - math.log(low)))
        # a range that leaves no space within the floats ends where it ends
        low, high = max(low / ratio, min(low, 1 / LARGEST)), min(high * ratio, max(high, LARGEST))
    elif shown.kind == "linear":
        low, high = low - pad * (high - low), high + pad * (high - low)
    getattr(axes, f"set_{which}lim")(low, high)


def within(shown: Axis, values: Sequence[float] | np.ndarray) -> np.ndarray:
    """`values`, shape (n,), limited to a little more than the axis: a line leaves the figure, and nothing overflows."""
    width = shown.high - shown.low
    return np.asarray(np.clip(np.asarray(values, float), shown.low - 0.5 * width, shown.high + 0.5 * width))


def scatter(axes: Axes, points: Sequence[tuple[float, float]], shown: Axis, **style: Any) -> None:
    """Draws points; those outside of the vertical axis `shown` are triangles at its end.

    Args:
        axes: The axes of matplotlib.
        points: The positions.
        shown: The vertical axis.
        style: As for `Axes.scatter`.
    """
    if not points:
        return
    x, y = np.array(points).T
    sides, colours = np.array([shown.side(value) for value in y]), style.pop("c", None)
    ends = {0: y, 1: np.full(len(y), shown.high), -1: np.full(len(y), shown.low)}
    text = style.pop("label", None)
    for side, marker in ((0, "o"), (1, "^"), (-1, "v")):
        here = sides == side
        if not here.any() and not (side == 0 and text):
            continue
        style |= {} if colours is None else {"c": colours[here]}
        # triangles at the end of the axis are not cut there, and must be large enough to show their direction
        size = style["s"] if side == 0 else max(20, style["s"])
        axes.scatter(
            x[here],
            ends[side][here],
            **style | {"s": size},
            marker=marker,
            clip_on=side == 0,
            zorder=3 if side else 2,
            label=text if side == 0 else None,
        )


def add_note(figure: Figure, text: str) -> None:
    """Writes below the axes what a figure does not show, for example points outside of its range."""
    if text:
        figure.supxlabel("\n".join(textwrap.wrap(text, int(14 * figure.get_figwidth()))), fontsize=8)


def label_parallel(axes: Axes, x: int, shown: Axis, heights: np.ndarray) -> None:
    """Draws the vertical axis at `x` of parallel coordinates, with its ticks and the names of places beside it.

    `heights` are those of all lines at this axis.
    """
    axes.vlines(x, 0, 1, color=COLOURS["faint"], lw=1, zorder=0)
    places = shown.fractions(place for place, _ in shown.ticks)
    marks = [(place, label(text, 16)) for place, (_, text) in zip(places, shown.ticks, strict=True)]
    for place, name in ((INACTIVE, "inactive"), (BELOW, "▼ below"), (ABOVE, "▲ above")):
        if n := int((heights == place).sum()):
            marks.append((place, name if place == INACTIVE else f"{n} {name}"))
    for height, text in marks:
        backing = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 1}
        axes.text(x + 0.04, height, text, fontsize=7, va="center", color=COLOURS["ink"], zorder=9, bbox=backing)
