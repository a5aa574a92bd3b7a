"""The content of the figures: importance, running best, timeline; and that every figure is drawn."""

from __future__ import annotations

import math
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mpi_opt.core.attempt import Attempt
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Categorical, Real, Space
from mpi_opt.core.trial import Proposal, TrialRecord
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.store.records import AttemptRecord, CurveRecord, EventRecord, time_of
from mpi_opt.study.study import Study
from mpi_opt.views.figures.importance import Forest, _without_outliers
from mpi_opt.views.figures.timeline import make_timeline
from mpi_opt.views.series import figures
from mpi_opt.views.series import figures as series
from mpi_opt.views.series.axes import curve_range, hyperparameter_axis, sensible_range
from tests.mpi_opt.outcomes import a_fold, an_end, an_outcome, one_figure
from tests.mpi_opt.store.made_up import finish, make_study, start
from tests.optional_packages import needs


def at(seconds: float) -> str:
    return time_of(datetime(2026, 1, 1, tzinfo=UTC).timestamp() + seconds)


def attempt(block: int, begin: int, end: int | None, outcome: str = "complete", ranks: str = "") -> AttemptRecord:
    ranks = ranks or ",".join(str(3 * block + rank) for rank in (1, 2, 3))
    times = [None if s is None else at(s) for s in (begin, end)]
    return AttemptRecord(begin, 1, block, ranks, "node1", times[0], times[1], outcome if end else None, None)


def test_importance_is_the_share_of_variance_of_an_additive_function() -> None:
    """For f = 3a + 2b + 0c on the unit cube the shares are 9/13, 4/13 and 0."""
    units = np.random.default_rng(1).random((1500, 3))
    shares = Forest(["a", "b", "c"], units, 3 * units[:, 0] + 2 * units[:, 1]).shares
    assert shares == pytest.approx({"a": 9 / 13, "b": 4 / 13, "c": 0.0}, abs=0.06)


def test_interactions_belong_to_no_single_hyperparameter() -> None:
    """f = (a - ½)(b - ½) has no first-order terms at all."""
    units = np.random.default_rng(1).random((1500, 2))
    shares = Forest(["a", "b"], units, (units[:, 0] - 0.5) * (units[:, 1] - 0.5)).shares
    assert max(shares.values()) < 0.06


@needs("optuna")
def test_importance_agrees_with_optuna_fanova() -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rng = np.random.default_rng(2)
    units = rng.random((300, 3))
    values = np.sin(5 * units[:, 0]) + units[:, 1] ** 2 + 0.3 * units[:, 0] * units[:, 2]
    distributions = {name: optuna.distributions.FloatDistribution(0, 1) for name in "abc"}
    study = optuna.create_study()
    for row, value in zip(units, values, strict=True):
        params = {name: float(value) for name, value in zip("abc", row, strict=True)}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=float(value)))
    evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=16, seed=0)
    theirs = optuna.importance.get_param_importances(study, evaluator=evaluator)
    ours = Forest(["a", "b", "c"], units, values).shares
    total = sum(ours.values())
    assert {name: share / total for name, share in ours.items()} == pytest.approx(theirs, abs=0.08)


def test_surface_finds_the_valley() -> None:
    units = np.random.default_rng(1).random((1000, 3))
    values = (units[:, 0] - 0.25) ** 2 + (units[:, 1] - 0.75) ** 2
    grid = (np.arange(20) + 0.5) / 20
    surface = Forest(["a", "b", "c"], units, values).surface("a", "b", grid, grid[:10])
    assert surface.shape == (10, 20)
    surface = Forest(["a", "b", "c"], units, values).surface("a", "b", grid, grid)
    row, column = np.unravel_index(surface.argmin(), surface.shape)
    assert grid[column] == pytest.approx(0.25, abs=0.13) and grid[row] == pytest.approx(0.75, abs=0.13)


def test_one_diverged_trial_does_not_explain_everything(digits: Study) -> None:
    from dataclasses import replace

    bad = replace(digits.trials[0], state="complete", figures_of_merit=one_figure(1e12))
    before, after = Forest.of(digits), Forest.of(Study(digits.record, [bad, *digits.trials[1:]], ""))
    assert before.ranked()[0] == after.ranked()[0]


