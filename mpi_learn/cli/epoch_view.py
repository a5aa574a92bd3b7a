"""What a running training shows: a live panel on a terminal, a line an epoch elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from mpi_learn.cli.terminal import Trend, console_size, duration, is_watched, make_console

if TYPE_CHECKING:
    from rich.console import Group
    from rich.panel import Panel

    from mpi_learn.training.state import EpochReport


DRAWS_PER_SECOND = 2


class View(Protocol):
    """Told of each epoch while it is open."""

    def __enter__(self) -> View:
        """Begins to show."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """The training is over, well or not."""

    def __call__(self, report: EpochReport) -> None:
        """An epoch is over."""


class Lines:
    """One plain line an epoch."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Nothing to put away."""

    def __call__(self, report: EpochReport) -> None:
        """Writes the line; where that cannot be, the training goes on without."""
        metrics = "  ".join(f"{name} {value:.4f}" for name, value in report.metrics.items())
        width = len(str(report.epochs))
        with suppress(OSError):
            print(
                f"epoch {report.epoch + 1:{width}}/{report.epochs}  {metrics}  "
                f"{report.samples_per_second:,.0f} samples/s  {report.seconds:.2f} s",
                file=self.stream,
                flush=True,
            )


class LiveView:
    """A panel that is drawn anew in its place, by a thread of its own, so that short epochs do not wait for it.

    Args:
        epochs: How many there will be.
        stream: Where to draw.
        clock: Seconds.
    """

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
        self._console.show_cursor(True)  # it stays visible also when the process is killed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, report: EpochReport) -> None:
        """Takes the epoch in; it is drawn when its turn comes."""
        for name, value in report.metrics.items():
            self._trends.setdefault(name, Trend(24)).take(value)
        self._n_seen += 1
        self._seconds += report.seconds
        self._report, self._since = report, self._clock()

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest will take if its epochs take as long as those so far; None before the first."""
        if self._report is None:
            return None
        left = (self.epochs - self._report.epoch - 1) * self._seconds / self._n_seen
        return max(left - (self._clock() - self._since), 0.0)

    def _drawn(self) -> Group:
        from rich.console import Group

        self._console.size = console_size()
        return Group(self.panel(), "")  # mpirun keeps an unfinished line back

    def panel(self) -> Panel:
        """The panel as it is now."""
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        report, elapsed_s = self._report, self._clock() - self._began
        n_done = 0 if report is None else report.epoch + 1
        grid = Table.grid(padding=(0, 2))
        grid.add_row(Text("epoch", "dim"), f"{n_done}/{self.epochs}", ProgressBar(self.epochs, n_done, width=24))
        if report is None:
            grid.add_row(Text("time", "dim"), duration(elapsed_s), "the first epoch is under way")
            return Panel(grid, title="mpi-learn train", expand=False)
        for name, value in report.metrics.items():
            grid.add_row(Text(name, "dim"), Text(f"{value:.5g}", "bold"), Text(str(self._trends[name]), "cyan"))
        speed = f"{report.samples_per_second:,.0f} samples/s"
        grid.add_row(Text("speed", "dim"), speed, f"{duration(report.seconds)} an epoch")
        grid.add_row(Text("time", "dim"), duration(elapsed_s), f"{duration(self.left_s or 0.0)} left")
        return Panel(grid, title="mpi-learn train", expand=False)


def make_view(epochs: int, *, is_first: bool) -> View:
    """A panel when a person is watching, lines otherwise; other ranks than the first never draw."""
    return LiveView(epochs) if is_first and is_watched() else Lines()
