"""Searches whose best points run again at the end."""

import os
import random
import re
import signal
import sys

import pytest

from mpi_opt import Categorical, Integer, Real, Study, search
from mpi_opt.configuration.read_study import read_study
from mpi_opt.core.search_space.space import Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.strategies import make_strategy
from mpi_opt.study.reading import read_record
from tests.mpi_opt.views.test_commands import program

SPACE = {"x": Real(0, 1, default=0.9), "n": Integer(1, 5)}


def noisy(trial):
    return (trial.parameters["x"] - 0.3) ** 2 + 0.02 * random.Random(trial.seed).gauss(0, 1)


def searched(store, objective=noisy, **options):
    given = {"trials": 15, "strategy": "random", "confirm": 3, "progress": False} | options
    return search(objective, space=SPACE, study="s", store=store, **given)


def test_the_best_points_and_the_default_run_again_with_new_seeds(tmp_path):
    seeds = []

    def remembering(trial):
        seeds.append(trial.seed)
        return noisy(trial)

    store = f"sqlite:///{tmp_path}/s.db"
    study = searched(store, remembering)
    points = study.confirmation.points
    assert [len(point.figures) for point in points] == [3, 3, 3, 3]
    assert [point.is_default for point in points] == [False, False, False, True]
    assert points[-1].parameters == {"x": 0.9, "n": 3}
    assert len(seeds) == len(set(seeds)) == 15 + 12
    assert study.best == study.confirmation.winner.trial in study.trials
    assert len(study.trials) == 15 and study.is_finished
    assert study.confirmation.probability > 0.99
    runs = Study.open(store, study.confirmation.study).trials
    assert sorted(runs[0].figures_of_merit) == ["figure_of_merit"] and len(runs) == 12
    assert Study.open(store, "s").confirmation == study.confirmation


@pytest.mark.parametrize("is_terminal", [True, False])
def test_best_shows_the_new_runs_once_at_a_terminal(tmp_path, monkeypatch, capsys, is_terminal):
    searched(f"sqlite:///{tmp_path}/s.db", trials=3, confirm=1)
    capsys.readouterr()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert program(["best", "--store", f"{tmp_path}/s.db"]) == 0
    shown = capsys.readouterr()
    assert "# new runs of the best points" in shown.out
    assert ("mpi-opt: new runs of the best points" in shown.err) == (not is_terminal)  # as in `best > train.yaml`


def test_folds_of_new_runs_are_those_of_the_search(tmp_path):
    splits = set()

    def objective(trial):
        splits.add((trial.fold, trial.split(20)[1].tobytes()))
        return trial.parameters["x"]

    study = searched(f"sqlite:///{tmp_path}/s.db", objective, folds=2, trials=3, confirm=1)
    assert len(splits) == 2
    assert all(len(point.figures) == 1 for point in study.confirmation.points)


def test_a_finished_study_is_confirmed_once_and_an_interrupted_confirmation_continues(tmp_path):
    store, runs = f"sqlite:///{tmp_path}/s.db", []

    def interrupted(trial):
        runs.append(trial.number)
        if len(runs) == 18:
            os.kill(os.getpid(), signal.SIGTERM)
        return noisy(trial)

    with pytest.raises(SystemExit):
        searched(store, interrupted)
    assert 18 <= len(runs) < 27
    study = searched(store, interrupted)
    assert study.is_finished and [len(point.figures) for point in study.confirmation.points] == [3, 3, 3, 3]
    n = len(runs)
    assert searched(store, interrupted).is_finished
    assert len(runs) == n


def test_more_trials_are_confirmed_anew_and_keep_their_numbers(tmp_path):
    store = f"sqlite:///{tmp_path}/s.db"
    searched(store)
    study = searched(store, trials=18)
    assert [one.number for one in study.trials] == list(range(18))
    assert study.confirmation.study == "s.confirm18"
    with Store.open(store, read_only=True) as opened:
        assert read_record(opened, None).name == "s"


def test_a_store_in_memory_has_a_confirmation_too():
    assert searched("sqlite://").confirmation.probability is not None


def test_new_runs_that_fail_lose_no_trial(tmp_path):
    def fails_later(trial):
        if trial.number >= 15:
            raise ValueError("no device")
        return noisy(trial)

    study = searched(f"sqlite:///{tmp_path}/s.db", fails_later)
    assert len(study.trials) == 15 and study.best is not None and study.confirmation is None