@pytest.mark.parametrize(("sign", "direction"), [(1, "minimize"), (-1, "maximize")])
def test_importance_is_that_of_complete_trials_without_diverged_ones(tmp_path, sign: int, direction: str) -> None:
    """The first trial diverged; of the others, every third one is complete and depends on a and b alike."""
    space, values = Space({"a": Real(0, 1), "b": Real(0, 1)}), FiguresOfMerit(directions=(direction,))
    with Store.open(str(tmp_path / "a.db")) as store:
        options = {"strategy": "random", "seed": 1, "configuration": {}}
        study = store.create_study("a", **options, space=space, figures_of_merit=values)
        points = np.random.default_rng(1).random((120, 2)).tolist()
        values = [1e6, *(2 * b if number % 3 else a + b for number, (a, b) in enumerate(points[1:], 1))]
        states = ["pruned" if number % 3 else "complete" for number in range(120)]
        store.start(study.id, [start(number, {"a": a, "b": b}) for number, (a, b) in enumerate(points)])
        store.finish(study.id, [finish(n, sign * value, state=states[n]) for n, value in enumerate(values)])
        forest = Forest.of(Study.read(store, "a"))
    assert forest.shares["a"] > 0.25
    assert np.abs(forest.curve("a", np.linspace(0, 1, 9))).max() < 10


def test_improvements_are_complete_trials_only_and_follow_the_direction() -> None:
    values = [("complete", 0.5), ("pruned", 0.1), ("complete", 0.7), ("failed", None), ("complete", 0.3)]
    trials = [TrialRecord(i, state, {}, one_figure(value)) for i, (state, value) in enumerate(values)]
    assert [index for index, _ in series.improvements(trials, maximize=False)] == [0, 4]
    assert [index for index, _ in series.improvements(trials, maximize=True)] == [0, 2]


def test_mean_curve_passes_over_missing_values() -> None:
    curves = [CurveRecord(0, 0, "loss", [1.0, math.nan, 0.5]), CurveRecord(0, 1, "loss", [3.0, 2.0])]
    assert series.mean_curves(curves) == {"loss": {0: {0: 2.0, 1: 2.0, 2: 0.5}}}


def test_outliers_do_not_squeeze_an_axis() -> None:
    values = [0.1, 0.12, 0.11, 0.13, 0.14, 1e9]
    low, high = sensible_range(values, maximize=False)
    assert low < 0.1 and 0.14 < high < 1
    low, high = sensible_range([-value for value in values], maximize=True)
    assert high > -0.1 and -1 < low < -0.14
    assert sensible_range([math.nan], maximize=False) is None


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("values", [[0.5, 0.6, sys.float_info.max, sys.float_info.max], [-1.7e308, 1.7e308], [1e-300]])
def test_limits_of_an_axis_are_finite_and_differ(values: list[float], maximize: bool) -> None:
    limits = (*sensible_range(values, maximize), *curve_range(values))
    assert all(map(math.isfinite, limits))
    assert limits[0] < limits[1] and limits[2] < limits[3]


