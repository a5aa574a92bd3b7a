from __future__ import annotations

import re

import pytest

import mpi_opt
from mpi_opt.core.search_space.space import Integer, Real
from mpi_opt.core.trial import TrialRecord
from mpi_opt.study.study import Study
from mpi_opt.views.text.best_trial import trial_yaml
from mpi_opt.views.text.search_summary import search_summary
from mpi_opt.views.text.tables import lineage, schedule, schedule_text

OPTIONS = {"population": 4, "max_budget": 6, "interval": 1, "change": 0.6}


@pytest.fixture
def study(tmp_path) -> Study:
    """Weights that follow a target best when the rate falls with the epochs; saved by trial, as checkpoints are."""
    saved: dict[int | None, float] = {None: 1.0}

    def objective(trial) -> float:
        wanted = 0.5 ** (trial.budget - 1)
        weight = saved[trial.resume_from] + abs(trial.parameters["rate"] - wanted)
        saved[trial.number] = weight
        return weight

    space = {"rate": Real(0.01, 1.0, prior="log-uniform"), "units": Integer(8, 64)}
    store = f"sqlite:///{tmp_path}/test.db"
    return mpi_opt.search(
        objective, space=space, trials=24, strategy="population", options=OPTIONS, seed=2, store=store
    )


def most_changed(study) -> list[TrialRecord]:
    """The trials of the complete training in which the hyperparameters changed most often."""
    trainings = [lineage(study, one) for one in study.trials if one.budget == 6]
    return max(trainings, key=lambda trials: len(schedule(trials)))


def test_lineage_is_the_chain_of_trials_that_a_trial_continues(study):
    chain = lineage(study, study.trials[-1])
    assert chain[0].resume_from is None
    assert [one.number for one in chain[:-1]] == [one.resume_from for one in chain[1:]]
    assert [one.budget for one in chain] == list(range(1, len(chain) + 1))


def test_schedule_lists_the_epochs_of_each_value(study):
    chain = most_changed(study)
    rows = schedule(chain)
    assert "units" not in rows[0]
    stretches = [tuple(map(int, re.fullmatch(r"(\d+) to (\d+)", row["epochs"]).groups())) for row in rows]
    assert stretches[0][0] == 0
    assert stretches[-1][1] == 6
    assert [end for _, end in stretches[:-1]] == [begin for begin, _ in stretches[1:]]
    held = [row["rate"] for row, (begin, end) in zip(rows, stretches, strict=True) for _ in range(begin, end)]
    assert held == [one.parameters["rate"] for one in chain]
    assert 1 < len(rows) < 7


def test_hyperparameters_named_like_its_columns_have_a_prefix():
    trials = [
        TrialRecord(number, "complete", {"epochs": 5 + number, "trials": 9 - number}, budget=number + 1.0)
        for number in range(2)
    ]
    assert schedule(trials) == [
        {"epochs": "0 to 1", "trials": "0", "parameter_epochs": 5, "parameter_trials": 9},
        {"epochs": "1 to 2", "trials": "1", "parameter_epochs": 6, "parameter_trials": 8},
    ]


def test_constant_hyperparameters_are_not_in_the_schedule(study):
    assert schedule_text(lineage(study, study.trials[0])) == ""


def test_best_trial_says_that_its_hyperparameters_changed(study):
    trials = most_changed(study)
    text = trial_yaml(study.record, trials)
    assert "# its hyperparameters changed during the training" in text
    assert all(f"{row['rate']:.4g}"[:5] in text for row in schedule(trials))


@pytest.mark.parametrize("is_changed", [True, False])
def test_the_summary_of_a_search_has_the_schedule_of_the_best_trial(study, monkeypatch, is_changed):
    best = most_changed(study)[-1] if is_changed else study.trials[0]
    monkeypatch.setattr(Study, "best", best)
    text = search_summary(study, "s.db", len(study.trials))
    heading = "hyperparameters of the best trial that changed during its training:\n"
    assert (heading in text) == is_changed
    assert not is_changed or heading + schedule_text(lineage(study, best)) in text