def test_new_runs_have_the_budget_of_the_longest_trials(tmp_path):
    budgets = []

    def objective(trial):
        budgets.append(trial.budget)
        return noisy(trial) + 1 / trial.budget

    store = f"sqlite:///{tmp_path}/s.db"
    study = searched(store, objective, strategy="halving", options={"max_budget": 9, "min_budget": 3})
    runs = Study.open(store, study.confirmation.study).trials
    assert {one.budget for one in runs} == {9} == set(budgets[-len(runs) :])
    assert study.confirmation.winner.trial.budget == 9


def test_new_runs_that_have_all_failed_are_not_repeated(tmp_path, capsys):
    runs = []

    def fails_later(trial):
        runs.append(trial.number)
        if trial.number >= 15:
            raise ValueError("no device")
        return noisy(trial)

    store = f"sqlite:///{tmp_path}/s.db"
    assert not searched(store, fails_later, progress=True).is_finished  # after ten failures
    assert re.search(r"(?s)the best points could not run again: .*ValueError: no device", capsys.readouterr().err)
    assert len(runs) == 15 + 10
    assert searched(store, fails_later).is_finished
    assert program(["results", "--finished", "--study", "s", "--store", f"{tmp_path}/s.db"]) == 0
    assert searched(store, fails_later).is_finished
    assert len(runs) == 15 + 12


def test_a_default_that_violates_the_constraints_does_not_run(tmp_path, capsys):
    seen = []

    def objective(trial):
        seen.append(trial.parameters["x"])
        return noisy(trial)

    options = {"constraints": ["x < 0.8"]}
    study = searched(f"sqlite:///{tmp_path}/s.db", objective, confirm=2, options=options, progress=True)
    assert len(seen) == 15 + 3 * 2 and max(seen) < 0.8
    assert not any(point.is_default for point in study.confirmation.points)
    assert study.confirmation.probability is None
    assert "without the default configuration, which violates the constraints" in capsys.readouterr().err


def test_the_default_can_be_the_best_point(tmp_path):
    study = search(
        lambda trial: 0.0 if trial.parameters["kind"] == "a" else 1.0,
        space={"kind": Categorical(["a", "b"], default="a")},
        trials=2, strategy="grid", study="s", store=f"sqlite:///{tmp_path}/s.db", confirm=2, progress=False,
    )  # fmt: skip
    assert study.confirmation.winner.is_default and study.confirmation.probability is None


def test_commands_show_both_numbers_and_the_probability(tmp_path, capsys):
    path = f"{tmp_path}/s.db"
    study = searched(f"sqlite:///{path}")
    number = study.best.number
    for command in (["results"], ["best"]):
        assert program([*command, "--study", "s", "--store", path]) == 0
        printed = capsys.readouterr().out
        assert f"{study.confirmation.winner.mean:.6g}" in printed
        assert f"trial {number} is better than the default configuration with a probability of" in printed
    assert f"# study s, trial {number}:" in printed


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"direction": ["minimize", "minimize"]}, "several figures of merit"),
        ({"objective": "external"}, "another program"),
        ({"search": {"strategy": "population", "confirm": 2}}, "population"),
    ],
    ids=["several", "external", "population"],
)
def test_a_search_that_cannot_be_confirmed_is_refused(changed, why):
    space = {"x": {"type": "real", "low": 0, "high": 1}}
    content = {"objective": "a.py:f", "space": space, "search": {"confirm": 2}} | changed
    with pytest.raises(ConfigurationError, match=rf"(?s)search\.confirm.*{why}"):
        read_study(content)


def test_repeated_points_take_turns_also_after_a_resume():
    space, options = Space({"x": Real(0, 1)}), {"points": [{"x": 0.1}, {"x": 0.7}], "times": 2, "first": 50}
    strategy = make_strategy("confirmation", space, options=options)
    first = strategy.ask(3)
    assert [(one.number, one.parameters["x"]) for one in first] == [(50, 0.1), (51, 0.7), (52, 0.1)]
    resumed = make_strategy("confirmation", space, options=options)
    resumed.resume([(first[0], 1.0), (first[1], Failed("no"))], [first[2]])
    assert resumed.ask(5) == [Proposal(53, {"x": 0.7})]
    assert resumed.finished and resumed.ask(1) == []
