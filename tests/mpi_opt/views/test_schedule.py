from __future__ import annotations

import re

import pytest

import mpi_opt
from mpi_opt.core.space import Integer, Real
from mpi_opt.study.study import Study
from mpi_opt.views.text.best_trial import trial_yaml
from mpi_opt.views.text.schedule import lineage, schedule, schedule_text

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


def most_changed(study):
    return max((one for one in study.trials if one.budget == 6), key=lambda one: len(schedule(study, one)))


def test_lineage_is_the_chain_of_trials_that_a_trial_continues(study):
    chain = lineage(study, study.trials[-1])
    assert chain[0].resume_from is None
    assert [one.number for one in chain[:-1]] == [one.resume_from for one in chain[1:]]
    assert [one.budget for one in chain] == list(range(1, len(chain) + 1))


def test_schedule_lists_the_epochs_of_each_value(study):
    final = most_changed(study)
    rows, chain = schedule(study, final), lineage(study, final)
    assert "units" not in rows[0]
    stretches = [tuple(map(int, re.fullmatch(r"(\d+) to (\d+)", row["epochs"]).groups())) for row in rows]
    assert stretches[0][0] == 0
    assert stretches[-1][1] == 6
    assert [end for _, end in stretches[:-1]] == [begin for begin, _ in stretches[1:]]
    held = [row["rate"] for row, (begin, end) in zip(rows, stretches, strict=True) for _ in range(begin, end)]
    assert held == [one.parameters["rate"] for one in chain]
    assert 1 < len(rows) < 7


def test_constant_hyperparameters_are_not_in_the_schedule(study):
    assert schedule_text(study, study.trials[0]) == ""


def test_best_trial_says_that_its_hyperparameters_changed(study):
    final = most_changed(study)
    text = trial_yaml(study, final)
    assert "# its hyperparameters changed during the training" in text
    assert all(f"{row['rate']:.4g}"[:5] in text for row in schedule(study, final))
