"""The progress of a training: a live panel on a terminal, otherwise one line per epoch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from mpi_learn.cli.terminal import Trend, console_size, duration, is_watched, make_console

if TYPE_CHECKING:
    from rich.console import Group
    from rich.panel import Panel

    from mpi_learn.training.state import EpochReport


DRAWS_PER_SECOND = 2


def print_line(report: EpochReport) -> None:
    """Prints an epoch as one line. Errors of the output are ignored, so that the training continues."""
    metrics = "  ".join(f"{name} {value:.5g}" for name, value in report.metrics.items())
    epoch = f"epoch {report.epoch + 1:{len(str(report.epochs))}}/{report.epochs}"
    with suppress(OSError):
        print(f"{epoch}  {metrics}  {report.samples_per_second:,.0f} samples/s  {report.seconds:.2f} s", flush=True)


class LiveView:
    """A panel that is redrawn in place. A separate thread draws it, so that short epochs are not delayed."""

    def __init__(self, epochs: int, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        self.epochs, self._clock = epochs, clock
        self._trends: dict[str, Trend] = {}
        self._report: EpochReport | None = None
        self._n_seen, self._seconds = 0, 0.0
        self._began = self._since = clock()
        self._console = make_console(stream or sys.stdout)
        self._live = Live(console=self._console, get_renderable=self._drawn, refresh_per_second=DRAWS_PER_SECOND)

    def __enter__(self) -> LiveView:
        self._live.start()
        self._console.show_cursor(True)  # keeps the cursor visible if the process is killed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # the terminal no longer exists, which is no reason to lose the training
            self._live.stop()

    def __call__(self, report: EpochReport) -> None:
        """Stores the epoch; the thread draws it at its next update."""
        for name, value in report.metrics.items():
            self._trends.setdefault(name, Trend(24)).take(value)
        self._n_seen += 1
        self._seconds += report.seconds
        self._report, self._since = report, self._clock()

    @property
    def left_s(self) -> float | None:
        """Estimated remaining time in seconds, from the mean time per epoch; None before the first epoch."""
        if self._report is None:
            return None
        left = (self.epochs - self._report.epoch - 1) * self._seconds / self._n_seen
        return max(left - (self._clock() - self._since), 0.0)

    def _drawn(self) -> Group:
        from rich.console import Group

        self._console.size = console_size()
        return Group(self.panel(), "")  # mpirun holds back an unfinished line

    def panel(self) -> Panel:
        """The current panel."""
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        report, elapsed_s = self._report, self._clock() - self._began
        n_done = 0 if report is None else report.epoch + 1
        grid = Table.grid(padding=(0, 2))
        grid.add_row(Text("epoch", "dim"), f"{n_done}/{self.epochs}", ProgressBar(self.epochs, n_done, width=24))
        if report is None:
            grid.add_row(Text("time", "dim"), duration(elapsed_s), "first epoch in progress")
            return Panel(grid, title="mpi-learn train", expand=False)
        for name, value in report.metrics.items():
            grid.add_row(Text(name, "dim"), Text(f"{value:.5g}", "bold"), Text(str(self._trends[name]), "cyan"))
        speed = f"{report.samples_per_second:,.0f} samples/s"
        grid.add_row(Text("speed", "dim"), speed, f"{duration(report.seconds)} per epoch")
        grid.add_row(Text("time", "dim"), duration(elapsed_s), f"{duration(self.left_s or 0.0)} left")
        return Panel(grid, title="mpi-learn train", expand=False)


def make_view(epochs: int, *, is_first: bool) -> AbstractContextManager[Callable[[EpochReport], None]]:
    """The view of finished epochs: a panel on the first rank if its output is a terminal, otherwise lines."""
    return LiveView(epochs) if is_first and is_watched() else nullcontext(print_line)
