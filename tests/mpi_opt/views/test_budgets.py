"""Trials of one study with different budgets: tables, the best trial, and the texts about it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from mpi_learn.settings.yaml_file import parsed
from mpi_opt.configuration.model_folder import ModelFolder
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Real, Space
from mpi_opt.core.trial import Proposal, trial_seed
from mpi_opt.store import Store
from mpi_opt.study.budgets import budget_text
from mpi_opt.study.study import Study
from mpi_opt.views.page.report import report
from mpi_opt.views.text.search_summary import search_summary
from tests.in_process import in_process
from tests.mpi_opt.outcomes import an_end, an_outcome

TRAINING = {"model": "m.py:build", "epochs": 27, "seed": 5, "data": {"train": ["a.h5"], "validation_fraction": 0.2}}
NOTE = "trial 0 has 0.1, but was trained for 3 epochs only; the best trial with 27 epochs is trial 2: 0.3"
BUDGETS = (3.0, 3.0, 27.0, 27.0)
VALUES = (0.1, 0.2, 0.3, 0.4)


def made(
    folder: Path, budgets: tuple[float | None, ...] = BUDGETS, maximize: bool = False, strategy: str = "halving"
) -> Study:
    """Figures of merit become worse with the number of the trial; trial 3 continues trial 1."""
    url = f"sqlite:///{folder / 's.db'}"
    configuration = {"training": TRAINING, "directory": str(folder), "search": {"trials": 4}}
    with Store.open(url) as store:
        study = store.create_study(
            "s", strategy=strategy, seed=7, configuration=configuration, space=Space({"budget": Real(0, 1)}),
            figures_of_merit=FiguresOfMerit(directions=("maximize" if maximize else "minimize",)),
        )  # fmt: skip
        for number, (budget, value) in enumerate(zip(budgets, VALUES, strict=True)):
            proposal = Proposal(number, {"budget": 0.5}, budget, 1 if number == 3 else None)
            store.start(study.id, [Attempt(proposal, 1, 0, 1, "host")])
            outcome = an_outcome(number, "complete", -value if maximize else value, duration_s=1.0)
            store.finish(study.id, [an_end(outcome, 1, 0)])
    return Study.open(url, "s")


def printed(folder: Path, *arguments: str) -> str:
    done = in_process(*arguments, "--store", "s.db", "--study", "s", cwd=folder)
    assert done.returncode in (0, 75), done.stderr
    return done.stdout


def test_tables_have_the_budgets_if_they_differ(tmp_path):
    study = made(tmp_path)
    rows = list(csv.DictReader(printed(tmp_path, "results", "--format", "csv").splitlines()))
    assert [float(row["budget"]) for row in rows] == [3, 3, 27, 27]
    assert [row["parameter_budget"] for row in rows] == ["0.5"] * 4
    assert printed(tmp_path, "results").splitlines()[0].split()[3:5] == ["duration_s", "budget"]
    assert study.record.has_budgets


@pytest.mark.parametrize("budget", [None, 27.0])
def test_tables_have_no_budgets_if_they_are_the_same(tmp_path, budget):
    made(tmp_path, (budget,) * 4)
    (row, *_) = csv.DictReader(printed(tmp_path, "results", "--format", "csv").splitlines())
    assert row["budget"] == "0.5"  # the hyperparameter


@pytest.mark.parametrize("maximize", [False, True])
def test_a_short_training_is_not_the_best_without_a_word(tmp_path, maximize):
    study, note = made(tmp_path, maximize=maximize), NOTE.replace("0.", "-0.") if maximize else NOTE
    assert [study.best.number, study.record.best.number] == [2, 2]
    assert [trial.number for trial in study.ranked()] == [0, 1, 2, 3]
    assert f"\n{note}\n" in search_summary(study, "s.db", 4)
    assert repr(study).endswith(note) and "best: trial 2" in repr(study)
    assert f"# {note}\n" in printed(tmp_path, "best")
    assert f"best {study.best.figure_of_merit} (trial 2)" in (shown := printed(tmp_path, "results", "--finished"))
    assert note in shown
    assert f"# {note}\n" in report(study) and 'data-trial="2" class=is-best' in report(study)


def test_a_study_without_a_full_training_says_so_wherever_it_shows_its_best_trial(tmp_path):
    study, note = made(tmp_path, (3.0, 3.0, 9.0, 3.0)), "no trial was trained for all 27 epochs; trial 2 for 9 epochs"
    assert note in search_summary(study, "s.db", 4) and note in repr(study)
    assert f"# {note}\n" in printed(tmp_path, "best") and note in printed(tmp_path, "results", "--finished")
    ModelFolder(tmp_path / "s.models").of_trial(study.record.unique_name, 2).joinpath("fold-0").mkdir(parents=True)
    done = in_process("best", "--model", "--store", "s.db", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "") and note in done.stderr


def test_the_report_and_the_page_of_a_trial_say_how_long_it_was_trained(tmp_path):
    study = made(tmp_path)
    assert '"budget":{"0":"3 of 27 epochs","1":"3 of 27 epochs","2":"27 of 27 epochs"' in report(study)
    lines = [line.split() for line in printed(tmp_path, "results", "--trial", "0").splitlines()]
    assert ["trained", "for", "3", "of", "27", "epochs"] in lines and ["val_loss", "0.1"] in lines


def test_trials_of_a_population_are_stages_of_which_the_best_one_counts(tmp_path):
    study = made(tmp_path, strategy="population")
    assert [study.best.number, study.record.best.number] == [0, 0]
    assert study.training_length_notes() == []


@pytest.mark.parametrize("budgets", [(27.0, 3.0, 27.0, 3.0), (None,) * 4])
def test_nothing_is_said_if_the_best_training_is_as_long_as_any(tmp_path, budgets):
    study = made(tmp_path, budgets)
    texts = search_summary(study, "s.db", 4), printed(tmp_path, "best"), printed(tmp_path, "results", "--finished")
    assert not any("epochs only" in text for text in texts)


def test_a_trial_without_a_budget_has_all_epochs(tmp_path):
    study = made(tmp_path, (27.0, 27.0, None, 27.0))
    assert study.best.number == study.record.best.number == 2
    assert "the best trial with all epochs is trial 2: 0.3" in printed(tmp_path, "best")


def test_the_training_of_a_trial_has_its_seed_its_epochs_and_the_same_validation_samples(tmp_path):
    made(tmp_path)
    text = printed(tmp_path, "best", "--trial", "0")
    content = parsed(text)
    assert (content["seed"], content["epochs"]) == (trial_seed(7, 0), 3)
    assert content["data"]["validation_seed"] == 5
    assert "other seeds" not in text
    assert "# the trial ended after these epochs; the configuration has epochs: 27\n" in text
    assert "# the trial continues trial 1, with other seeds" in printed(tmp_path, "best", "--trial", "3")


@pytest.mark.parametrize(("epochs", "text"), [(27, "3 of 27 epochs"), ("$epochs", "3 epochs"), (None, "3 epochs")])
def test_budget_is_a_part_of_the_full_training_if_its_length_is_known(tmp_path, monkeypatch, epochs, text):
    """A hyperparameter may set the number of epochs; it then differs from trial to trial."""
    monkeypatch.setitem(TRAINING, "epochs", epochs)
    study = made(tmp_path, strategy="random")
    assert [budget_text(study.record, trial) for trial in study.trials][:2] == [text] * 2
    assert study.training_length_notes()[0].startswith("trial 0 has 0.1, but was trained for 3 epochs only")
