"""The live display of a search, rendered as text."""

from __future__ import annotations

import errno
import io
import re
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from mpi_opt import Real, search
from mpi_opt.core.trial import Outcome, Proposal
from mpi_opt.views.text import progress_display
from mpi_opt.views.text.progress_counts import ProgressCounts
from mpi_opt.views.text.progress_display import LivePanel, PlainProgress, make_display, panel
from tests.mpi_opt.outcomes import an_outcome


def ended(number: int, value: float | None = None, state: str = "complete", error: str | None = None) -> Outcome:
    return an_outcome(number, state, value, None, 1.0, error=error)


def drawn(counts: ProgressCounts, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(panel(counts))
    return console.file.getvalue()


@pytest.fixture
def clock():
    class Clock:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    return Clock()


@pytest.fixture
def counts(clock):
    """Three blocks, of which the last is lost. Of ten trials, three have ended and two run, 36 s after the start."""
    made = ProgressCounts(10, maximize=False, clock=clock)
    made.blocks.update({0: True, 1: True, 2: True, 3: True})
    for number in range(4):
        made.begin(number, number)
    clock.now = 36.0
    made.end(0, ended(0, 0.5), Proposal(0, {"rate": 0.01, "kind": "elu"}))
    made.end(1, ended(1, 0.25), Proposal(1, {"rate": 0.0123456, "kind": "relu"}))
    made.end(2, ended(2, None, "failed", "rank 0 on vm: ValueError: no\nTraceback …"), Proposal(2, {"rate": 1.0}))
    made.begin(0, 4)
    made.lose(2)
    return made


def test_panel_shows_the_states_the_best_and_its_hyperparameters(counts):
    text = drawn(counts)
    assert "3/10" in text
    assert "2 done, 2 running, 1 failed, 0 pruned" in text
    assert re.search(r"best +0\.25 +trial 1", text)
    assert "rate 0.01235  kind relu" in text
    assert "trial 2: rank 0 on vm: ValueError: no" in text
    assert "Traceback" not in text
    assert "█▁" in text


def test_panel_shows_a_cell_for_each_block(counts):
    assert "■□✗■ 2 training, 1 idle, 1 lost" in drawn(counts)


def test_panel_shows_pace_and_time_left(counts):
    assert "300 trials/h, 84 s left" in drawn(counts)


def test_panel_of_a_search_that_has_not_begun_is_drawn():
    text = drawn(ProgressCounts(10, maximize=True))
    assert "0/10" in text
    assert "best" not in text


def test_panel_fits_a_narrow_terminal_and_many_blocks(counts):
    counts.blocks.update(dict.fromkeys(range(1000), True))
    lines = drawn(counts, width=50).splitlines()
    assert max(map(len, lines)) <= 50
    assert len(lines) < 24
    assert "…" in drawn(counts)


def test_control_characters_of_a_study_do_not_reach_the_terminal(counts):
    counts.end(0, ended(4, 0.1), Proposal(4, {"kind": "\033[2Jgone"}))
    assert "\033" not in drawn(counts)


def test_most_is_best_when_maximizing():
    made = ProgressCounts(3, maximize=True)
    for number, value in enumerate((0.1, 0.9, 0.5)):
        made.begin(0, number)
        made.end(0, ended(number, value), Proposal(number, {}))
    assert (made.best, made.best_number, made.trend.values) == (0.9, 1, [0.1, 0.9, 0.9])


@pytest.mark.parametrize(("strategy", "best"), [("halving", 2), ("population", 1)])
def test_best_trial_is_one_of_the_longest_trainings_as_in_the_results(strategy, best):
    made = ProgressCounts(3, maximize=False, strategy=strategy)
    for number, (value, epochs) in enumerate([(0.4, 9), (0.1, 3), (0.2, 9)]):
        made.end(0, ended(number, value), Proposal(number, {}, budget=epochs))
    assert made.best_number == best


def test_many_short_trials_are_drawn_seldom_and_kept_in_little_memory(monkeypatch, clock):
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    live = LivePanel(ProgressCounts(20_000, maximize=False), stream=stream)
    live.ready(0)
    draws = []
    monkeypatch.setattr(live, "_draw", lambda: draws.append(clock.now))
    monkeypatch.setattr(progress_display, "time", SimpleNamespace(monotonic=clock))
    began = time.process_time()
    for number in range(20_000):
        clock.now = number / 64
        live.started(0, number)
        live.finished(0, ended(number, 1.0 / (number + 1)), Proposal(number, {"rate": 0.1}))
        live.tick()
    assert (time.process_time() - began) / 20_000 < 50e-6
    assert draws == [number * progress_display.DRAW_INTERVAL_S for number in range(1250)]
    assert len(live.counts.trend.values) <= 40
    assert live.counts.trend.values == sorted(live.counts.trend.values, reverse=True)
    assert live.counts.trend.values[-1] == 1.0 / 20_000
    live.close()


def test_live_panel_draws_itself_in_its_place_and_leaves_the_cursor_visible(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    live = LivePanel(ProgressCounts(2, maximize=False), stream=stream)
    live.ready(0)
    live.started(0, 0)
    live.note("rank lost: rank 4")
    live.finished(0, ended(0, 0.5), Proposal(0, {"rate": 0.1}))
    live.close()
    text = stream.getvalue()
    assert "rank lost: rank 4" in text
    assert "\033[1A" in text
    assert text.rfind("\033[?25h") > text.rfind("\033[?25l")


class Gone(io.StringIO):
    """A terminal or pipe that no longer exists."""

    error: OSError | None = None

    def write(self, text: str) -> int:
        if self.error is not None:
            raise self.error
        return super().write(text)

    flush = lambda self: self.write("")  # noqa: E731


@pytest.mark.parametrize("display", [PlainProgress, LivePanel])
@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "Input/output error"), BrokenPipeError(), OSError(errno.ENOSPC, "")]
)
def test_a_search_continues_without_its_terminal(display, error, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    shown = display(ProgressCounts(2, maximize=False), stream=(stream := Gone()))
    shown.ready(0)
    stream.error = error
    shown.started(0, 0)
    shown.note("rank lost: rank 4")
    shown.finished(0, ended(0, 0.5), Proposal(0, {"rate": 0.1}))
    shown.tick()
    shown.close()


def test_search_that_was_refused_before_it_began_shows_nothing(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for display in (PlainProgress, LivePanel):
        stream = io.StringIO()
        shown = display(ProgressCounts(2, maximize=False), stream=stream)
        before = stream.getvalue()
        shown.close()
        assert "0/2" not in stream.getvalue().removeprefix(before)


def test_lines_are_plain_without_a_terminal():
    stream = io.StringIO()
    lines = PlainProgress(ProgressCounts(2, maximize=False), stream=stream)
    lines.ready(0)
    lines.started(0, 0)
    lines.finished(0, ended(0, 0.5), Proposal(0, {"rate": 0.1}))
    lines.started(0, 1)  # before the line is printed
    lines.tick()
    lines.close()
    first, last = stream.getvalue().splitlines()
    assert first.startswith("trial 0 complete: 0.5 in 1 s; 1/2 trials, 1/1 block busy, best 0.5 (trial 0)")
    assert last.startswith("ended: 1/2 trials")
    assert "\033" not in stream.getvalue()


@pytest.mark.parametrize(("is_finished", "word"), [(True, "done"), (False, "ended")])
def test_last_line_says_whether_the_study_is_finished(is_finished, word):
    stream = io.StringIO()
    lines = PlainProgress(ProgressCounts(2, maximize=False), stream=stream)
    lines.ready(0)
    lines.started(0, 0)
    lines.finished(0, ended(0, 0.5), Proposal(0, {}))
    lines.started(0, 1)
    lines.tick()
    assert "1/1 block busy" in stream.getvalue() and "left" in stream.getvalue()
    stream.seek(0)
    stream.truncate()
    lines.counts.is_finished = is_finished
    lines.close()
    assert stream.getvalue().startswith(f"{word}: 1/2 trials, best 0.5")
    assert "busy" not in stream.getvalue() and "left" not in stream.getvalue()


def test_lines_of_a_short_search_are_only_those_of_its_end(monkeypatch, clock):
    monkeypatch.setattr(progress_display, "time", SimpleNamespace(monotonic=clock))
    lines = PlainProgress(ProgressCounts(9, maximize=False), stream=(stream := io.StringIO()), interval_s=30)
    lines.ready(0)
    for number in range(7):
        lines.finished(0, ended(number, 0.5), Proposal(number, {}))
        lines.tick()
        clock.now += 10
    lines.close()
    shown = [line.split(":")[0] for line in stream.getvalue().splitlines()]
    assert shown == ["trial 3 complete", "trial 6 complete", "ended"]


@pytest.mark.parametrize(
    ("notebook", "terminal", "in_python", "kind", "stream"),
    [
        (False, False, False, "PlainProgress", "stdout"),
        (False, False, True, "PlainProgress", "stderr"),
        (False, True, True, "LivePanel", "stdout"),
        (True, False, True, "LivePanel", "stdout"),
        (True, False, False, "PlainProgress", "stdout"),
    ],
)
def test_progress_is_shown_where_the_user_looks(monkeypatch, notebook, terminal, in_python, kind, stream):
    import sys

    monkeypatch.setattr("mpi_opt.views.text.progress_display.is_notebook", lambda: notebook)
    monkeypatch.setattr("mpi_opt.views.text.progress_display.is_watched", lambda: terminal)
    use_ipython(monkeypatch)
    expected = getattr(sys, stream)  # rich replaces it
    shown = make_display(ProgressCounts(2, maximize=False), in_python=in_python)
    assert (type(shown).__name__, shown.stream) == (kind, expected)
    shown.close()


def use_ipython(monkeypatch, kernel: object = None) -> list[str]:
    """Replaces IPython by a small one; returns the pages that it shows, the last of which is visible."""
    import sys

    pages: list[str] = []
    handle = SimpleNamespace(update=pages.append)
    display = SimpleNamespace(HTML=str, display=lambda page, display_id: pages.append(page) or handle)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    shell = SimpleNamespace(kernel=kernel)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=display, get_ipython=lambda: shell))
    return pages


