"""The user's terminal, also behind ``mpirun``: the progress of a training, and small plots of characters."""

from __future__ import annotations

import io
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from mpi_learn.cli.run_command import print_if_possible
from mpi_learn.job.started_by import is_launched

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.panel import Panel

    from mpi_learn.training.state import EpochReport


BARS = "▁▂▃▄▅▆▇█"
DEFAULT_SIZE = (80, 25)


def prepare_output() -> None:
    """Opens standard output and standard error, and lets the former escape characters that its encoding does not have.

    Python has none of a stream that was closed before it started, and the next file to be opened, such as a store,
    would have its descriptor. A character that is missing, such as ± in the locale en_US.ISO-8859-1, would be an error.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - a device, open until Python ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def is_watched() -> bool:
    """Whether standard output is a terminal that supports drawing."""
    if os.environ.get("TERM", "dumb") == "dumb":
        return False
    # ranks under mpirun have a terminal of their own, so the output of mpirun itself is decisive
    return _launcher_terminal() is not None if is_launched() else sys.stdout.isatty()


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook, such as Jupyter's."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def console_size() -> tuple[int, int]:
    """Columns and lines of the terminal; those of `DEFAULT_SIZE` for a terminal that reports 0."""
    try:
        columns, lines = _reported_size()
    except (OSError, ValueError):
        return DEFAULT_SIZE
    return columns or DEFAULT_SIZE[0], lines or DEFAULT_SIZE[1]


def make_console(stream: TextIO) -> Console:
    """A console that draws on the terminal behind `stream`. It raises OSError if it cannot write."""
    from rich.console import Console

    class RaisingConsole(Console):
        def on_broken_pipe(self) -> None:  # called while a BrokenPipeError is handled; rich would end the process
            raise

    width, height = console_size()
    return RaisingConsole(file=stream, force_terminal=True, width=width, height=height)


def sparkline(values: Sequence[float], width: int = 32) -> str:
    """A line plot of `values` in at most `width` characters; values that are not finite are gaps."""
    if len(values) > width:
        values = [values[i * len(values) // width] for i in range(width - 1)] + [values[-1]]
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return " " * len(values)
    low, high = 0.25 * min(known), 0.25 * max(known)  # a quarter: no difference overflows
    parts = [(0.25 * value - low) / (high - low) if high > low else 0.0 for value in values]
    return "".join(BARS[round(part * (len(BARS) - 1))] if math.isfinite(part) else " " for part in parts)


def duration(seconds: float) -> str:
    """``3.2 s``, ``4 min 10 s``, ``2 h 5 min``."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


class Trend:
    """A thinned series of at most `length` values, for any number of values that are added.

    Args:
        length: The maximum number of values, even.

    Attributes:
        values: The last value of each group of consecutive values. All groups have the same size, except that the last
            group may be smaller.
    """

    def __init__(self, length: int = 40) -> None:
        self.values: list[float] = []
        self._length, self._stride, self._n = length, 1, 0

    def take(self, value: float) -> None:
        """Adds a value; a full series is first thinned to every second value."""
        if self._n % self._stride == 0:
            if len(self.values) == self._length:
                self.values, self._stride = self.values[1::2], 2 * self._stride
            self.values.append(value)
        else:
            self.values[-1] = value
        self._n += 1

    def __str__(self) -> str:
        return sparkline(self.values, self._length)


def _reported_size() -> os.terminal_size:
    path = _launcher_terminal()
    if path is None:
        return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    terminal = os.open(path, os.O_RDONLY | os.O_NOCTTY)
    try:
        return os.get_terminal_size(terminal)
    finally:
        os.close(terminal)


def _launcher_terminal() -> Path | None:
    """The terminal of the ``mpirun`` that started this process on this host, if it has one."""
    if not is_launched():
        return None
    try:
        terminal = Path(f"/proc/{os.getppid()}/fd/1").readlink()
    except OSError:
        return None
    return terminal if str(terminal).startswith(("/dev/pts/", "/dev/tty")) else None


DRAWS_PER_SECOND = 2


def print_line(report: EpochReport) -> None:
    """Prints an epoch as one line. Errors of the output are ignored, so that the training continues."""
    metrics = "  ".join(f"{name} {value:.5g}" for name, value in report.metrics.items())
    epoch = f"epoch {report.epoch + 1:{len(str(report.epochs))}}/{report.epochs}"
    print_if_possible(f"{epoch}  {metrics}  {report.samples_per_second:,.0f} samples/s  {report.seconds:.2f} s")


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
