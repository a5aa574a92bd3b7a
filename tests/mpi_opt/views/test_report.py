"""The report, tested as text and in a real browser."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from mpi_opt.core.space import Categorical, Real, Space
from mpi_opt.core.trial import FoldOutcome, Outcome, Proposal
from mpi_opt.store import Store
from mpi_opt.store.records import Finish, Start
from mpi_opt.study.study import Study
from mpi_opt.views.page.report import report, save_report
from mpi_opt.views.page.report_data import as_script, short
from tests.mpi_opt.store.made_up import make_study
from tests.timing import reference_s_of

EVIL = "</script><script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">{{data}}"
N_PICTURES = 11  # history, contour, parallel, five slices, curves, folds, blocks


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)[1])


@pytest.fixture(scope="session")
def page(digits: Study) -> str:
    return report(digits)


def test_report_contains_all_data_that_it_draws(page: str, digits: Study) -> None:
    data = data_of(page)
    assert data["trials"]["number"] == list(range(60))
    assert data["trials"]["figure_of_merit"][digits.best.number] == pytest.approx(digits.best.figure_of_merit, rel=1e-4)
    assert [dimension["name"] for dimension in data["space"]] == list(digits.space)
    assert set(data["curves"]) == {"loss", "val_loss"}
    assert len(data["blocks"]["bars"]) == 61
    assert sum(share["share"] for share in data["forest"]["shares"]) == pytest.approx(1, abs=0.35)
    assert page.count("<tr data-trial=") == 20
    assert page.count(f'<tr data-trial="{digits.best.number}" class=is-best>') == 1


def test_report_leaves_out_trials_that_began_after_the_study_was_read(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "results.db")) as store:
        make_study(store, n_trials=20)
        study = Study.read(store, "digits")
        number = study.record.n_trials
        parameters, folds = study.trials[0].parameters, [FoldOutcome(0, 0.1, 1.0, {"val_loss": [0.3, 0.1]})]
        store.start(study.record.id, [Start(Proposal(number, parameters), 1, 9, "1-3", "node1")])
        store.finish(study.record.id, [Finish(Outcome(number, "complete", 0.1, None, 1.0, folds), 1, 9)])
    data = data_of(report(study))
    assert data["trials"]["number"] == list(range(20))
    assert len(data["folds"]) == 20
    assert data["blocks"]["names"] == [0, 1, 2, 3]


def test_report_needs_nothing_from_elsewhere(page: str) -> None:
    assert not re.findall(r'(?:src|href)\s*=\s*["\']?(?!#)[^"\'> ]+', page.split("<script", 1)[0])
    assert "http://" not in page and "https://" not in page
    assert "default-src 'none'" in page


def test_report_shows_best_trial_failures_and_how_to_reproduce(page: str, digits: Study) -> None:
    assert f"trial {digits.best.number}" in page
    assert "digits.py:build_model" in page
    assert "ValueError: loss is nan &lt;b&gt;at epoch 3&lt;/b&gt;" in page
    assert "rank_lost" in page
    assert "mpirun -np 13 python -m mpi_opt search space.yaml" in page
    assert re.search(r"numpy \d", page)


def test_report_of_a_workload_system_says_how_to_continue(tmp_path: Path) -> None:
    configuration = {"objective": "external", "training": None}
    with Store.open(str(tmp_path / "a.db")) as store:
        study = store.create_study(
            "my study", strategy="random", seed=1, configuration=configuration, space=Space({"x": Real(0, 1)})
        )
        store.start(study.id, [Start(Proposal(number, {"x": 0.5}), 1, 0, "external", "") for number in range(2)])
        page = report(Study.read(store, "my study"))
    assert "<dd>mpi-opt ask space.yaml</dd>" in page
    assert "python -m mpi_opt search" not in page  # a search of such a study is refused
    assert "1 block<" in page


def test_commands_of_a_report_are_quoted_for_a_shell(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        options = {"strategy": "random", "seed": 1, "configuration": {"training": {"model": "m.py:f"}}}
        store.create_study("my study", **options, space=Space({"x": Real(0, 1)}))
        assert html.escape("mpi-opt best --study 'my study' > best.yaml") in report(Study.read(store, "my study"))


def test_report_is_drawn_in_a_browser(digits: Study, tmp_path: Path, browser) -> None:
    save_report(digits, tmp_path / "report.html")
    shown = browser(f"file://{tmp_path / 'report.html'}")
    assert "CONSOLE" not in shown, shown[-2000:]
    assert f'data-drawn="{N_PICTURES}"' in shown
    assert shown.count("<canvas") == 2 * N_PICTURES
    assert shown.count('class="bar"') == len(digits.space)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_report_on_a_telephone_is_not_wider_than_it(digits: Study, tmp_path: Path, browser) -> None:
    text = report(digits).replace(
        "document.documentElement.dataset.drawn",
        "document.documentElement.dataset.wide = document.documentElement.scrollWidth > innerWidth;\n"
        "document.documentElement.dataset.drawn",
    )
    (tmp_path / "report.html").write_text(text)
    assert 'data-wide="false"' in browser(f"file://{tmp_path / 'report.html'}", width=500)


def test_text_of_a_study_is_escaped(tmp_path: Path, browser) -> None:
    space = Space({EVIL: Real(0, 1), "kind": Categorical([EVIL, "b"])})
    with Store.open(str(tmp_path / "a.db")) as store:
        configuration = {"figure_of_merit": EVIL, "training": {"model": EVIL}, "directory": EVIL}
        options = {"strategy": EVIL[:60], "seed": 1, "configuration": configuration}
        study = store.create_study(EVIL, **options, space=space)
        for number in range(15):
            point = {EVIL: number / 20, "kind": EVIL}
            store.start(study.id, [Start(Proposal(number, point), 1, 0, "1", EVIL)])
            folds = [FoldOutcome(fold, 0.1 * number, 1.0, {EVIL: [0.5, 0.1 * number]}) for fold in range(2)]
            failed = Outcome(number, "failed", None, None, 1.0, [], EVIL)
            outcome = Outcome(number, "complete", 0.1 * number, 0.01, 1.0, folds)
            store.finish(study.id, [Finish(failed if number == 3 else outcome, 1, 0)])
        store.event(study.id, "rank_lost", EVIL)
        page = report(Study.read(store, EVIL))
    assert 'onerror="document' not in page and "<img" not in page
    (tmp_path / "report.html").write_text(page)
    shown = browser(f"file://{tmp_path / 'report.html'}")
    assert "<title>stolen" not in shown and "CONSOLE" not in shown, shown[-2000:]
    assert "data-drawn" in shown


def test_passwords_of_stores_are_not_in_a_report(tmp_path: Path) -> None:
    url = "postgresql://ada:secret@host/db"
    with Store.open(str(tmp_path / "a.db")) as store:
        for number, transfer in enumerate((url, {"store": url, "best": 3}, None)):
            configuration = {"store": url, "search": {"transfer": transfer}}
            options = {"strategy": "random", "seed": 1, "configuration": configuration}
            store.create_study(f"{number}", **options, space=Space({"x": Real(0, 1)}))
    for name in "012":
        page = report(Study.open(str(tmp_path / "a.db"), name))
        assert "secret" not in page
        assert "postgresql://ada:***@host/db" in page


@pytest.mark.parametrize("n_trials", [0, 1, 3])
def test_report_of_a_study_that_has_just_begun_is_drawn(tmp_path: Path, browser, n_trials: int) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        make_study(store, n_trials=n_trials)
    save_report(Study.open(str(tmp_path / "a.db"), "digits"), tmp_path / "report.html")
    shown = browser(f"file://{tmp_path / 'report.html'}")
    assert "CONSOLE" not in shown, shown[-2000:]
    assert "data-drawn" in shown


def test_report_of_10000_trials_is_quick_small_and_drawn(tmp_path: Path, browser) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        make_study(store, n_trials=10_000, n_blocks=250, n_epochs=10)
    path = tmp_path / "report.html"
    assert reference_s_of(lambda: save_report(Study.open(str(tmp_path / "a.db"), "digits"), path)) < 10
    assert path.stat().st_size < 8e6
    shown = browser(f"file://{path}", budget_ms=10_000)
    assert f'data-drawn="{N_PICTURES}"' in shown and "CONSOLE" not in shown


@pytest.mark.parametrize(
    ("value", "text"), [(0.123456789, 0.12346), (3.0, 3), (float("nan"), None), (float("inf"), None), (None, None)]
)
def test_numbers_are_short(value: float | None, text: float | None) -> None:
    assert short(value) == text


def test_data_cannot_end_its_element() -> None:
    assert "<" not in as_script({"a": "</script><!--"})
    assert json.loads(as_script({"a": "</script><!--\u2028"})) == {"a": "</script><!--\u2028"}


LOOK = """
const figure = page.figures[0], mark = figure.marks.find((m) => m.trial === RANKED[0]);
const frame = figure.base.getBoundingClientRect();
const at = { clientX: frame.left + mark.x, clientY: frame.top + mark.y, bubbles: true };
figure.base.dispatchEvent(new PointerEvent("pointermove", at));
document.documentElement.dataset.pointed = element("tip").hidden ? "nothing" : element("tip").textContent;
figure.base.dispatchEvent(new MouseEvent("click", at));
figure.base.dispatchEvent(new PointerEvent("pointerleave", at));
document.documentElement.dataset.held = String(page.trial);
document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
figure.base.dispatchEvent(new PointerEvent("pointerleave", at));
document.documentElement.dataset.left = String(page.trial);
element("contour-pair").value = "1";
element("contour-pair").dispatchEvent(new Event("change"));
element("history-all").click();
"""


def test_pointing_at_a_trial_shows_its_values(digits: Study, tmp_path: Path, browser) -> None:
    (tmp_path / "report.html").write_text(
        report(digits).replace(
            "document.documentElement.dataset.drawn", LOOK + "document.documentElement.dataset.drawn", 1
        )
    )
    shown = browser(f"file://{tmp_path / 'report.html'}")
    assert "CONSOLE" not in shown, shown[-2000:]
    pointed = re.search(r'data-pointed="([^"]*)"', shown)[1]
    assert pointed.startswith(f"Trial {digits.best.number} · complete · 1. of {digits.record.counts['complete']}")
    assert "learning_rate" in pointed and digits.best.parameters["activation"] in pointed
    assert f'data-held="{digits.best.number}"' in shown
    assert 'data-left="null"' in shown
