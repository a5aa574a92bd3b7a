"""Names that collide: hyperparameters and figures of merit that are named like other columns."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Categorical, Integer, Space
from mpi_opt.store import Store
from mpi_opt.store.errors import InvalidQueryError
from mpi_opt.store.records import StudyRecord
from mpi_opt.study.presentation import LAST_COLUMNS, trial_columns, trial_rows
from mpi_opt.study.study import Study
from mpi_opt.views.text.search_summary import search_summary
from mpi_opt.views.text.tables import trials_table
from tests.mpi_opt.outcomes import an_end, an_outcome, several_figures
from tests.mpi_opt.store.made_up import start


def one_trial(store: Store, names: list[str], figures: FiguresOfMerit) -> StudyRecord:
    """A study with one complete trial: the hyperparameters are 100, 101, …, the figures of merit 0.5, 1.5, …."""
    space = Space({name: Integer(0, 999) for name in names})
    study = store.create_study(
        "names", figures_of_merit=figures, strategy="random", seed=1, configuration={}, space=space
    )
    store.start(study.id, [start(0, {name: 100 + index for index, name in enumerate(names)})])
    values = {name: 0.5 + index for index, name in enumerate(figures.names)}
    found = several_figures(values, {name: value + 0.25 for name, value in values.items()})
    store.finish(study.id, [an_end(an_outcome(0, "complete", found, None, 9.0), 1, 0)])
    return study


SEVERAL = ("minimize", "minimize")
HYPERPARAMETERS = [
    ["number", "parameter_number"],
    ["parameter_number", "number"],
    ["rate", "Rate", "RATE", "parameter_Rate"],
    ["State", "pareto", "a", "merit_a", "trial_pareto"],
]
FIGURES = [
    FiguresOfMerit(),
    FiguresOfMerit(("a", "pareto"), SEVERAL),
    FiguresOfMerit(("a", "a_uncertainty"), SEVERAL),
    FiguresOfMerit(("a_uncertainty", "a"), SEVERAL),
    FiguresOfMerit(("figure_of_merit", "state"), SEVERAL),
    FiguresOfMerit(("Seconds", "seconds"), SEVERAL),
]


@pytest.mark.parametrize("names", HYPERPARAMETERS, ids=",".join)
@pytest.mark.parametrize("figures", FIGURES, ids=lambda figures: ",".join(figures.names))
def test_each_value_has_a_column_of_its_own_with_the_same_name_in_view_and_table(store, names, figures):
    study = one_trial(store, names, figures)
    columns, ((*values,),) = store.sql(f"SELECT * FROM {study.view}")
    assert len({column.lower() for column in columns}) == len(columns)
    (row,) = trial_rows(store.trials(study.id), store.study("names"))
    assert list(row) == [*columns, *LAST_COLUMNS] == trial_columns(store.study("names"))
    assert [row[column] for column in columns] == values
    assert set(range(100, 100 + len(names))) < set(values)
    if figures.are_several:
        assert {0.5, 0.75, 1.5, 1.75, 1} < set(values)


def test_hyperparameter_named_like_a_column_of_the_table_alone_keeps_its_name_in_the_view(store):
    study = one_trial(store, ["error", "attempts"], FiguresOfMerit())
    assert store.sql(f"SELECT error, attempts FROM {study.view}")[1] == [(100, 101)]
    (row,) = trial_rows(store.trials(study.id), store.study("names"))
    assert (row["parameter_error"], row["parameter_attempts"], row["error"], row["attempts"]) == (100, 101, None, 1)


@pytest.mark.parametrize("figures", [FiguresOfMerit(), FiguresOfMerit(("a", "Pareto"), SEVERAL)], ids=["one", "two"])
def test_query_that_a_search_prints_is_valid_whatever_the_names_are(store, figures):
    space = Space({name: Integer(0, 9) for name in ("number", "order", "Rate", "x")})
    study = store.create_study(
        "Digits", figures_of_merit=figures, strategy="random", seed=1, configuration={}, space=space
    )
    store.start(study.id, [start(0, {"number": 4, "order": 5, "Rate": 6, "x": 7})])
    found = several_figures(dict(zip(figures.names, (0.5, 1.5), strict=False)))
    outcome = an_outcome(0, "complete", found, None, 9.0)
    store.finish(study.id, [an_end(outcome, 1, 0)])
    summary = search_summary(Study.read(store, "Digits"), "sqlite:///digits.db", 1)
    columns, (row,) = store.sql(shlex.split(summary.splitlines()[-1])[-1])
    shown = dict(zip(columns, row, strict=True))
    assert [shown[name] for name in ("number", "parameter_number", "order", "Rate", "x")] == [0, 4, 5, 6, 7]
    assert shown["figure_of_merit"] == 0.5


WORDS_OF_SQL = ["add", "index", "nothing", "raise", "returning", "update", "user", "values", "window"]


@pytest.mark.parametrize("name", WORDS_OF_SQL)
def test_words_of_sql_are_names_of_hyperparameters(store, name):
    one_trial(store, [name], FiguresOfMerit())
    summary = search_summary(Study.read(store, "names"), "sqlite:///names.db", 1)
    columns, (row,) = store.sql(shlex.split(summary.splitlines()[-1])[-1])
    assert (columns[1], row[1]) == (name, 100)


def test_printed_command_is_one_command_of_the_shell_whatever_the_names_are(store):
    one_trial(store, ["cost in $HOME", "a `date`", 'the "x"', "c\\d"], FiguresOfMerit())
    url = "sqlite:////tmp/results of $USER/names.db"
    command = search_summary(Study.read(store, "names"), url, 1).splitlines()[-1].strip()
    printed = command.replace("mpi-opt", "printf '%s\\0'", 1)
    words = subprocess.run(["sh", "-c", printed], capture_output=True, text=True, check=True).stdout.split("\0")
    assert words[:3] == ["results", "--store", url]
    columns, (row,) = store.sql(words[4])
    assert columns[1:-1] == ["cost in $HOME", "a `date`", 'the "x"', "c\\d"]
    assert row[1:-1] == (100, 101, 102, 103)


@pytest.mark.parametrize("query", ["SELECT * FROM nowhere", "SELEKT 1", "SELECT units FROM study_names"])
def test_message_about_a_wrong_query_lists_views_and_tables(store, query):
    one_trial(store, ["x"], FiguresOfMerit())
    with pytest.raises(InvalidQueryError, match=r"views and tables: study_names, .*trials") as caught:
        store.sql(query)
    assert "the database reports" in caught.value.problem
    assert store.sql("SELECT x FROM study_names")[1] == [(100,)]


def test_categories_that_are_whole_numbers_keep_all_their_digits_in_the_view(store):
    large = 2**60 + 1
    space = Space({"mask": Categorical([large, 7]), "huge": Categorical([10**30, 3]), "mixed": Categorical([1, 2.5])})
    study = store.create_study("ints", strategy="random", seed=1, configuration={}, space=space)
    store.start(study.id, [start(0, {"mask": large, "huge": 3, "mixed": 1})])
    ((mask, huge, mixed),) = store.sql(f"SELECT mask, huge, mixed FROM {study.view}")[1]
    assert (mask, type(mask)) == (large, int)
    assert (huge, mixed) == (3, 1)


def test_shown_table_marks_the_front_beside_a_figure_with_its_name(store):
    one_trial(store, ["x"], FiguresOfMerit(("a", "pareto"), SEVERAL))
    study = Study.read(store, "names")
    heading, line = trials_table(study.record, study.trials).splitlines()
    shown = dict(zip(heading.split(), line.split(), strict=True))
    assert (shown["pareto"], shown["trial_pareto"], shown["pareto_uncertainty"]) == ("1.5", "*", "1.75")


def test_shown_table_hides_uncertainties_that_no_trial_has(store):
    figures = FiguresOfMerit(("a", "state"), SEVERAL)
    study = store.create_study(
        "plain",
        figures_of_merit=figures,
        strategy="random",
        seed=1,
        configuration={},
        space=Space({"x": Integer(0, 9)}),
    )
    store.start(study.id, [start(0, {"x": 1})])
    store.finish(study.id, [an_end(an_outcome(0, "complete", figures.read((0.5, 1.5))), 1, 0)])
    shown = Study.read(store, "plain")
    assert trials_table(shown.record, shown.trials).splitlines()[0].split() == [
        "number", "state", "duration_s", "a", "merit_state", "pareto", "x",
    ]  # fmt: skip


def test_long_names_of_studies_have_views_of_their_own(store):
    for number, name in enumerate(["a" * 90, "a" * 90 + "b", "a" * 70]):
        study = store.create_study(name, strategy="s", seed=1, configuration={}, space=Space({"x": Integer(0, 9)}))
        store.start(study.id, [start(0, {"x": number})])
        assert store.study(name).view == study.view
        assert store.sql(f"SELECT x FROM {study.view}")[1] == [(number,)]
