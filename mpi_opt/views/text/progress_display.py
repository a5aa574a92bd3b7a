"""The progress display of a search: a live panel on a terminal, plain lines otherwise."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from mpi_learn.cli.terminal import console_size, duration, is_notebook, is_watched, make_console
from mpi_opt.core.trial import Outcome, Proposal, TrialRecord
from mpi_opt.errors import without_passwords
from mpi_opt.study.presentation import cell, with_null
from mpi_opt.study.progress import Progress
from mpi_opt.views.text.progress_counts import ProgressCounts
from mpi_opt.views.trackers import Tracker

if TYPE_CHECKING:
    from rich.panel import Panel
    from rich.text import Text

LINE_INTERVAL_S = 1.0
"""The shortest interval between the lines of two trials, in seconds."""

DRAW_INTERVAL_S = 0.25
"""The shortest interval between two updates of the panel on a terminal, in seconds."""

MAX_CELLS = 256
"""The largest number of blocks in the panel."""

PAGE = '<pre style="font-family: monospace; line-height: 1.2; white-space: pre">{code}</pre>'


class PlainProgress(Progress):
    """Prints notes and at most one trial per interval, without colours, for the logs of batch systems.

    Attributes:
        tracker: Also records the trials, if it is set.

    Args:
        counts: The progress.
        stream: Where to print; default: standard output.
        interval_s: The shortest interval between the lines of two trials, in seconds. If it is longer than
            `LINE_INTERVAL_S`, a search that is shorter prints none.
    """

    def __init__(
        self,
        counts: ProgressCounts,
        stream: TextIO | None = None,
        interval_s: float = LINE_INTERVAL_S,
    ) -> None:
        self.counts, self.stream = counts, stream or sys.stdout
        self.tracker: Tracker | None = None
        self._interval_s, self._line = interval_s, ""
        self._written = float("-inf") if interval_s <= LINE_INTERVAL_S else time.monotonic()

    def begins(self, text: str) -> None:
        self.note(text)

    def resumed(self, ended: Sequence[TrialRecord]) -> None:
        self.counts.resume(ended)

    def ready(self, block: int) -> None:
        self.counts.add_block(block)

    def started(self, block: int, number: int) -> None:
        self.counts.begin(block, number)

    def finished(self, block: int, outcome: Outcome, proposal: Proposal) -> None:
        self._record(block, outcome, proposal)
        now = time.monotonic()
        if now - self._written >= self._interval_s:
            self._written = now
            what = outcome.error.splitlines()[0] if outcome.error else f"{outcome.figure_of_merit:.6g}"
            self._line = f"trial {outcome.number} {outcome.state}: {what} in {duration(outcome.duration_s)}"

    def tick(self) -> None:
        """Prints the line of a trial: now its block has the next one, and counts as busy."""
        if self._line:
            self._write(f"{self._line}; {self.counts}")
            self._line = ""

    def requeued(self, block: int) -> None:
        self.counts.requeue(block)

    def given_up(self, block: int) -> None:
        self.counts.lose(block)

    def dissolved(self, block: int) -> None:
        self.counts.dissolve(block)

    def note(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        """Prints the last counts; the search has ended, or failed before its start."""
        self.tick()
        self.counts.conclude()
        if self.counts.has_begun:
            self._write(f"{'done' if self.counts.is_finished else 'ended'}: {self.counts}")

    def _record(self, block: int, outcome: Outcome, proposal: Proposal) -> None:
        self.counts.end(block, outcome, proposal)
        if self.tracker is not None:
            self.tracker.record(outcome, proposal.parameters)

    def _write(self, text: str) -> None:
        with _allowed_to_fail():
            print(without_passwords(text), file=self.stream, flush=True)


class LivePanel(PlainProgress):
    """A panel that is updated in its place, at most four times a second on a terminal, and twice in a notebook."""

    def __init__(
        self,
        counts: ProgressCounts,
        stream: TextIO | None = None,
        *,
        in_notebook: bool = False,
    ) -> None:
        super().__init__(counts, stream)
        self._place = _Cell() if in_notebook else _Terminal(self.stream)

    def finished(self, block: int, outcome: Outcome, proposal: Proposal) -> None:
        self._record(block, outcome, proposal)

    def tick(self) -> None:
        """Updates the panel, unless the last update was less than an interval ago."""
        now = time.monotonic()
        if now - self._written >= self._place.interval_s:
            self._written = now
            self._draw()

    def close(self) -> None:
        if self.counts.has_begun:
            self._draw()
        with _allowed_to_fail():
            self._place.close()

    def note(self, text: str) -> None:
        with _allowed_to_fail():
            self._place.note(without_passwords(text))

    def _draw(self) -> None:
        with _allowed_to_fail():
            self._place.draw(panel(self.counts))


class _Terminal:
    interval_s = DRAW_INTERVAL_S

    def __init__(self, stream: TextIO) -> None:
        from rich.live import Live

        self._live = Live(console=make_console(stream), auto_refresh=False)
        self._live.start()
        self._live.console.show_cursor(True)  # so that it is visible after the process is killed

    def draw(self, shown: Panel) -> None:
        from rich.console import Group

        self._live.console.size = console_size()
        self._live.update(Group(shown, ""), refresh=True)  # mpirun forwards only complete lines

    def note(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._live.stop()


class _Cell:
    """The output of a cell. Created in the thread of the cell, which IPython needs to find its output."""

    interval_s = 0.5  # each update is a message to the browser

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._as_html = HTML
        self._handle = display(HTML(""), display_id=True)

    def draw(self, shown: Panel) -> None:
        from rich.console import Console

        console = Console(file=io.StringIO(), record=True, width=100, force_terminal=True, force_jupyter=False)
        console.print(shown)
        self._handle.update(self._as_html(console.export_html(inline_styles=True, code_format=PAGE)))

    def note(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        """The last panel stays."""


def make_display(
    counts: ProgressCounts, *, in_python: bool = False, interval_s: float = LINE_INTERVAL_S
) -> PlainProgress:
    """The progress display: a panel on a terminal and in a notebook, plain lines otherwise.

    Args:
        counts: The progress.
        in_python: Whether a script of the user prints to standard output; then lines are written to standard error.
        interval_s: The shortest interval between the lines of two trials, in seconds.
    """
    in_notebook = in_python and is_notebook()
    if in_notebook or is_watched():
        return LivePanel(counts, in_notebook=in_notebook)
    return PlainProgress(counts, stream=sys.stderr if in_python else None, interval_s=interval_s)


@contextlib.contextmanager
def _allowed_to_fail() -> Iterator[None]:
    """Ignores a closed pipe, a terminal that no longer exists, or a full disk: they are no reason to end a search."""
    with contextlib.suppress(OSError):
        yield


def panel(counts: ProgressCounts) -> Panel:
    """The progress of a search as a panel of a few lines."""
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    bar = Table.grid(padding=(0, 2))
    bar.add_row(ProgressBar(counts.trials, counts.n_ended, width=40), f"{counts.n_ended}/{counts.trials}")
    rows: list[tuple[str, Table | Text]] = [("trials", bar), ("", _states(counts))]
    if counts.last_failure:
        rows.append(("failed", Text(cell(without_passwords(counts.last_failure), 70), "red")))
    if counts.best is not None:
        rows += [("best", Text.assemble((f"{counts.best:.6g}", "bold green"), f"  trial {counts.best_number}"))]
        rows += [("", Text("  ".join(_parameter(*item) for item in counts.best_parameters.items())))]
        rows += [("so far", Text(str(counts.trend), "cyan"))]
    if not counts.has_ended:
        rows.append(("blocks", _blocks(counts)))
    if counts.pace_s is not None and counts.left_s is not None:
        left = "" if counts.has_ended else f", {duration(counts.left_s)} left"
        rows.append(("pace", Text(f"{_number(3600 / counts.pace_s)} trials/h{left}")))
    grid = Table.grid(padding=(0, 2))
    for label, content in rows:
        grid.add_row(Text(label, "dim"), content)
    return Panel(grid, title="mpi-opt search", expand=False)


def _states(counts: ProgressCounts) -> Text:
    from rich.text import Text

    states = [
        (counts.ended["complete"], "done", "green"),
        (len(counts.busy), "running", "yellow"),
        (counts.ended["failed"], "failed", "red"),
        (counts.ended["pruned"], "pruned", "cyan"),
    ]
    return Text(", ").join(Text(f"{n} {name}", colour if n else "dim") for n, name, colour in states)


def _blocks(counts: ProgressCounts) -> Text:
    """A symbol for each block, training, idle or lost, and the number of blocks of each kind."""
    from rich.text import Text

    text, n_training = Text(), len(counts.busy)
    for block, exists in list(counts.blocks.items())[:MAX_CELLS]:
        if not exists:
            text.append("✗", "red")
        elif block in counts.busy:
            text.append("■", "green")
        else:
            text.append("□", "dim")
    n_lost = len(counts.blocks) - counts.n_blocks
    kinds = [f"{n_training} training", f"{counts.n_blocks - n_training} idle"] + [f"{n_lost} lost"] * bool(n_lost)
    return text.append(f"{' …' if len(counts.blocks) > MAX_CELLS else ''} {', '.join(kinds)}")


def _parameter(name: str, value: object) -> str:
    return f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {cell(with_null(value), 24)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
