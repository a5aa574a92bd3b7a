"""Results as text."""

from __future__ import annotations

import csv
import io
import json
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from mpi_opt.core.attempt import Attempt
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Categorical, Parameters, Real, Space
from mpi_opt.core.trial import Outcome, Proposal, TrialRecord
from mpi_opt.errors import StoreError
from mpi_opt.store import Store
from mpi_opt.study import presentation
from mpi_opt.study.presentation import main_figure_name
from mpi_opt.study.study import Study
from mpi_opt.views.text import tables
from tests.mpi_opt.outcomes import a_fold, an_end, an_outcome, several_figures
from tests.mpi_opt.store.made_up import finish, make_study, start
from tests.optional_packages import needs


@pytest.mark.parametrize(
    ("folds", "note"),
    [
        ({"number": 5, "stop_early": True}, "pruned after 2 of 5 folds; value estimated for all folds\n"),
        (5, "pruned after 2 of 5 folds\n"),
    ],
)
def test_only_early_stopping_estimates_the_value_over_all_folds(folds: object, note: str) -> None:
    with Store.open("sqlite://") as store:
        configuration, space = {"folds": folds}, Space({"x": Real(0, 1)})
        study = store.create_study("s", strategy="random", seed=1, configuration=configuration, space=space)
        store.start(study.id, [start(0)])
        of_folds = [a_fold(fold, 0.5, 1.0) for fold in range(2)]
        store.finish(study.id, [an_end(an_outcome(0, "pruned", 0.5, None, 1234.0, of_folds), 1, 0)])
        read = Study.read(store, "s")
        page = tables.trial_page(read.record, read.trials[0], store.folds(study.id), [], [])
    assert note in page
    assert "20 min 34 s" in page


@pytest.mark.parametrize(
    ("configuration", "name"),
    [
        ({"objective": "f.py:f", "figure_of_merit": "error"}, "error"),
        ({"objective": "f.py:f", "figure_of_merit": "val_loss"}, "figure of merit"),
        ({"objective": "train", "figure_of_merit": "val_loss"}, "val_loss"),
    ],
)
def test_figure_of_merit_has_the_name_that_the_user_gives_it(configuration: dict, name: str) -> None:
    with Store.open("sqlite://") as store:
        space = Space({"x": Real(0, 1)})
        store.create_study("s", strategy="random", seed=1, configuration=configuration, space=space)
        assert main_figure_name(Study.read(store, "s").record) == name


def test_columns_of_a_table_are_aligned() -> None:
    text = tables.aligned(("number", "name"), [(1, "adam"), (200, None), (None, "sgd")])
    assert text.splitlines() == ["number  name", "     1  adam", "   200", "        sgd"]


def test_control_characters_in_text_are_escaped() -> None:
    text = tables.aligned(("name",), [("\033[2Jboo\x07\rbar",)])
    assert "\033" not in text and "\x07" not in text and "\r" not in text


def test_line_breaks_and_tabs_in_text_leave_one_line_and_its_columns() -> None:
    heading, line = tables.aligned(("na\tme", "n"), [("a\tb\nc", 1)]).splitlines()
    assert "\t" not in heading + line and len(heading) == len(line)


def test_long_text_is_cut() -> None:
    assert len(tables.cell("x" * 500)) == presentation.CELL_WIDTH


def test_colours_mark_states_only_on_request() -> None:
    rows = [(1, "failed")]
    assert "\033[31mfailed\033[0m" in tables.aligned(("number", "state"), rows, colour=True)
    assert "\033" not in tables.aligned(("number", "state"), rows)


def test_colour_marks_the_state_and_no_other_text() -> None:
    rows = [("lost01", "lost", "failed"), ("lost", "complete", "no")]
    heading, first, second = tables.aligned(("host", "outcome", "error"), rows, colour=True).splitlines()
    assert first == "lost01  \033[31mlost\033[0m      failed"
    assert second == "lost    \033[32mcomplete\033[0m  no"
    plain = tables.aligned(("host", "outcome", "error"), rows)
    assert re.sub(r"\033\[\d+m", "", "\n".join((heading, first, second))) == plain


@pytest.fixture
def one_trial() -> Callable[..., str]:
    """The page of a trial with given parameters, outcome and folds."""

    def page(parameters: Parameters, outcome: Outcome) -> str:
        space = Space({name: Categorical([value, "other"]) for name, value in parameters.items()})
        with Store.open("sqlite://") as store:
            study = store.create_study("s", strategy="random", seed=1, configuration={}, space=space)
            store.start(study.id, [start(0, parameters)])
            store.finish(study.id, [an_end(outcome, 1, 0)])
            folds, read = store.folds(study.id), Study.read(store, "s")
            return tables.trial_page(read.record, read.trials[0], folds, [], [])

    return page