@needs("matplotlib")
def test_figure_with_a_panel_per_hyperparameter_shows_the_most_important_ones(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        space = Space({f"x{i}": Real(0, 1) for i in range(70)})
        study = store.create_study("a", strategy="random", seed=1, configuration={}, space=space)
        rng = np.random.default_rng(0)
        for number in range(40):
            values = dict(zip(space, rng.random(70).tolist(), strict=True))
            store.start(study.id, [Attempt(Proposal(number, values), 1, 0, "0", "")])
            store.finish(study.id, [an_end(an_outcome(number, "complete", values["x7"]), 1, 0)])
        wide = Study.read(store, "a")
    from mpi_opt.views.figures import plots

    assert len(plots.KINDS["slice"](wide).axes) == 60
    labels = [tick.get_text() for tick in plots.KINDS["importance"](wide).axes[0].get_yticklabels()]
    assert (len(labels), labels[-1]) == (60, "x7")


def test_utilisation_is_the_busy_part_of_all_blocks() -> None:
    """Block 0 is busy for 8 of 10 seconds and block 1 for 5, together 13 of 20."""
    attempts = [attempt(0, 0, 4), attempt(0, 6, 10), attempt(1, 1, 6, "lost"), attempt(1, 2, 6)]
    spans = make_timeline(attempts)
    assert spans.span_s == 10
    assert spans.utilisation == pytest.approx(13 / 20)
    assert [bar.outcome for bar in spans.bars] == ["complete", "lost", "complete", "complete"]


def test_ranks_that_change_their_block_are_as_busy_as_before() -> None:
    """Two trials on one rank each for 4 s; then one of them on both ranks for 6 s. All 20 rank seconds are busy."""
    moved = [attempt(0, 0, 4, ranks="1"), attempt(1, 0, 4, "moved", ranks="2"), attempt(2, 4, 10, ranks="1,2")]
    spans = make_timeline(moved)
    assert (spans.utilisation, spans.n_blocks, spans.rows) == (pytest.approx(1.0), 2, [0, 1, 2])
    again = make_timeline([*moved, attempt(3, 12, 20, ranks="1")])  # rank 1 for 18 of 20 s, rank 2 for 10
    assert (again.utilisation, again.n_blocks) == (pytest.approx((18 + 10) / 40), 2)


def test_the_time_of_a_timeline_grows_with_the_attempts_and_not_with_the_blocks() -> None:
    def cpu_s(n_blocks: int) -> float:
        attempts, seconds = [attempt(block, block, block + 9 * n_blocks) for block in range(n_blocks)], []
        for _ in range(5):
            begin_s = time.process_time()
            assert make_timeline(attempts).n_blocks == n_blocks
            seconds.append(time.process_time() - begin_s)
        return min(seconds)

    assert cpu_s(2000) < 25 * cpu_s(200)  # a hundred times as long if each attempt visited every block


@needs("matplotlib")
def test_a_trial_that_continues_on_fewer_ranks_has_a_lower_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_opt.views.figures import plots

    attempts = [attempt(0, 0, 4, "lost", ranks="1,2,3"), attempt(2, 5, 9, ranks="1,3"), attempt(-1, 0, 9)]
    assert [bar.width for bar in make_timeline(attempts).bars] == pytest.approx([1, 1, 2 / 3])  # by their start
    monkeypatch.setattr(Study, "attempts", lambda study: attempts[:2])
    monkeypatch.setattr(Study, "events", lambda study: [])
    axes = plots.timeline(Study(SimpleNamespace(name="s"), [], "")).axes[0]
    boxes = [path.get_extents() for bars in axes.collections for path in bars.get_paths()]
    heights = {round(box.x0): box.height for box in boxes}
    assert heights[5] == pytest.approx(heights[0] * 2 / 3)
    assert axes.get_ylabel() == "block (height: ranks)"


def test_running_attempt_is_drawn_until_the_last_recorded_time() -> None:
    spans = make_timeline([attempt(0, 0, 8), attempt(1, 2, None)])
    assert (spans.bars[1].end_s, spans.bars[1].outcome) == (8, "running")
    assert make_timeline([]) is None


def test_trials_of_a_workload_system_are_on_no_block() -> None:
    """The search runs from 10 s to 18 s, and its block is busy for 4 s. External trials overlap."""
    external = [attempt(-1, 0, 30), attempt(-1, 1, 40)]
    spans = make_timeline([*external, attempt(0, 10, 12), attempt(0, 16, 18)])
    assert (spans.rows, spans.n_blocks) == ([-1, 0], 1)
    assert (spans.span_s, spans.utilisation) == (40, pytest.approx(4 / 8))
    assert make_timeline(external).utilisation is None


def test_pauses_between_the_searches_of_a_study_are_no_idle_time() -> None:
    """Two blocks for 10 s, of which 15 are busy; a day later one block for 10 s, of which 9 are busy."""
    first = [attempt(0, 0, 10), attempt(1, 2, 7)]
    second = [attempt(0, 90_000, 90_004), attempt(0, 90_005, 90_010)]
    resumed = [EventRecord(at(89_990), "study_resumed", "2 finished"), EventRecord(at(90_010), "study_finished", "")]
    spans = make_timeline(first + second, resumed)
    assert spans.utilisation == pytest.approx((10 + 5 + 4 + 5) / (2 * 10 + 10))
    assert (spans.span_s, spans.pause_s) == (90_010, pytest.approx(90_010 - 20))
    alone = make_timeline(first + second, [EventRecord(at(0), "code_changed", "")])
    assert alone.pause_s == 0 and alone.utilisation == pytest.approx(24 / (2 * 90_010))


def test_attempt_of_a_killed_search_does_not_fill_the_pause_after_it() -> None:
    """The next search finds attempt 1 and ends it: its block is busy as long as the search is known to have run."""
    attempts = [attempt(0, 0, 8), attempt(1, 2, 90_000, "killed"), attempt(0, 90_001, 90_011)]
    spans = make_timeline(attempts, [EventRecord(at(90_000.5), "study_resumed", "")])
    assert spans.utilisation == pytest.approx((8 + 6 + 10) / (2 * 8 + 10))
    assert spans.pause_s == pytest.approx(90_011 - 8 - 10)


@needs("matplotlib")
def test_external_trials_that_overlap_are_drawn_below_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_opt.views.figures import plots

    attempts = [attempt(-1, 0, 30), attempt(-1, 1, 40), attempt(-1, 30, 35)]
    monkeypatch.setattr(Study, "attempts", lambda study: attempts)
    monkeypatch.setattr(Study, "events", lambda study: [])
    study = Study(SimpleNamespace(name="s"), [], "")
    assert plots.timeline(study).axes[0].get_title() == "s"
    attempts.append(attempt(0, 10, 12))
    axes = plots.timeline(study).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["external", "0"]
    corners = [path.get_extents().extents for bars in axes.collections for path in bars.get_paths()]
    expected = [(0, -0.36, 30, 0), (30, -0.36, 35, 0), (1, 0, 40, 0.36), (10, 0.64, 12, 1.36)]
    np.testing.assert_allclose(corners, expected, atol=1e-12)


@needs("matplotlib")
def test_attempts_have_the_colours_of_their_outcomes_in_the_legend(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.colors import to_hex

    from mpi_opt.views.figures import plots

    attempts = [attempt(0, 0, 9), attempt(0, 10, 19, "failed"), attempt(1, 0, 29, "lost"), attempt(1, 30, None)]
    monkeypatch.setattr(Study, "attempts", lambda study: attempts)
    monkeypatch.setattr(Study, "events", lambda study: [])
    figure = plots.timeline(Study(SimpleNamespace(name="s"), [], ""))
    (legend,), bars = figure.legends, figure.axes[0].collections
    entries = zip(legend.get_texts(), legend.get_patches(), strict=True)
    colours = {text.get_text(): to_hex(patch.get_facecolor()) for text, patch in entries}
    corners = [(to_hex(bar.get_facecolor()[0]), path.get_extents()) for bar in bars for path in bar.get_paths()]
    places = {"complete": (0, 0), "failed": (10, 0), "lost": (0, 1)}  # the running one is longer than the axis
    drawn = {(round(place.x0), round(place.y0 + 0.36)): colour for colour, place in corners}
    assert {place: drawn[place] for place in places.values()} == {places[name]: colours[name] for name in places}
    assert len(set(colours.values())) == 4


@needs("matplotlib")
def test_each_hyperparameter_has_its_own_bar_with_its_share(digits: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_opt.views.figures import plots

    shares = {"rate": 0.5, "layers": 0.25, "width": 0.125}
    forest = SimpleNamespace(ranked=lambda: list(shares), shares=shares, names=list(shares))
    monkeypatch.setattr(plots, "_forest_of", lambda study: forest)
    axes = plots.KINDS["importance"](digits).axes[0]
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert names == ["width", "layers", "rate"]  # from below
    assert [bar.get_width() for bar in axes.patches] == [0.125, 0.25, 0.5]
    assert [(text.get_position()[1], text.get_text().strip()) for text in axes.texts] == [
        (position, f"{shares[name]:.0%}") for position, name in enumerate(names)
    ]
    ends = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in axes.patches]
    assert all(low < position < high for position, (low, high) in enumerate(ends))
    assert all(below < above for (_, below), (above, _) in pairwise(ends))


@needs("matplotlib")
@pytest.mark.parametrize("kind", ["history", "parallel", "slice", "contour", "importance", "timeline", "curves"])
def test_every_figure_is_drawn(digits: Study, kind: str) -> None:
    from mpi_opt.views.figures import plots

    figure = plots.KINDS[kind](digits)
    assert figure.axes
    figure.draw_without_rendering()


@needs("matplotlib")
@pytest.mark.parametrize("kind", ["history", "parallel", "slice", "contour", "importance", "timeline", "curves"])
def test_figure_of_a_new_study_is_drawn_or_names_the_missing_trials(tmp_path, kind: str) -> None:
    from mpi_opt.views.figures import plots

    with Store.open(str(tmp_path / "a.db")) as store:
        options = {"strategy": "random", "seed": 1, "configuration": {}}
        study = store.create_study("young", **options, space=Space({"x": Real(0, 1)}))
        for n_trials in range(3):
            try:
                plots.KINDS[kind](Study.read(store, "young")).draw_without_rendering()
            except ConfigurationError as error:
                assert error.cure
            store.start(study.id, [start(n_trials)])
            if n_trials == 1:
                store.finish(study.id, [finish(0), finish(1, None, state="failed")])


STRANGE = "cost $x_{$ " + "of a very long name " * 10
"""A name that would be an invalid formula of matplotlib, and that is too long for a label."""


@needs("matplotlib")
@pytest.mark.filterwarnings("error::UserWarning")  # matplotlib warns if the labels leave no space for the axes
@pytest.mark.parametrize("kind", ["history", "parallel", "slice", "contour", "importance", "timeline", "curves"])
def test_long_names_and_names_with_dollars_are_drawn_as_texts(tmp_path, kind: str) -> None:
    from mpi_opt.views.figures import plots

    space = Space({STRANGE: Real(0, 1), f"{STRANGE}2": Categorical([STRANGE, f"{STRANGE}2"])})
    with Store.open(str(tmp_path / "a.db")) as store:
        configuration = {"figure_of_merit": STRANGE}
        study = store.create_study(STRANGE, strategy="random", seed=1, configuration=configuration, space=space)
        for number in range(12):
            store.start(study.id, [start(number, {STRANGE: number / 12, f"{STRANGE}2": STRANGE})])
            folds = [a_fold(0, float(number), 1.0, {STRANGE: [0.5, float(number)]})]
            store.finish(study.id, [an_end(an_outcome(number, "complete", float(number), None, 1.0, folds), 1, 0)])
        figure = plots.KINDS[kind](Study.read(store, STRANGE))
    figure.draw_without_rendering()


@needs("matplotlib")
def test_two_axes_show_different_hyperparameters(digits: Study) -> None:
    from mpi_opt.views.figures import plots

    with pytest.raises(ConfigurationError, match="units is on both axes"):
        plots.contour(digits, "units", "units")


@needs("matplotlib")
def test_history_shows_the_best_so_far(digits: Study) -> None:
    from mpi_opt.views.figures import plots

    line = next(line for line in plots.history(digits).axes[0].lines if line.get_label() == "best so far")
    assert line.get_ydata()[-1] == digits.best.figure_of_merit
    assert all(np.diff(line.get_ydata()) <= 0)


@needs("matplotlib")
def test_inactive_hyperparameters_are_below_the_axes_of_parallel_coordinates(digits: Study) -> None:
    """Adam has no momentum: its lines must not pass through the middle of that axis."""
    from mpi_opt.views.figures import plots

    axes = plots.parallel(digits).axes[0]
    column, bottom = list(digits.space).index("momentum"), axes.get_ylim()[0]
    heights = [line[column, 1] for line in axes.collections[0].get_segments()][::-1]
    for trial, height in zip(series.complete(digits), heights, strict=True):
        momentum = trial.parameters.get("momentum")
        assert bottom < height < -0.05 if momentum is None else height == pytest.approx(momentum / 0.99)
    (x,) = (text.get_position()[0] for text in axes.texts if text.get_text() == "inactive")
    assert x == pytest.approx(column, abs=0.1)


@needs("matplotlib")
def test_figures_leave_the_users_style_alone(digits: Study) -> None:
    import matplotlib

    from mpi_opt.views.figures import plots

    before = dict(matplotlib.rcParams)
    plots.history(digits)
    assert dict(matplotlib.rcParams) == before


@needs("matplotlib")
def test_many_trials_are_plotted_quickly(tmp_path) -> None:
    import time

    from mpi_opt.views.figures import plots

    with Store.open(str(tmp_path / "a.db")) as store:
        make_study(store, n_trials=3000, n_blocks=100, n_epochs=2, n_folds=1)
        study = Study.read(store, "digits")
    for kind, draw in plots.KINDS.items():
        if kind == "pareto":
            continue  # of several figures of merit only
        began = time.perf_counter()
        draw(study).draw_without_rendering()
        assert time.perf_counter() - began < 10, kind


def test_importance_survives_a_search_that_has_converged() -> None:
    """Most trials are at the optimum of a². The others still show that a matters and b does not."""
    rng = np.random.default_rng(3)
    units = rng.random((60, 2))
    units[20:, 0] = 0.5
    shares = Forest(["a", "b"], units, _without_outliers((units[:, 0] - 0.5) ** 2, maximize=False)).shares
    assert shares["a"] > 0.8 and shares["b"] < 0.1


def test_outliers_are_those_on_the_bad_side_of_either_direction() -> None:
    """One diverged training, and one trial that is far better than all others and must stay visible."""
    costs = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 1e9, 1e9])
    limited = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 19.0, 19.0])
    np.testing.assert_allclose(_without_outliers(costs, maximize=False), limited)
    np.testing.assert_allclose(_without_outliers(-costs, maximize=True), -limited)
    best = np.array([-1e9, 2.0, 3.0, 4.0, 5.0])
    np.testing.assert_allclose(_without_outliers(best, maximize=False), best)
    np.testing.assert_allclose(_without_outliers(-best, maximize=True), -best)


