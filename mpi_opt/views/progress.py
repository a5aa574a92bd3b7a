"""What a running search shows: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from mpi_learn.launch import is_launched

if TYPE_CHECKING:
    from mpi_opt.space import Parameters
    from mpi_opt.study import Study
    from mpi_opt.trial import Outcome
    from mpi_opt.views.trackers import Tracker

LINE_INTERVAL_S = 1.0
"""Plain lines come no faster than this, however short the trials are."""


@dataclass
class Counts:
    """How far a search is.

    Attributes:
        trials: How many there will be.
        maximize: Whether more is better.
        n_blocks: How many blocks there are.
        n_done: Finished well, earlier runs included.
        n_failed: Failed.
        n_pruned: Pruned.
        busy: block -> number of its trial.
        best: Best figure of merit so far.
        best_number: The trial that has it.
    """

    trials: int
    maximize: bool
    n_blocks: int = 0
    n_done: int = 0
    n_failed: int = 0
    n_pruned: int = 0
    busy: dict[int, int] = field(default_factory=dict)
    best: float | None = None
    best_number: int | None = None
    began: float = field(default_factory=time.monotonic)
    n_ended_here: int = 0

    @property
    def n_ended(self) -> int:
        """Trials that are over, well or not."""
        return self.n_done + self.n_failed + self.n_pruned

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest will take at the pace so far; None before the first trial has ended."""
        if not self.n_ended_here:
            return None
        pace = (time.monotonic() - self.began) / self.n_ended_here
        return pace * max(self.trials - self.n_ended, 0)

    def resume(self, study: Study) -> None:
        """Counts the trials of earlier runs."""
        states = study.record.counts
        self.n_done, self.n_failed, self.n_pruned = (states.get(s, 0) for s in ("complete", "failed", "pruned"))
        if study.best is not None:
            self.best, self.best_number = study.best.figure_of_merit, study.best.number

    def take(self, block: int, outcome: Outcome) -> None:
        """Counts a trial that ended."""
        self.busy.pop(block, None)
        self.n_ended_here += 1
        self.n_done += outcome.state == "complete"
        self.n_failed += outcome.state == "failed"
        self.n_pruned += outcome.state == "pruned"
        value = outcome.figure_of_merit
        if outcome.state == "complete" and self.is_better(value):
            self.best, self.best_number = value, outcome.number

    def is_better(self, value: float | None) -> bool:
        """Whether `value` beats the best so far."""
        if value is None or self.best is None:
            return value is not None
        return value > self.best if self.maximize else value < self.best

    def __str__(self) -> str:
        parts = [f"{self.n_ended}/{self.trials} trials", f"{len(self.busy)}/{self.n_blocks} blocks busy"]
        parts += [f"{self.n_failed} failed"] * bool(self.n_failed) + [f"{self.n_pruned} pruned"] * bool(self.n_pruned)
        if self.best is not None:
            parts.append(f"best {self.best:.6g} (trial {self.best_number})")
        if self.left_s is not None:
            parts.append(f"{duration(self.left_s)} left")
        return ", ".join(parts)


class PlainProgress:
    """One line a second at most, without colours: for logs of batch systems.

    Args:
        counts: What stands already.
        tracker: Is handed every trial that ended.
        stream: Where to write.
    """

    def __init__(self, counts: Counts, tracker: Tracker | None = None, stream: TextIO | None = None) -> None:
        self.counts, self.tracker, self.stream = counts, tracker, stream or sys.stdout
        self._written = 0.0

    def resumed(self, study: Study) -> None:
        """The study has trials of earlier runs."""
        self.counts.resume(study)

    def ready(self, block: int) -> None:
        """A block can take trials."""
        self.counts.n_blocks += 1

    def started(self, block: int, number: int) -> None:
        """A block begins a trial."""
        self.counts.busy[block] = number

    def finished(self, block: int, outcome: Outcome, parameters: Parameters) -> None:
        """A trial ended."""
        self._take(block, outcome, parameters)
        now = time.monotonic()
        if now - self._written >= LINE_INTERVAL_S:
            self._written = now
            what = outcome.error.splitlines()[0] if outcome.error else f"{outcome.figure_of_merit:.6g}"
            took = duration(outcome.duration_s)
            self._write(f"trial {outcome.number} {outcome.state}: {what} in {took}; {self.counts}")

    def given_up(self, block: int) -> None:
        """A block is no more."""
        self.counts.n_blocks -= 1
        self.counts.busy.pop(block, None)

    def note(self, text: str) -> None:
        """Something that the user should know."""
        self._write(text)

    def tick(self) -> None:
        """Time has passed."""

    def close(self) -> None:
        """The search is over."""
        self._write(f"done: {self.counts}")
        self._close_tracker()

    def _close_tracker(self) -> None:
        if self.tracker is not None:
            self.tracker.close()

    def _take(self, block: int, outcome: Outcome, parameters: Parameters) -> None:
        self.counts.take(block, outcome)
        if self.tracker is not None:
            self.tracker.record(outcome, parameters)

    def _write(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


class LivePanel(PlainProgress):
    """A panel that is drawn anew in its place."""

    def __init__(self, counts: Counts, tracker: Tracker | None = None, stream: TextIO | None = None) -> None:
        super().__init__(counts, tracker, stream)
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(file=self.stream, force_terminal=True), auto_refresh=False, transient=False)
        self._live.start()

    def finished(self, block: int, outcome: Outcome, parameters: Parameters) -> None:
        """A trial ended."""
        self._take(block, outcome, parameters)
        self.tick()

    def tick(self) -> None:
        """Time has passed."""
        now = time.monotonic()
        if now - self._written >= 0.25:
            self._written = now
            self._live.update(self._panel(), refresh=True)

    def close(self) -> None:
        """The search is over."""
        self._live.update(self._panel(), refresh=True)
        self._live.stop()
        self._close_tracker()

    def note(self, text: str) -> None:
        """Something that the user should know: above the panel."""
        self._live.console.print(text, markup=False, highlight=False)

    def _panel(self) -> object:
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        counts = self.counts
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            "trials", ProgressBar(counts.trials, counts.n_ended, width=40), f"{counts.n_ended}/{counts.trials}"
        )
        grid.add_row("", f"{counts.n_done} complete, {counts.n_pruned} pruned, {counts.n_failed} failed", "")
        cells = "■" * min(len(counts.busy), 64) + "□" * min(counts.n_blocks - len(counts.busy), 64)
        grid.add_row("blocks", cells, f"{len(counts.busy)}/{counts.n_blocks} busy")
        if counts.best is not None:
            grid.add_row("best", f"{counts.best:.6g}", f"trial {counts.best_number}")
        if counts.left_s is not None:
            grid.add_row("left", duration(counts.left_s), "")
        return Panel(grid, title="mpi-opt search", expand=False)


def make_progress(counts: Counts, tracker: Tracker | None = None) -> PlainProgress:
    """A panel when a person is watching, lines otherwise."""
    return (LivePanel if is_watched() else PlainProgress)(counts, tracker)


def is_watched() -> bool:
    """Whether standard output ends on a terminal; under ``mpirun``, which stands between, its own output counts."""
    if not is_launched():
        return sys.stdout.isatty()
    try:
        return str(Path(f"/proc/{os.getppid()}/fd/1").readlink()).startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return False


def duration(seconds: float) -> str:
    """``3.2 s``, ``4 min 10 s``, ``2 h 5 min``."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