def test_page_of_a_trial_shows_a_category_that_is_null(one_trial: Callable[..., str]) -> None:
    page = one_trial({"penalty": None, "kind": "elu"}, an_outcome(0, "complete", 0.5))
    assert page.split("hyperparameters\n")[1].split() == ["penalty", "null", "kind", "elu"]


@needs("pandas")
def test_table_and_csv_tell_the_category_null_from_an_inactive_hyperparameter() -> None:
    space = Space({"penalty": Categorical([None, 2]), "x": Real(0, 1, when={"penalty": 2})})
    points: list[Parameters] = [{"penalty": None}, {"penalty": 2, "x": 0.5}]
    with Store.open("sqlite://") as store:
        study = store.create_study("s", strategy="random", seed=1, configuration={}, space=space)
        store.start(study.id, [start(number, point) for number, point in enumerate(points)])
        read = Study.read(store, "s")
        rows = presentation.trial_rows(read.trials, read.record)
        assert [(row["penalty"], row["x"]) for row in rows] == [("null", None), (2, 0.5)]
        frame = read.dataframe()
    assert frame["penalty"].tolist() == [None, 2] and type(frame["penalty"][1]) is int
    assert frame["x"].isna().tolist() == [True, False]


def test_attempts_in_a_workload_system_are_on_no_block() -> None:
    with Store.open("sqlite://") as store:
        options = {"strategy": "random", "seed": 1, "configuration": {}}
        study = store.create_study("s", **options, space=Space({"x": Real(0, 1)}))
        store.start(study.id, [start(0, block=7)])
        store.requeue(study.id, [0], "rank 1 was lost")
        store.start(study.id, [Attempt(Proposal(0, {"x": 0.5}), 2, -1, "external", "")])
        attempts, read = store.attempts(study.id), Study.read(store, "s")
        page = tables.trial_page(read.record, read.trials[0], [], [], attempts)
    heading, first, second = page.split("attempts\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[:3] for line in (heading, first, second)] == [
        ["attempt", "block", "ranks"],
        ["1", "7", "22-24"],
        ["2", "external", "external"],
    ]


def test_control_characters_of_an_error_do_not_reach_the_terminal() -> None:
    with Store.open("sqlite://") as store:
        options = {"strategy": "random", "seed": 1, "configuration": {}}
        study = store.create_study("s", **options, space=Space({"x": Real(0, 1)}))
        store.start(study.id, [start(0)])
        store.requeue(study.id, [0], "site \x1b[2J down")
        attempts, read = store.attempts(study.id), Study.read(store, "s")
        page = tables.trial_page(read.record, read.trials[0], [], [], attempts)
    assert "attempt 1 was lost: site" in page
    assert "\x1b" not in page


@pytest.mark.parametrize(("n_folds", "note"), [(0, ""), (1, ""), (3, " (over the folds)")])
def test_uncertainty_is_that_of_the_folds_only_if_there_are_several(
    one_trial: Callable[..., str], n_folds: int, note: str
) -> None:
    folds = [a_fold(fold, 0.5, 1.0) for fold in range(n_folds)]
    page = one_trial({"kind": "elu"}, an_outcome(0, "complete", 0.5, 0.1, folds=folds))
    assert next(line for line in page.splitlines() if "±" in line).endswith(f"0.5 ± 0.1{note}")


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([0.0, 1.0], "▁█"),
        ([1.0, 1.0], "▁▁"),
        ([3.0, math.nan, 1.0, 2.0], "█ ▁▅"),
        ([math.nan], " "),
        ([], ""),
        ([float(i) for i in range(8)], "▁▂▃▄▅▆▇█"),
    ],
)
def test_sparkline_follows_the_values(values: list[float], line: str) -> None:
    assert tables.sparkline(values) == line


def test_long_sparkline_is_short_and_keeps_its_end() -> None:
    line = tables.sparkline([1.0] * 999 + [2.0], width=20)
    assert len(line) == 20 and line[-1] == "█"


def test_csv_is_read_back_by_the_standard_library(digits: Study) -> None:
    columns, rows = tables.table_of(digits.record, digits.trials)
    read = list(csv.DictReader(io.StringIO(tables.to_csv(columns, rows))))
    assert len(read) == 60
    for row, trial in zip(read, digits.trials, strict=True):
        assert int(row["number"]) == trial.number
        assert (float(row["figure_of_merit"]) if row["figure_of_merit"] else None) == trial.figure_of_merit
        assert row["error"] == (trial.error or "")
        assert float(row["learning_rate"]) == trial.parameters["learning_rate"]


