"""The script of the report in a real browser: pointing, selecting, and what figures without data say."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mpi_opt.core.attempt import Attempt
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Real, Space
from mpi_opt.core.trial import Proposal, TrialRecord
from mpi_opt.store import Store
from mpi_opt.study.study import Study
from mpi_opt.views.page.report import report
from tests.mpi_opt.outcomes import a_fold, an_end, an_outcome, one_figure, several_figures

Shown = Callable[[Study, str], str]


@pytest.fixture
def shown(tmp_path: Path, browser) -> Shown:
    """Shows the report of a study, runs a script in it, and returns the page after that."""

    def show(study: Study, script: str = "") -> str:
        last = "document.documentElement.dataset.drawn"
        (tmp_path / "report.html").write_text(report(study).replace(last, f"{script}\n{last}", 1))
        page = browser(f"file://{tmp_path / 'report.html'}")
        assert "CONSOLE" not in page, page[-2000:]
        return page

    return show


def study_of(path: Path, trials: list[TrialRecord], **options) -> Study:
    """A study with `trials`, which need not be in the store."""
    options = {"strategy": "random", "seed": 1, "configuration": {}} | options
    with Store.open(str(path / "a.db")) as store:
        store.create_study("made up", **options, space=Space({"x": Real(0, 1), "y": Real(0, 1)}))
        study = Study.read(store, "made up")
    return Study(study.record, trials, study.store)


def complete(n_trials: int, figure: Callable[[int], float]) -> list[TrialRecord]:
    return [
        TrialRecord(
            i,
            "complete",
            {"x": i / n_trials, "y": 0.5},
            one_figure(figure(i)),
            finished_at=f"2026-01-01T00:00:{i:02}+00:00",
        )
        for i in range(n_trials)
    ]


LOOK = """
const figure = page.figures[0], mark = figure.marks.find((m) => m.trial === RANKED[0]);
const frame = figure.base.getBoundingClientRect();
const at = { clientX: frame.left + mark.x, clientY: frame.top + mark.y, bubbles: true };
figure.base.dispatchEvent(new PointerEvent("pointermove", at));
document.documentElement.dataset.pointed = element("tip").hidden ? "nothing" : element("tip").textContent;
figure.base.dispatchEvent(new MouseEvent("click", at));
figure.base.dispatchEvent(new PointerEvent("pointerleave", at));
document.documentElement.dataset.selected = String(page.trial);
document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
figure.base.dispatchEvent(new PointerEvent("pointerleave", at));
document.documentElement.dataset.left = String(page.trial);
element("contour-pair").value = "1";
element("contour-pair").dispatchEvent(new Event("change"));
element("history-all").click();
"""


def test_pointing_at_a_trial_shows_its_values(digits: Study, shown: Shown) -> None:
    page = shown(digits, LOOK)
    pointed = re.search(r'data-pointed="([^"]*)"', page)[1]
    assert pointed.startswith(f"Trial {digits.best.number} · complete · rank 1 of {digits.record.counts['complete']}")
    assert "learning_rate" in pointed and digits.best.parameters["activation"] in pointed
    assert f'data-selected="{digits.best.number}"' in page
    assert 'data-left="null"' in page


AXIS = """
const figure = page.figures.find((f) => f.lines), frame = figure.base.getBoundingClientRect();
figure.base.setPointerCapture = () => {}; // refuses pointers that do not exist
const send = (kind, y) => {
  const at = { clientX: frame.left + figure.column(0), clientY: frame.top + y };
  figure.base.dispatchEvent(new PointerEvent(kind, at));
};
const share = (Math.log10(DATA.values[0][RANKED[0]]) + 4) / 3; // the learning rate is from 1e-4 to 1e-1
const height = figure.height - figure.bottom - (figure.height - figure.bottom - figure.top) * share;
const say = (name, value) => (document.documentElement.dataset[name] = value);
const drag = (from, to) => {
  send("pointerdown", from);
  send("pointermove", to);
  send("pointerup", to);
  send("click", to);
};
"""


def test_drag_along_an_axis_filters_trials_and_selects_none(digits: Study, shown: Shown) -> None:
    """The drag ends at the line of the best trial, which a click there would select."""
    page = shown(
        digits, f"{AXIS} drag(height + 30, height);\nsay('lines', figure.lines.length); say('trial', page.selected);"
    )
    assert 'data-trial="null"' in page
    n_lines = int(re.search(r'data-lines="(\d+)"', page)[1])
    assert 0 < n_lines < digits.record.counts["complete"]


def test_click_on_an_axis_ends_the_selection_on_it(digits: Study, shown: Shown) -> None:
    click = """
drag(height + 30, height);
send("pointerdown", height);
send("pointerup", height);
send("click", height);
say("lines", figure.lines.length);
say("trial", page.selected);
say("clear", element("parallel-clear").hidden);
send("pointerdown", height);
send("click", height);
say("then", page.selected);
"""
    page = shown(digits, AXIS + click)
    assert f'data-lines="{digits.record.counts["complete"]}"' in page and 'data-clear="true"' in page
    assert 'data-trial="null"' in page
    assert 'data-then="null"' not in page  # without a selection on the axis, a click selects a trial as elsewhere


def test_figures_of_merit_with_a_large_offset_are_distinguished(tmp_path: Path, shown: Shown) -> None:
    study = study_of(tmp_path, complete(12, lambda i: 123456.9 - 0.15 * i))
    script = """
