"""The progress of a search in a notebook: the panel of the command line, which is replaced in place."""

from __future__ import annotations

import io
import time

from mpi_opt.core.space import Parameters
from mpi_opt.core.trial import Outcome
from mpi_opt.views.text.progress_counts import ProgressCounts
from mpi_opt.views.text.progress_display import PlainProgress, panel

DRAW_INTERVAL_S = 0.5
"""The shortest interval between two updates, in seconds: each one is a message to the browser."""

PAGE = '<pre style="font-family: monospace; line-height: 1.2; white-space: pre">{code}</pre>'


class NotebookPanel(PlainProgress):
    """A panel below the cell. Created in the thread of the cell, which IPython needs to find the cell's output."""

    def __init__(self, counts: ProgressCounts) -> None:
        super().__init__(counts)
        from IPython.display import HTML, display

        self._as_html = HTML
        self._handle = display(HTML(""), display_id=True)

    def finished(self, block: int, outcome: Outcome, parameters: Parameters) -> None:
        self._record(block, outcome, parameters)

    def tick(self) -> None:
        """Updates the panel, unless the last update was less than `DRAW_INTERVAL_S` ago."""
        now = time.monotonic()
        if now - self._written >= DRAW_INTERVAL_S:
            self._written = now
            self._draw()

    def close(self) -> None:
        if self.counts.has_begun:
            self._draw()

    def _draw(self) -> None:
        from rich.console import Console

        console = Console(file=io.StringIO(), record=True, width=100, force_terminal=True, force_jupyter=False)
        console.print(panel(self.counts))
        self._handle.update(self._as_html(console.export_html(inline_styles=True, code_format=PAGE)))
