"""The report, tested as text and in a real browser."""

from __future__ import annotations

import html
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from mpi_opt.core.attempt import Attempt
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Categorical, Real, Space
from mpi_opt.core.trial import Proposal
from mpi_opt.store import Store
from mpi_opt.store.records import GivenBack
from mpi_opt.study.study import Study
from mpi_opt.views.page.report import report, save_report
from mpi_opt.views.page.report_data import as_script, short
from tests.mpi_opt.outcomes import a_fold, an_end, an_outcome, several_figures
from tests.mpi_opt.store.made_up import finish, make_study, start
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


def test_figures_of_merit_of_a_report_have_all_digits(tmp_path: Path) -> None:
    """Five digits would make 123455.1 and 123456.9 equal."""
    figures = FiguresOfMerit(("loss", "seconds"), ("minimize", "minimize"))
    options = {"strategy": "random", "seed": 1, "configuration": {"folds": 2}, "figures_of_merit": figures}
    values = [123455.1 + 0.15 * number for number in range(12)]
    with Store.open(str(tmp_path / "a.db")) as store:
        study = store.create_study("large offset", **options, space=Space({"x": Real(0, 1)}))
        for number, value in enumerate(values):
            store.start(study.id, [Attempt(Proposal(number, {"x": number / 12}), 1, 0, "1", "node1")])
            folds = [a_fold(fold, value + fold - 0.5, 1.0, {"loss": [value]}) for fold in range(2)]
            both = several_figures({"loss": value, "seconds": 1e6 + value})
            store.finish(study.id, [an_end(an_outcome(number, "complete", both, None, 1.0, folds), 1, 0)])
        data = data_of(report(Study.read(store, "large offset")))
    assert data["trials"]["figure_of_merit"] == values
    assert data["folds"]["values"] == [[value - 0.5, value + 0.5] for value in values]
    assert data["front"]["values"] == [[value, 1e6 + value] for value in values]
    assert (data["y"]["low"], data["y"]["high"]) == pytest.approx((values[0] - 0.099, values[-1] + 0.099), abs=1e-6)
    assert [line["values"] for line in data["curves"]["loss"]["lines"]] == [
        [pytest.approx(v, abs=1e-3)] for v in values
    ]
    assert np.ptp(data["forest"]["curves"][0]["y"]) > 0.5


def test_report_leaves_out_trials_that_began_after_the_study_was_read(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "results.db")) as store:
        make_study(store, n_trials=20)
        study = Study.read(store, "digits")
        number = study.record.n_trials
        parameters, folds = study.trials[0].parameters, [a_fold(0, 0.1, 1.0, {"val_loss": [0.3, 0.1]})]
        store.start(study.record.id, [Attempt(Proposal(number, parameters), 1, 9, "1-3", "node1")])
        store.finish(study.record.id, [an_end(an_outcome(number, "complete", 0.1, None, 1.0, folds), 1, 9)])
    data = data_of(report(study))
    assert data["trials"]["number"] == list(range(20))
    assert max(data["folds"]["trials"]) < 20
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
    assert "<dd>mpi-opt search SPACE.yaml -n N, with N of at least 13 (the command was not recorded)</dd>" in page
    assert re.search(r"numpy \d", page)


