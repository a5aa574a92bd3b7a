"""The data of the figures: order, ranges, ticks and outliers, and that page and pictures show the same."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_learn.cli.terminal import sparkline
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.core.trial import Proposal, TrialRecord
from mpi_opt.store import Store
from mpi_opt.store.records import AttemptRecord
from mpi_opt.study.study import Study
from mpi_opt.views.figures.importance import Forest
from mpi_opt.views.figures.timeline import make_timeline
from mpi_opt.views.page.report import report
from mpi_opt.views.series import figures as series
from mpi_opt.views.series.axes import Axis, hyperparameter_axis, nice_ticks, number_text, outside, whole_axis
from tests.mpi_opt.outcomes import a_fold, an_end, an_outcome, one_figure
from tests.optional_packages import needs

SPACE = Space(
    {
        "x": Real(0, 1),
        "layers": Integer(1, 3),
        "units": Integer(16, 256, step=16),
        "kind": Categorical(["a", "b"]),
        "rate": Real(1e-4, 1e-1, prior="log-uniform"),
        "far": Integer(2**40, 2**40 + 3),
    }
)
LARGEST = sys.float_info.max
KINDS = ("history", "parallel", "slice", "contour", "importance", "curves", "timeline")


def study_of(path: Path, figure: Callable[[int, dict], float | None], n: int = 24, **options) -> Study:
    """A study of `n` random trials; a trial without a figure of merit has failed."""
    options = {"strategy": "random", "seed": 1, "configuration": {}} | options
    rng = np.random.default_rng(0)
    with Store.open(str(path / "a.db")) as store:
        study = store.create_study("a", **options, space=SPACE)
        for number in range(n):
            point = {name: dimension.sample(rng) for name, dimension in SPACE.items()}
            value = figure(number, point)
            folds = [] if value is None else [a_fold(0, value, 1.0, {"loss": [value, -value]})]
            state = "failed" if value is None else "complete"
            store.start(study.id, [Attempt(Proposal(number, point), 1, 0, "1", "node1")])
            store.finish(study.id, [an_end(an_outcome(number, state, value, None, 1.0, folds), 1, 0)])
        return Study.read(store, "a")


@pytest.fixture
def with_outliers(tmp_path: Path) -> Study:
    """24 trials: two diverged, and one failed."""
    return study_of(tmp_path, lambda n, p: {5: 6e6, 17: 1.8e7, 9: None}.get(n, 0.1 + p["x"]))


def data_of(study: Study) -> dict:
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', report(study), re.S)[1])


def test_order_of_ending_is_the_recorded_one_whatever_the_clocks_say() -> None:
    """The search was continued on a host whose clock is an hour behind."""
    ended = {0: 1, 1: 0, 2: 3, 3: 2}
    trials = [
        TrialRecord(
            n, "complete", {}, one_figure(1.0), ended=ended[n], finished_at=f"2026-01-01T0{1 - n // 2}:00:00+00:00"
        )
        for n in range(4)
    ]
    assert [t.number for t in series.by_end_time(Study(None, trials, ""))] == [1, 0, 3, 2]


@needs("matplotlib")
def test_history_draws_each_trial_and_says_which_are_outside(with_outliers: Study) -> None:
    from mpi_opt.views.figures import plots

    figure = plots.history(with_outliers)
    axes = figure.axes[0]
    drawn = {round(x): y for points in axes.collections[:-1] for x, y in points.get_offsets()}
    high = axes.get_ylim()[1]
    assert {x for x, y in drawn.items() if y == high} == {5, 17}
    expected = {t.number: t.figure_of_merit for t in with_outliers.trials if t.number not in (5, 9, 17)}
    assert {x: y for x, y in drawn.items() if y < high} == pytest.approx(expected)
    assert figure.get_supxlabel() == f"▲ 2 trials above {high:.4g}, up to 1.8e+07"


@needs("matplotlib")
def test_lines_of_parallel_coordinates_pass_through_their_values(with_outliers: Study) -> None:
    from mpi_opt.views.figures import plots

    figure = plots.parallel(with_outliers)
    axes, names = figure.axes[0], list(SPACE)
    heights = np.array([line[:, 1] for line in axes.collections[0].get_segments()][::-1])
    texts = {(round(t.get_position()[0] - 0.04), t.get_text()): t.get_position()[1] for t in axes.texts}
    trials = series.complete(with_outliers)
    for name in ("layers", "kind", "far"):  # each of their values has a tick
        column = names.index(name)
        found = [texts[column, str(trial.parameters[name])] for trial in trials]
        assert heights[:, column] == pytest.approx(found), name
    assert heights[:, names.index("rate")] == pytest.approx(
        [math.log10(t.parameters["rate"]) / 3 + 4 / 3 for t in trials]
    )
    is_outside = [t.number in (5, 17) for t in trials]
    assert list(heights[:, -1] > 1) == is_outside
    assert (len(names), "2 ▲ above") in texts and "▲ 2 trials above" in figure.get_supxlabel()


@pytest.mark.parametrize(("n", "every"), [(2, 1), (20, 1), (21, 2), (40, 2), (41, 3)])
def test_of_many_categories_every_second_or_third_has_its_name_beside_the_axis(n, every) -> None:
    axis = hyperparameter_axis("kind", Categorical([f"c{i}" for i in range(n)]))
    assert axis.ticks == tuple((i, f"c{i}") for i in range(0, n, every))
    assert (axis.low, axis.high) == (-0.5, n - 0.5)


@needs("matplotlib")
def test_slices_show_numbers_at_their_values_and_categories_apart(with_outliers: Study) -> None:
    from mpi_opt.views.figures import plots

    figure = plots.slices(with_outliers)
    trials = series.complete(with_outliers)
    for axes in figure.axes:
        name = axes.get_xlabel()
        drawn = sorted(x for points in axes.collections for x, _ in points.get_offsets())
        values = [trial.parameters[name] for trial in trials]
        if name == "kind":
            assert sorted(round(x) for x in drawn) == sorted(map(["a", "b"].index, values))
            assert max(abs(x - round(x)) for x in drawn) <= 0.25 and len(set(drawn)) == len(drawn)
        else:
            assert drawn == sorted(values), name
    assert "▲ 2 trials above" in figure.get_supxlabel()


@needs("matplotlib")
def test_page_and_pictures_have_the_same_axes_points_and_notes(with_outliers: Study) -> None:
    from mpi_opt.views.figures import plots

    data, history, slices = data_of(with_outliers), plots.history(with_outliers), plots.slices(with_outliers)
    pairs = [(history.axes[0].yaxis, data["history"]["y"]), (history.axes[0].xaxis, data["history"]["x"])]
    pairs += [(axes.xaxis, data["space"][list(SPACE).index(axes.get_xlabel())]["axis"]) for axes in slices.axes]
    for drawn, axis in pairs:
        places = [place for place, _ in axis["ticks"]]
        assert set(drawn.get_ticklocs()) <= set(places)
        assert drawn.get_label_text() == axis["title"]
        low, high = drawn.get_view_interval()
        assert low <= axis["low"] < axis["high"] <= high
    assert history.axes[0].get_ylim() == (data["y"]["low"], data["y"]["high"])
    assert data["history"]["note"] == data["note"] == history.get_supxlabel() == slices.get_supxlabel()
    for axes in slices.axes:
        drawn = np.sort([x for points in axes.collections for x, _ in points.get_offsets()])
        values = data["values"][list(SPACE).index(axes.get_xlabel())]
        of_complete = sorted(v for v, state in zip(values, data["trials"]["state"], strict=True) if state == "complete")
        np.testing.assert_allclose(drawn, of_complete, rtol=0, atol=1e-9 * max(map(abs, of_complete)))
    far = [trial.parameters["far"] for trial in with_outliers.trials]
    assert data["values"][list(SPACE).index("far")] == far


def extreme(number: int, point: dict) -> float:
    return {0: 1.7e308, 1: -1.7e308, 2: LARGEST, 3: -LARGEST}.get(number % 6, point["x"])


@needs("matplotlib")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("figure", "direction"),
    [
        (extreme, "minimize"),
        (extreme, "maximize"),
        (lambda n, p: LARGEST if n < 2 else p["x"], "minimize"),
        (lambda n, p: LARGEST if n % 2 else -LARGEST, "minimize"),
        (lambda n, p: 1e200 if n < 5 else p["x"], "minimize"),
        (lambda n, p: 5e-324 * (n + 1), "minimize"),
        (lambda n, p: 1e-300 * (1 + p["x"]), "maximize"),
        (lambda n, p: LARGEST, "minimize"),
    ],
)
def test_no_finite_figure_of_merit_overflows_in_a_figure(tmp_path: Path, figure, direction: str) -> None:
    from mpi_opt.core.figures_of_merit import FiguresOfMerit
    from mpi_opt.errors import ConfigurationError
    from mpi_opt.views.figures import plots

    study = study_of(tmp_path, figure, figures_of_merit=FiguresOfMerit(directions=(direction,)))
    forest = Forest.of(study)
    if forest is not None:
        assert all(0 <= share <= 1.01 for share in forest.shares.values()) and max(forest.shares.values()) > 0
    for kind in KINDS:
        try:
            plots.KINDS[kind](study).draw_without_rendering()
        except ConfigurationError:
            assert forest is None and kind in ("contour", "importance")
    axis = data_of(study)["y"]
    assert -LARGEST / 10 < axis["low"] < axis["high"] < LARGEST / 10


@given(st.floats(-1e307, 1e307), st.floats(-1e307, 1e307), st.booleans())
def test_ticks_are_on_the_axis_in_order_and_differ(one: float, other: float, whole: bool) -> None:
    low, high = min(one, other), max(one, other)
    ticks = nice_ticks(low, high, whole=whole)
    places, texts = [place for place, _ in ticks], [text for _, text in ticks]
    margin = 1e-8 * (high - low) + 1e-10 * max(abs(low), abs(high)) + 1e-8 * whole + 1e-300
    assert all(low - margin <= place <= high + margin for place in places)
    assert places == sorted(places) and len(set(texts)) == len(texts) <= 16
    for place, text in ticks:
        assert float(text) == pytest.approx(place, rel=1e-9, abs=margin)
    if whole:
        assert all(place.is_integer() for place in places)


@pytest.mark.parametrize(
    ("dimension", "limits", "texts"),
    [
        (Integer(1, 3), (0.5, 3.5), ["1", "2", "3"]),
        (Integer(1, 9, step=4), (-1, 11), ["1", "5", "9"]),
        (Integer(0, 100), (0, 100), ["0", "20", "40", "60", "80", "100"]),
        (Real(0, 0.99), (0, 0.99), ["0", "0.2", "0.4", "0.6", "0.8"]),
        (Real(1e-4, 1e-1, prior="log-uniform"), (1e-4, 1e-1), ["1e-4", "1e-3", "0.01", "0.1"]),
        (Real(1e-12, 1e3, prior="log-uniform"), (1e-12, 1e3), ["1e-12", "1e-9", "1e-6", "1e-3", "1", "1000"]),
        (Real(3e-4, 0.02, prior="log-uniform"), (3e-4, 0.02), ["5e-4", "1e-3", "2e-3", "5e-3", "0.01", "0.02"]),
        (Real(1e-8, 1, prior="log-uniform"), (1e-8, 1), ["1e-8", "1e-6", "1e-4", "0.01", "1"]),
        (Integer(16, 512, prior="log-uniform"), (16, 512), ["20", "50", "100", "200", "500"]),
        (Real(0.01, 0.015, prior="log-uniform"), (0.01, 0.015), [f"0.01{i}".rstrip("0") for i in range(6)]),
        (Real(2, 5, prior="log-uniform"), (2, 5), ["2", "2.5", "3", "3.5", "4", "4.5", "5"]),
        (Categorical(["a", True, None]), (-0.5, 2.5), ["a", "True", "None"]),
    ],
    ids=str,
)
def test_axis_of_a_hyperparameter(dimension, limits: tuple[float, float], texts: list[str]) -> None:
    axis = hyperparameter_axis("h", dimension)
    assert (axis.low, axis.high) == limits
    assert [text for _, text in axis.ticks] == texts


def test_numbers_on_axes() -> None:
    texts = {0.0: "0", 1.5: "1.5", 123456.0: "1.235e5", 2e6: "2e6", 1e-4: "1e-4", -0.25: "-0.25", 1e5: "100000"}
    assert {value: number_text(value) for value in texts} == texts | {123456.0: "123500"}
    assert number_text(123456.9, 8) == "123456.9"


def test_points_outside_of_an_axis_are_counted_on_both_sides() -> None:
    axis = Axis("y", 0.0, 1.0)
    assert outside(axis, [0.0, 0.5, 1.0, math.nan]) == ""
    assert outside(axis, [-2.0, 1.5, 7.0]) == "▲ 2 trials above 1, up to 7; ▼ 1 trial below 0, up to -2"
    assert outside(whole_axis("y", [-2.0, 1.5, 7.0]), [-2.0, 1.5, 7.0]) == ""


def test_sparkline_of_values_whose_difference_overflows() -> None:
    assert sparkline([-1.7e308, 0.0, 1.7e308]) == "▁▅█"


def test_mean_of_folds_whose_sum_overflows() -> None:
    from mpi_opt.store.records import CurveRecord

    curves = [CurveRecord(0, fold, "loss", [1.6e308]) for fold in range(2)]
    assert series.mean_curves(curves)["loss"][0] == pytest.approx({0: 1.6e308})


@needs("matplotlib")
def test_short_attempts_are_visible_in_a_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from mpi_opt.views.figures import plots

    def attempt(number: int, begin: str, end: str) -> AttemptRecord:
        times = [f"2026-01-01T00:{time}+00:00" for time in (begin, end)]
        return AttemptRecord(number, 1, 0, "1", "node1", *times, "complete", None)

    attempts = [attempt(0, "00:00.000000", "50:00.000000"), attempt(1, "55:00.000000", "55:00.000100")]
    monkeypatch.setattr(Study, "attempts", lambda study: attempts)
    monkeypatch.setattr(Study, "events", lambda study: [])
    axes = plots.timeline(Study(SimpleNamespace(name="s"), [], "")).axes[0]
    low, high = axes.get_xlim()
    widths = [path.get_extents().width for bars in axes.collections for path in bars.get_paths()]
    assert len(widths) == 2 and min(widths) >= (high - low) / 1000 * 0.999
    assert make_timeline(attempts).bars[1].end_s == pytest.approx(3300.0001)