def test_json_is_strict_json() -> None:
    text = tables.to_json([{"a": math.nan, "b": [1.0, math.inf], "c": {"d": "é"}}])
    assert json.loads(text, parse_constant=pytest.fail) == [{"a": None, "b": [1.0, None], "c": {"d": "é"}}]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (None, None),
        ("ValueError: bad\nrank 3", "ValueError: bad"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'y'\n", "KeyError: 'y'"),
    ],
)
def test_line_of_an_error_names_the_exception(error: str | None, line: str | None) -> None:
    assert tables.error_line(error) == line


def test_ranking_follows_the_direction() -> None:
    with Store.open("sqlite://") as store:
        for direction in ("minimize", "maximize"):
            space = Space({"x": Real(0, 1)})
            options = {
                "figures_of_merit": FiguresOfMerit(directions=(direction,)),
                "strategy": "random",
                "seed": 1,
                "configuration": {},
            }
            study = store.create_study(direction, **options, space=space)
            store.start(study.id, [start(n) for n in range(4)])
            store.finish(study.id, [finish(0, 0.5), finish(1, 0.1), finish(2, None, state="failed"), finish(3, 0.9)])
        orders = {s: [t.number for t in Study.read(store, s).ranked()] for s in ("minimize", "maximize")}
    assert orders == {"minimize": [1, 0, 3, 2], "maximize": [3, 0, 1, 2]}


def test_ranking_of_finite_figures_follows_a_new_list_of_trials() -> None:
    with Store.open("sqlite://") as store:
        options = {"strategy": "random", "seed": 1, "configuration": {}}
        created = store.create_study("s", **options, space=Space({"x": Real(0, 1)}))
        store.start(created.id, [start(n) for n in range(4)])
        store.finish(created.id, [finish(0, 0.5), finish(1, math.inf), finish(2, 0.1), finish(3, -math.inf)])
        study = Study.read(store, "s")
    found = [[one.number for one in study.ranked(("complete",), finite=finite)] for finite in (False, True)]
    assert found == [[3, 2, 0, 1], [2, 0]]
    study.ranked(("complete",), finite=True).clear()  # the list is the caller's own
    assert len(study.ranked(("complete",), finite=True)) == 2
    study.trials = study.trials[:2]
    assert [one.number for one in study.ranked(("complete",), finite=True)] == [0]


def test_notebook_shows_a_study_and_escapes_it() -> None:
    with Store.open("sqlite://") as store:
        space = Space({"<i>x": Real(0, 1)})
        options = {"strategy": "random", "seed": 1, "configuration": {}}
        study = store.create_study("<script>alert(1)</script>", **options, space=space)
        store.start(study.id, [start(0, {"<i>x": 0.5})])
        store.finish(study.id, [finish(0)])
        text = Study.read(store, "<script>alert(1)</script>")._repr_html_()
    assert "<script>" not in text and "<i>" not in text
    assert "&lt;script&gt;" in text and "0.25" in text


@needs("pandas")
def test_dataframe_has_a_row_for_each_trial(digits: Study) -> None:
    frame = digits.dataframe()
    assert len(frame) == 60
    assert frame["figure_of_merit"].min() == digits.best.figure_of_merit
    assert set(digits.space) < set(frame.columns)
    assert frame["momentum"].isna().sum() == sum("momentum" not in trial.parameters for trial in digits.trials)


def test_details_of_a_study_in_memory_are_gone_with_its_store() -> None:
    with Store.open("sqlite://") as store:
        make_study(store, n_trials=4)
        study = Study.read(store, "digits")
    assert len(study.trials) == 4
    with pytest.raises(StoreError, match="in memory"):
        study.curves()


def test_study_survives_being_sent_to_another_process(digits: Study) -> None:
    assert pickle.loads(pickle.dumps(digits)) == digits


def test_a_trial_is_shown_with_all_its_figures_of_merit_and_their_uncertainties(digits: Study) -> None:
    trial = TrialRecord(3, "complete", {}, several_figures({"loss": 0.25, "seconds": 12.0}, {"loss": 0.01}))
    three = FiguresOfMerit(("loss", "seconds", "parameters"), ("minimize",) * 3)
    shown = presentation.figures_as_text(trial, replace(digits.record, figures_of_merit=three))
    assert shown == [("loss", "0.25 ± 0.01"), ("seconds", "12"), ("parameters", "none")]
