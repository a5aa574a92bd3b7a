"""The style and the colours of all figures, and the axes of hyperparameters."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mpi_opt.core.space import Categorical, Dimension, Integer, Real

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
    "running": "#e0a100",
    "best": "#0b8a5c",
    "ink": "#222834",
    "faint": "#c3c9d4",
}
COLOUR_MAP = "viridis"

INACTIVE = -0.14
"""The height of inactive hyperparameters in parallel coordinates, whose axes are from 0 to 1."""


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


def scale_axis(axes: Axes, which: str, dimension: Dimension) -> None:
    """Sets the scale of the axis `which` (x or y) for a hyperparameter: logarithmic, or with categories as labels."""
    axis = getattr(axes, f"{which}axis")
    if isinstance(dimension, Categorical):
        labels = [label(str(category), 16) for category in dimension.categories]
        slanted = {"rotation": 35, "ha": "right", "fontsize": 7} if which == "x" and len("".join(labels)) > 24 else {}
        axis.set_ticks(range(len(labels)), labels, **slanted)
        axis.set_minor_locator(ticker.NullLocator())
        getattr(axes, f"set_{which}lim")(-0.5, len(labels) - 0.5)
    elif isinstance(dimension, Real | Integer) and dimension.prior == "log-uniform":
        getattr(axes, f"set_{which}scale")("log")


def label_parallel(axes: Axes, x: int, dimension: Dimension, has_inactive: bool) -> None:
    """Draws the vertical axis at `x` of parallel coordinates, labelled with a few values of its dimension."""
    axes.vlines(x, 0, 1, color=COLOURS["faint"], lw=1, zorder=0)
    if isinstance(dimension, Categorical):
        marks = [(dimension.encode(category), label(str(category), 16)) for category in dimension.categories]
    else:
        marks = [(unit, f"{dimension.decode(unit):.3g}") for unit in (0.0, 0.5, 1.0)]
    if has_inactive:
        marks.append((INACTIVE, "inactive"))
    for height, text in marks:
        backing = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 1}
        axes.text(x + 0.04, height, text, fontsize=7, va="center", color=COLOURS["ink"], zorder=9, bbox=backing)


def zoom(axes: Axes, limits: tuple[float, float] | None) -> None:
    """Sets the limits of the y-axis; None leaves them unchanged."""
    if limits is not None:
        axes.set_ylim(*limits)