const places = page.figures[0].marks.map((mark) => Math.round(mark.y));
const texts = page.figures[0].sy.ticks.map((tick) => tick.text);
document.documentElement.dataset.places = new Set(places).size;
document.documentElement.dataset.best = RANKED[0];
document.documentElement.dataset.same = texts.length - new Set(texts).size;
"""
    page = shown(study, script)
    assert 'data-places="12"' in page and 'data-best="11"' in page
    assert 'data-same="0"' in page  # the labels of the axis


def test_figures_of_merit_that_differ_by_a_rounding_error_are_drawn(tmp_path: Path, shown: Shown) -> None:
    """The ticks of an axis must not be closer than neighbouring numbers."""
    assert "data-drawn" in shown(study_of(tmp_path, complete(12, lambda i: 0.3 if i % 2 else 0.1 + 0.2)))


def test_figures_without_data_say_why(tmp_path: Path, shown: Shown) -> None:
    few, equal = complete(3, float), complete(12, lambda _: 0.5)
    pruned = [replace(trial, state="pruned") for trial in few]
    five = {"folds": 5}
    (tmp_path / "pruned").mkdir()
    (tmp_path / "equal").mkdir()
    page = shown(study_of(tmp_path / "pruned", pruned, configuration=five))
    assert "no complete trial yet" in re.search(r'id="folds-plot">(.*?)</div>', page)[1]
    assert "fewer than 10 complete trials" in re.search(r'id="importance-plot">(.*?)</div>', page)[1]
    assert "fewer than 10 complete trials" in re.search(r'id="contour-plot">(.*?)</div>', page)[1]
    without_data = re.search(r'id="without-data">(.*?)</p>', page)[1]
    assert "Two at a time (fewer than 10 complete trials). " in without_data
    page = shown(study_of(tmp_path / "equal", equal, configuration=five))  # as of a workload system, without folds
    assert "no complete trial has results of several folds" in re.search(r'id="folds-plot">(.*?)</div>', page)[1]
    assert "all figures of merit are equal" in re.search(r'id="importance-plot">(.*?)</div>', page)[1]
    assert "all figures of merit are equal" in re.search(r'id="contour-plot">(.*?)</div>', page)[1]


def test_cards_without_content_and_their_links_are_hidden(tmp_path: Path, shown: Shown) -> None:
    script = """
const isVisible = (one) => one.checkVisibility();
const titles = [...document.querySelectorAll("main h2")].filter(isVisible).map((one) => one.textContent);
const links = [...document.querySelectorAll("nav a")].filter(isVisible).map((one) => one.textContent);
document.documentElement.dataset.titles = titles.join(", ");
document.documentElement.dataset.links = links.join(", ");
"""
    page = shown(study_of(tmp_path, complete(12, float)), script)  # no epochs, folds or blocks
    titles, links = (re.search(rf'data-{name}="(.*?)"', page)[1].split(", ") for name in ("titles", "links"))
    assert titles[:2] == ["Optimisation history", "Importance"] and links[:2] == ["History", "What matters"]
    assert not {"Learning curves", "Spread over the folds", "Timeline of the blocks"} & set(titles)
    assert not {"Curves and folds", "Blocks"} & set(links)


def test_axes_of_200_000_trials_are_drawn(tmp_path: Path, shown: Shown) -> None:
    """JavaScript functions take about 100,000 arguments. The page also links to the Pareto front where there is one."""
    figures = FiguresOfMerit(("loss", "seconds"), ("minimize", "maximize"))
    with Store.open(str(tmp_path / "a.db")) as store:
        options = {"strategy": "random", "seed": 1, "configuration": {}, "figures_of_merit": figures}
        study = store.create_study("two", **options, space=Space({"x": Real(0, 1)}))
        for number in range(2):
            store.start(study.id, [Attempt(Proposal(number, {"x": 0.5 * number}), 1, 0, "1", "node1")])
            both = several_figures({"loss": 1.0 + number, "seconds": 2.0 - number})
            outcome = an_outcome(number, "complete", both, None, 1.0, [a_fold(0, both)])
            store.finish(study.id, [an_end(outcome, 1, 0)])
        study = Study.read(store, "two")
    many = """
for (let i = 0; i < 200000; i++) {
  T.figure_of_merit.push(i);
  T.state.push("complete");
  DATA.front.values.push([i, -i]);
  DATA.front.pareto.push(0);
}
document.documentElement.dataset.high = largest(T.figure_of_merit);
front();
document.documentElement.dataset.front = page.figures.at(-1).marks.length;
"""
    page = shown(study, many)
    assert 'data-high="199999"' in page and 'data-front="200002"' in page
    assert re.search(r'<a href="#front" id="front-link">Pareto front</a>', page)


def test_page_of_one_figure_of_merit_has_no_link_to_a_pareto_front(digits: Study, shown: Shown) -> None:
    assert '<a href="#front" id="front-link" hidden="">' in shown(digits)
