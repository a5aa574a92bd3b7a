"""The live display of a training, rendered as text."""

from __future__ import annotations

import errno
import io
import os
import pty
import termios
from pathlib import Path

import pytest
from rich.console import Console

from mpi_learn.cli.terminal import (
    DEFAULT_SIZE,
    LiveView,
    Trend,
    console_size,
    duration,
    is_watched,
    make_view,
    print_line,
    sparkline,
)
from mpi_learn.training.state import EpochReport


def report(epoch: int, loss: float) -> EpochReport:
    return EpochReport(epoch, 10, {"loss": loss, "val_accuracy": 1 - loss}, 4.0, 12345.6)


@pytest.fixture
def clock():
    class Clock:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    return Clock()


def drawn(view: LiveView) -> str:
    console = Console(file=io.StringIO(), width=90, force_terminal=False)
    console.print(view.panel())
    return console.file.getvalue()


def test_panel_shows_epoch_metrics_speed_and_time_left(clock):
    view = LiveView(10, io.StringIO(), clock)
    for epoch, loss in enumerate((0.5, 0.25, 0.125)):
        clock.now += 4.0
        view(report(epoch, loss))
    clock.now += 1.0
    text = drawn(view)
    assert "3/10" in text
    assert "0.125" in text
    assert "0.875" in text
    assert "█▃▁" in text
    assert "12,346 samples/s" in text
    assert "27 s left" in text


def test_panel_before_the_first_epoch_shows_no_remaining_time(clock):
    view = LiveView(10, io.StringIO(), clock)
    clock.now = 3.0
    assert "first epoch in progress" in drawn(view)
    assert view.left_s is None


def test_remaining_time_counts_only_epochs_of_this_run(clock):
    view = LiveView(10, io.StringIO(), clock)
    view(report(7, 0.5))
    assert view.left_s == 8.0


def test_view_is_put_away_when_the_training_fails(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    with pytest.raises(ValueError, match="no"), LiveView(10, stream) as view:
        view(report(0, 0.5))
        raise ValueError("no")
    assert not view._live.is_started
    assert stream.getvalue().rfind("\033[?25h") > stream.getvalue().rfind("\033[?25l")


def test_without_a_panel_each_epoch_is_one_line(capsys):
    with make_view(10, is_first=False) as view:
        view(report(0, 0.5))
    assert capsys.readouterr().out == "epoch  1/10  loss 0.5  val_accuracy 0.5  12,346 samples/s  4.00 s\n"


def test_small_metrics_keep_their_digits_in_a_line(capsys):
    print_line(report(0, 3.21234e-6))
    assert "loss 3.2123e-06  val_accuracy 1  " in capsys.readouterr().out


@pytest.mark.parametrize(("size", "expected"), [((0, 0), DEFAULT_SIZE), ((100, 0), (100, 25)), ((100, 40), (100, 40))])
@pytest.mark.parametrize("is_launcher", [False, True])
def test_terminal_that_does_not_know_its_size_has_the_default_size(size, expected, is_launcher, monkeypatch):
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, size[::-1])
    launcher_terminal = Path(os.ttyname(terminal)) if is_launcher else None
    monkeypatch.setattr("mpi_learn.cli.terminal._launcher_terminal", lambda: launcher_terminal)
    with os.fdopen(terminal, "w") as stream:
        if not is_launcher:
            monkeypatch.setattr("sys.__stdout__", stream)
        assert console_size() == expected
    os.close(controller)


def test_only_the_first_rank_draws_and_only_on_a_terminal(monkeypatch):
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert isinstance(make_view(3, is_first=True), LiveView)
        assert not isinstance(make_view(3, is_first=False), LiveView)
        monkeypatch.setenv("TERM", "dumb")
        assert not is_watched()
    os.close(controller)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    monkeypatch.setenv("TERM", "xterm")
    assert not isinstance(make_view(3, is_first=True), LiveView)


def test_trend_keeps_the_course_in_constant_memory():
    trend = Trend(8)
    for value in range(1000):
        trend.take(float(value))
    assert len(trend.values) <= 8
    assert trend.values == sorted(trend.values)
    assert trend.values[-1] == 999.0


def test_sparkline_leaves_a_gap_for_missing_values():
    assert sparkline([0.0, float("nan"), 1.0]) == "▁ █"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "0.25 s"), (90, "90 s"), (250, "4 min 10 s"), (7500, "2 h 5 min")]
)
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize("number", [errno.EIO, errno.EPIPE, errno.ENOSPC])
def test_a_training_keeps_its_result_without_its_terminal(number, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")

    class Gone(io.StringIO):
        is_gone = False

        def write(self, text):
            if self.is_gone:
                raise OSError(number, "")
            return super().write(text)

    with LiveView(2, stream=(stream := Gone())):
        stream.is_gone = True