def test_report_names_the_commands_that_ran_the_trials(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        make_study(store, n_trials=2)
        commands = [f"mpi-opt search jets.yaml -n {n}" for n in range(2, 30)]
        for command in [*commands, commands[-2], "mpi-opt search --store postgresql://ada:secret@host/a <b>.yaml", ""]:
            store.add_command(store.study("digits"), command)
        assert len(store.study("digits").commands) == 20
        page = report(Study.read(store, "digits"))
    assert "<dt>command</dt><dd>mpi-opt search --store postgresql://ada:***@host/a &lt;b&gt;.yaml</dd>" in page
    before = re.search(r"<dt>before</dt><dd>(.*?)</dd>", page, re.S)[1].splitlines()
    assert before[-2:] == [commands[-1], commands[-2]] and len(set(before)) == 19
    assert "not recorded" not in page.partition("<dt>command</dt>")[2].partition("<dt>versions</dt>")[0]


def test_report_of_a_workload_system_says_how_to_continue(tmp_path: Path) -> None:
    configuration = {"objective": "external", "training": None}
    with Store.open(str(tmp_path / "a.db")) as store:
        study = store.create_study(
            "my study", strategy="random", seed=1, configuration=configuration, space=Space({"x": Real(0, 1)})
        )
        store.start(study.id, [Attempt(Proposal(number, {"x": 0.5}), 1, -1, "external", "") for number in range(2)])
        page = report(Study.read(store, "my study"))
    assert "<dd>mpi-opt ask SPACE.yaml (the command was not recorded)</dd>" in page
    assert "mpi-opt search" not in page  # a search of such a study is refused
    assert "of the time" not in page  # no block has run a trial
    assert data_of(page)["blocks"]["names"] == ["external"]


def test_external_trials_of_a_report_are_on_no_block(tmp_path: Path) -> None:
    space = Space({"x": Real(0, 1)})
    with Store.open(str(tmp_path / "a.db")) as store:
        study = store.create_study("both", strategy="random", seed=1, configuration={}, space=space)
        places = [(-1, "external"), (-1, "external"), (0, "1")]
        store.start(study.id, [Attempt(Proposal(n, {"x": 0.5}), 1, *place, "") for n, place in enumerate(places)])
        store.finish(study.id, [], [GivenBack(0, 1, "the job was cancelled")])
        store.requeue(study.id, [2], "rank 1 was lost")
        page = report(Study.read(store, "both"))
    blocks = data_of(page)["blocks"]
    assert blocks["names"] == ["external", 0]
    assert [bar[0] for bar in blocks["bars"]] == [0, 0, 1]
    assert "of the time busy, 1 block<" in page
    assert "lost in a workload system: the job was cancelled" in page
    assert "lost on block 0: rank 1 was lost" in page
    assert "The row “external”" in page


def test_numbers_at_the_top_of_a_report_are_those_of_its_times(tmp_path: Path) -> None:
    """Block 0 is busy for 400 s and block 1 for 200 s, of 400 s; three trials have ended in this time."""
    path = tmp_path / "a.db"
    with Store.open(str(path)) as store:
        study = store.create_study("a", strategy="random", seed=1, configuration={}, space=Space({"x": Real(0, 1)}))
        blocks = [0, 1, 0]
        store.start(study.id, [start(number, block=block) for number, block in enumerate(blocks)])
        store.finish(study.id, [finish(0), finish(1, block=1), finish(2, None, state="failed")])
    with closing(sqlite3.connect(path)) as connection, connection:
        for number, (began, ended) in enumerate([(0, 250), (100, 300), (250, 400)]):
            times = [f"2030-01-01T00:{at // 60:02}:{at % 60:02}.000000+00:00" for at in (began, ended)]
            connection.execute(
                "UPDATE attempts SET started_at=?, finished_at=? WHERE trial_id % 1000=?", (*times, number)
            )
            connection.execute("UPDATE trials SET started_at=?, finished_at=? WHERE number=?", (*times, number))
        connection.execute("UPDATE events SET at='2030-01-01T00:00:00.000000+00:00'")
    with Store.open(str(path), read_only=True) as store:
        page = report(Study.read(store, "a"))
    tiles = re.findall(r'<div class="tile"><b>(.*?)</b><span>(.*?)</span>', page)
    assert tiles[1:] == [
        ("2", "trials complete; 1 failed"),
        ("6 min 40 s", "from the first start to the last end"),
        ("27", "trials per hour"),
        ("75.0%", "of the time busy, 2 blocks"),
    ]
    assert "blocks busy 75.0% of the time" in page


def test_report_of_a_search_names_no_workload_system(page: str) -> None:
    assert "of the time busy, 4 blocks<" in page
    assert "external" not in page.split("<script", 1)[0]


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


def test_report_says_how_many_events_there_are_and_how_many_it_shows(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        study = make_study(store, n_trials=1)
        for number in range(200):
            store.event(study.id, "rank_lost", f"event number {number}")
        assert "200 events of the search<" in report(Study.read(store, "digits"))
        store.event(study.id, "rank_lost", "event number 200")
        page = report(Study.read(store, "digits"))
    assert "201 events of the search; the latest 200 are shown<" in page
    assert "event number 0\n" not in page and "event number 1\n" in page


def test_texts_of_a_report_name_what_its_figures_show(page: str) -> None:
    assert "a bar for the figure of merit of the trial, which aggregates them" in page  # also a median, or mean+std
    assert "The remainder to 100 % is due to interactions." in page
    assert "each bar an attempt to run a trial" in page  # a trial that was lost and run again has two bars
    assert "from the first start to the last end" in page


def test_text_of_a_study_is_escaped(tmp_path: Path, browser) -> None:
    space = Space({EVIL: Real(0, 1), "kind": Categorical([EVIL, "b"])})
    with Store.open(str(tmp_path / "a.db")) as store:
        configuration = {"figure_of_merit": EVIL, "training": {"model": EVIL}, "directory": EVIL}
        options = {"strategy": EVIL[:60], "seed": 1, "configuration": configuration}
        study = store.create_study(EVIL, **options, space=space)
        for number in range(15):
            point = {EVIL: number / 20, "kind": EVIL}
            store.start(study.id, [Attempt(Proposal(number, point), 1, 0, "1", EVIL)])
            folds = [a_fold(fold, 0.1 * number, 1.0, {EVIL: [0.5, 0.1 * number]}) for fold in range(2)]
            failed = an_outcome(number, "failed", None, None, 1.0, [], EVIL)
            outcome = an_outcome(number, "complete", 0.1 * number, 0.01, 1.0, folds)
            store.finish(study.id, [an_end(failed if number == 3 else outcome, 1, 0)])
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


def test_figures_of_very_many_trials_show_a_part_of_them_and_say_so(
    digits: Study, tmp_path: Path, browser, monkeypatch
) -> None:
    monkeypatch.setattr("mpi_opt.views.page.drawn_trials.MAX_TRIALS", 10)
    monkeypatch.setattr("mpi_opt.views.page.drawn_trials.MAX_ROWS", 2)
    monkeypatch.setattr("mpi_opt.views.page.report.N_BEST", 5)
    path = tmp_path / "report.html"
    save_report(digits, path)
    page = path.read_text(encoding="utf-8")
    data = data_of(page)
    numbers, trials = data["trials"]["number"], {trial.number: trial for trial in digits.trials}
    assert f"; figures show {len(numbers)} of 60 trials: the best ones" in page
    ranked = [trial.number for trial in digits.ranked(("complete",))]
    assert set(ranked[:5]) <= set(numbers), "half of them are the best ones"
    of_blocks = {number for number in trials if number % 4 in (0, 2)}
    assert data["blocks"]["names"] == [0, 2]
    assert data["blocks"]["note"] == "2 of 4 blocks, evenly selected"
    assert of_blocks - {8} <= {numbers[bar[1]] for bar in data["blocks"]["bars"]} <= of_blocks
    in_order = sorted(trials.values(), key=lambda trial: trial.ended)
    history = data["history"]
    assert [in_order[place].number for place in history["places"]] == [numbers[index] for index in history["ended"]]
    best, so_far = [], np.inf
    for place, trial in enumerate(in_order):
        if trial.state == "complete" and trial.figure_of_merit < so_far:
            so_far = trial.figure_of_merit
            best.append([place, trial.number])
    assert [[place, numbers[index]] for place, index in history["best"]] == best
    assert re.search(r'<tr data-trial="(\d+)" class=is-best>', page)[1] == str(numbers.index(digits.best.number))
    assert "CONSOLE" not in (shown := browser(f"file://{path}")), shown[-2000:]


def test_very_many_attempts_of_one_row_are_an_even_selection(tmp_path: Path, monkeypatch) -> None:
    """As of a study whose trials a workload system runs."""
    monkeypatch.setattr("mpi_opt.views.page.drawn_trials.MAX_TRIALS", 10)
    monkeypatch.setattr("mpi_opt.views.page.drawn_trials.MAX_BARS", 7)
    monkeypatch.setattr("mpi_opt.views.page.report.N_BEST", 5)
    with Store.open(str(tmp_path / "a.db")) as store:
        make_study(store, n_trials=60, n_blocks=1)
    data = data_of(report(Study.open(str(tmp_path / "a.db"), "digits")))
    n_bars = len(data["blocks"]["bars"])
    assert 4 <= n_bars <= 7
    assert re.fullmatch(rf"{n_bars} of \d+ attempts, evenly selected", data["blocks"]["note"])
    assert 10 <= len(data["trials"]["number"]) < 30


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345678912, 0.123456789), (3.0, 3), (float("nan"), None), (float("inf"), None), (None, None)],
)
def test_numbers_are_short(value: float | None, text: float | None) -> None:
    assert short(value) == text


def test_data_cannot_end_its_element() -> None:
    assert "<" not in as_script({"a": "</script><!--"})
    assert json.loads(as_script({"a": "</script><!--\u2028"})) == {"a": "</script><!--\u2028"}


def test_one_trial_and_one_event_are_not_several(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        study = store.create_study("a", strategy="random", seed=1, configuration={}, space=Space({"x": Real(0, 1)}))
        store.start(study.id, [Attempt(Proposal(13, {"x": 0.5}), 1, 0, "1", "node1")])
        store.finish(study.id, [an_end(an_outcome(13, "failed", None, None, 1.0, error="no data"), 1, 0)])
        store.event(study.id, "study_finished", "")
        page = report(Study.read(store, "a"))
    assert ">trial 13<" in page and "1 event of the search<" in page and "1 block<" in page
