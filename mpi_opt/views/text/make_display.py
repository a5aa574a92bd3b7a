"""Chooses the progress display of a search."""

from __future__ import annotations

import sys

from mpi_learn.cli.terminal import is_notebook, is_watched
from mpi_opt.views.text.notebook_panel import NotebookPanel
from mpi_opt.views.text.progress_counts import ProgressCounts
from mpi_opt.views.text.progress_display import LINE_INTERVAL_S, LivePanel, PlainProgress


def make_display(
    counts: ProgressCounts, *, in_python: bool = False, interval_s: float = LINE_INTERVAL_S
) -> PlainProgress:
    """The progress display: a panel on a terminal and in a notebook, plain lines otherwise.

    Args:
        counts: The progress.
        in_python: Whether a script of the user prints to standard output; then lines are written to standard error.
        interval_s: The shortest interval between the lines of two trials, in seconds.
    """
    if in_python and is_notebook():
        return NotebookPanel(counts)
    if is_watched():
        return LivePanel(counts)
    return PlainProgress(counts, stream=sys.stderr if in_python else None, interval_s=interval_s)