def test_only_the_best_of_too_many_curves_are_drawn(digits: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MIN_TRIALS", 10)
    monkeypatch.setattr(figures, "MAX_VALUES", 1)
    drawn = {curve.number for curve in series.curves_to_draw(digits)}
    assert {trial.number for trial in digits.ranked()[:5]} <= drawn
    assert 5 < len(drawn) <= 10


def test_external_trials_are_in_as_few_strips_as_run_at_once() -> None:
    """A trial begins in the first strip that is free, also in the moment in which another one ends."""
    spans = [(0, 30), (1, 4), (2, 9), (4, 6), (6, 20), (9, 12), (31, 40)]
    bars = make_timeline([attempt(-1, *span) for span in spans], []).bars
    assert [bar.strip for bar in bars] == [0, 1, 2, 1, 1, 2, 0]
    assert {bar.strips for bar in bars} == {3}


@needs("matplotlib")
def test_better_curves_are_drawn_later_and_wider_and_named_from_the_best(digits: Study) -> None:
    from matplotlib.colors import to_hex

    from mpi_opt.views.figures import plots
    from mpi_opt.views.figures.drawing import COLOURS

    axes = plots.curves(digits).axes[0]
    best = [f"trial {trial.number}" for trial in digits.ranked(("complete",))[: len(axes.lines)]]
    assert len(best) > 2
    assert [line.get_label() for line in axes.lines] == best[::-1]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == best
    (background,) = axes.collections
    assert len(background.get_paths()) == sum(bool(trial.state != "failed") for trial in digits.trials) - len(best)
    assert to_hex(background.get_colors()[0]) == COLOURS["faint"]
    assert background.get_zorder() <= axes.lines[0].get_zorder()
    widths = [line.get_linewidth() for line in axes.lines]
    assert widths == [widths[0]] * (len(best) - 1) + [widths[-1]] and widths[-1] > widths[0]


@needs("matplotlib")
@pytest.mark.parametrize(("low", "high"), [(1e-300, 1e300), (1e-3, 1e308), (1e-4, 1e-1)])
def test_a_logarithmic_axis_has_finite_limits_that_contain_its_range(low: float, high: float) -> None:
    from matplotlib.figure import Figure

    from mpi_opt.views.figures.drawing import set_axis

    figure = Figure()
    axes = figure.subplots()
    set_axis(axes, "x", hyperparameter_axis("x", Real(low, high, "log-uniform")), pad=0.05)
    left, right = axes.get_xlim()
    assert 0 < left <= low and high <= right < math.inf
    figure.canvas.draw()


@needs("matplotlib")
def test_names_of_many_categories_do_not_overlap(tmp_path: Path) -> None:
    from mpi_opt.views.figures import plots

    kinds = [f"category_{i:02}" for i in range(40)]
    with Store.open(str(tmp_path / "a.db")) as store:
        space = Space({"kind": Categorical(kinds), "x": Real(0, 1)})
        record = store.create_study("a", strategy="random", seed=1, configuration={}, space=space)
        points = [{"kind": kind, "x": 0.5} for kind in kinds]
        trials = [TrialRecord(i, "complete", point, one_figure(i)) for i, point in enumerate(points)]
        study = Study(record, trials, store)
    figure = plots.parallel(study)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text().startswith("category")]
    assert len(boxes) > 10
    assert all(below.y1 <= above.y0 for below, above in pairwise(sorted(boxes, key=lambda box: box.y0)))
    figure = plots.slices(study)
    figure.draw_without_rendering()
    labels = figure.axes[0].get_xticklabels()
    positions = [text.get_window_extent().x1 for text in labels]
    slant = math.sin(math.radians(labels[0].get_rotation()))
    height = labels[0].get_fontsize() * figure.dpi / 72
    assert all((right - left) * slant > 0.9 * height for left, right in pairwise(positions))