def test_notebook_shows_the_panel_in_place(monkeypatch):
    from mpi_learn.cli.terminal import is_notebook

    assert not is_notebook()
    use_ipython(monkeypatch)
    assert not is_notebook()  # IPython in a terminal
    pages = use_ipython(monkeypatch, kernel=object())
    assert is_notebook()
    shown = make_display(ProgressCounts(2, maximize=False), in_python=True)
    shown.ready(0)
    shown.finished(0, ended(0, 0.25), Proposal(0, {"rate": "<b>"}))
    shown.tick()
    shown.close()
    assert "<pre" in pages[-1] and "0.25" in pages[-1] and "1/2" in pages[-1]
    assert "&lt;b&gt;" in pages[-1] and "<b>" not in pages[-1]


@pytest.mark.parametrize("progress", [None, True, False])
def test_search_in_python_shows_its_progress_unless_told_not_to(capsys, tmp_path, progress):
    store = f"sqlite:///{tmp_path / 'a.db'}"
    options = {} if progress is None else {"progress": progress}
    search(lambda t: t.parameters["x"], space={"x": Real(0, 1)}, trials=3, strategy="random", store=store, **options)
    out, err = capsys.readouterr()
    assert out == ""
    if progress is False:
        assert "trials" not in err
    else:
        assert "done: 3/3 trials" in err and ("trial 0 complete" in err) == (progress is True)
