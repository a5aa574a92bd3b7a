"""A study that continues with a space or a training that is written in another way, or extended."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mpi_opt.core.search_space.space import Categorical, Integer, Parameters, Real, Space
from mpi_opt.core.search_space.space_changes import extended, means_the_same
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import SpaceError
from mpi_opt.objectives.make_objective import is_same_training
from mpi_opt.store import Store
from mpi_opt.study.study import Study
from tests.in_process import in_process

BASE = {
    "lr": Real(0, 1),
    "layers": Integer(1, 8),
    "opt": Categorical(["a", "b"]),
    "m": Real(0, 1, when={"opt": "a"}),
}

SAME = {
    "prior": {"lr": Real(0, 1, prior="uniform")},
    "step of one": {"layers": Integer(1, 8, step=1)},
    "whole numbers": {"layers": Integer(1.0, 8.0), "lr": Real(0.0, 1.0)},
    "list of one value": {"m": Real(0, 1, when={"opt": ["a"]})},
    "empty condition": {"lr": Real(0, 1, when={})},
    "condition that is always met": {"lr": Real(0, 1, when={"opt": ["b", "a"]})},
    "order of categories": {"opt": Categorical(["b", "a"])},
    "default for earlier trials": {"lr": Real(0, 1, default=0.5)},
}

OTHER = {
    "range": {"lr": Real(0, 2)},
    "prior": {"layers": Integer(1, 8, prior="log-uniform")},
    "step": {"layers": Integer(1, 8, step=7)},
    "a range larger by one beyond 2^53": {"layers": Integer(1, 9)},
    "type": {"layers": Real(1, 8)},
    "condition": {"m": Real(0, 1, when={"opt": "b"})},
    "no condition": {"m": Real(0, 1)},
    "category of another type": {"opt": Categorical(["a", "b", 1])},
    "new hyperparameter": {"new": Real(0, 1)},
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_space_that_is_written_in_another_way_means_the_same(change):
    assert means_the_same(Space(BASE), Space(BASE | change))


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER)
def test_space_with_other_points_or_priors_does_not_mean_the_same(change):
    assert not means_the_same(Space(BASE), Space(BASE | change))


def test_range_with_a_step_ends_at_its_last_value():
    for kind in (Integer, Real):
        assert means_the_same(Space({"x": kind(1, 8, step=3)}), Space({"x": kind(1, 7, step=3)}))
        assert not means_the_same(Space({"x": kind(1, 8, step=3)}), Space({"x": kind(1, 10, step=3)}))
    assert not means_the_same(Space({"x": Categorical([1, 2])}), Space({"x": Categorical([1.0, 2.0])}))


TRIALS: list[Parameters] = [{"lr": 0.5, "layers": 8, "opt": "a", "m": 0.25}, {"lr": 1.0, "layers": 1, "opt": "b"}]

EXTENSIONS = {
    "wider range": ({"lr": Real(-1, 2)}, [{}, {}]),
    "more categories": ({"opt": Categorical(["c", "b", "a"])}, [{}, {}]),
    "new hyperparameter": ({"new": Integer(1, 5, default=2)}, [{"new": 2}, {"new": 2}]),
    "new hyperparameter of some trials": ({"new": Real(0, 1, when={"opt": "b"}, default=0)}, [{}, {"new": 0.0}]),
    "new hyperparameter of a new category": (
        {"opt": Categorical(["a", "b", "c"]), "new": Real(0, 1, when={"opt": "c"})},
        [{}, {}],
    ),
}


def records() -> list[TrialRecord]:
    return [TrialRecord(number, "complete", parameters) for number, parameters in enumerate(TRIALS)]


@pytest.mark.parametrize(("change", "additions"), EXTENSIONS.values(), ids=EXTENSIONS)
def test_trials_become_points_of_the_extended_space(change, additions):
    changed = extended(Space(BASE), Space(BASE | change), records())
    assert changed == {n: TRIALS[n] | added for n, added in enumerate(additions) if added}


REFUSED = {
    "narrow range": ({"lr": Real(0, 0.75)}, "trial 1 is not in the new space"),
    "removed category": ({"opt": Categorical(["a", "c"])}, "trial 1 is not in the new space"),
    "new hyperparameter without a default": ({"new": Real(0, 1)}, "no value of the new hyperparameter new"),
    "other type": ({"layers": Real(0, 10)}, "the type was integer, now real"),
    "other condition": ({"m": Real(0, 1)}, "trial 1 is not in the new space"),
}


@pytest.mark.parametrize(("change", "why"), REFUSED.values(), ids=REFUSED)
def test_extension_that_does_not_contain_all_trials_is_refused(change, why):
    with pytest.raises(SpaceError, match=why):
        extended(Space(BASE), Space(BASE | change), records())


def test_removed_hyperparameter_is_refused():
    with pytest.raises(SpaceError, match="lr is not in the space any more"):
        extended(Space(BASE), Space({name: BASE[name] for name in ("layers", "opt", "m")}), records())


def test_default_is_a_value_of_its_hyperparameter():
    assert Real(0, 1, default=1).default == 1.0
    for make in (lambda: Real(0, 1, default=2), lambda: Integer(1, 8, default=1.5)):
        with pytest.raises(SpaceError, match=r"the default .* is not one of its values"):
            make()


TRAINING = {
    "model": "model.py:build",
    "data": {"train": ["d.npz"], "features": "X", "labels": "y"},
    "loss": "mse",
    "optimizer": {"name": "sgd", "learning_rate": "$lr"},
}

POINTS = [({"lr": 0.1 * n}, {"lr": 0.1 * n, "momentum": 0.0}) for n in (1, 5, 7)]


def test_trainings_are_compared_by_their_meaning():
    optimizer = TRAINING["optimizer"]
    with_default = TRAINING | {
        "framework": "auto",
        "data": TRAINING["data"] | {"shuffle": True},
        "loss": {"name": "mse"},
    }
    assert is_same_training(TRAINING, with_default, POINTS)
    assert is_same_training(TRAINING, TRAINING | {"optimizer": optimizer | {"momentum": "$momentum"}}, POINTS)
    assert not is_same_training(TRAINING, TRAINING | {"optimizer": optimizer | {"momentum": 0.9}}, POINTS)
    assert not is_same_training(TRAINING, TRAINING | {"optimizer": optimizer | {"learning_rate": 0.5}}, POINTS)
    assert not is_same_training(TRAINING, TRAINING | {"loss": "no such key", "los": 1}, POINTS)


STUDY = {
    "study": "one",
    "store": "sqlite:///one.db",
    "objective": "objective.py:objective",
    "space": {"x": {"type": "integer", "low": 0, "high": 1}},
    "search": {"strategy": "grid", "trials": 2},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "objective.py").write_text("def objective(trial): return float(trial.parameters['x'])")
    assert search(tmp_path, STUDY).returncode == 0
    return tmp_path


def search(folder: Path, study: dict, **changes):
    (folder / "one.yaml").write_text(yaml.safe_dump(study | changes))
    return in_process("search", "one.yaml", cwd=folder)


WIDER = {"x": STUDY["space"]["x"] | {"low": -1, "high": 2}}
DEEPER = WIDER | {"y": {"type": "categorical", "categories": ["a", "b"], "default": "b"}}


def test_study_continues_with_a_default_written_out(folder):
    done = search(folder, STUDY, space={"x": STUDY["space"]["x"] | {"step": 1, "prior": "uniform"}})
    assert "is finished: 2 trials, none run" in done.stdout, done.stderr
    done = search(folder, STUDY, objective="./objective.py:objective", direction=["minimize"])
    assert "is finished: 2 trials, none run" in done.stdout, done.stderr


def test_other_space_is_refused_and_the_ways_to_go_on_are_named(folder):
    done = search(folder, STUDY, space=WIDER)
    assert done.returncode == 2
    assert "with another space: x." in done.stderr
    assert "x.low: 0, now -1" in done.stderr and "x.high: 1, now 2" in done.stderr
    assert "extend: true" in done.stderr and "transfer: {study: one}" in done.stderr
    done = search(folder, STUDY, space={"x": STUDY["space"]["x"] | {"low": -1, "high": 0.5, "type": "real"}})
    assert done.returncode == 2
    assert "extend" not in done.stderr and "transfer: {study: one}" in done.stderr


def test_study_continues_with_an_extended_space(folder):
    done = search(folder, STUDY, space=DEEPER, search={"strategy": "grid", "trials": 20, "extend": True})
    assert done.returncode == 0, done.stderr
    study = Study.open("one.db", "one")
    assert [trial.parameters for trial in study.trials[:2]] == [{"x": 0, "y": "b"}, {"x": 1, "y": "b"}]
    points = {(trial.parameters["x"], trial.parameters["y"]) for trial in study.trials}
    assert points == {(x, y) for x in (-1, 0, 1, 2) for y in "ab"} and len(study.trials) == 8
    assert [event.kind for event in study.events()].count("space_extended") == 1
    with Store.open("one.db", read_only=True) as store:
        assert store.sql("SELECT x, y FROM study_one WHERE number = 1")[1] == [(1, "b")]
    done = search(folder, STUDY, space=DEEPER, search={"strategy": "grid", "trials": 20})
    assert done.returncode == 0, "the study has the new space now"
    assert search(folder, STUDY).returncode == 2


def test_ask_continues_with_an_extended_space(folder):
    (folder / "one.yaml").write_text(yaml.safe_dump(STUDY | {"space": DEEPER, "search": {"trials": 3, "extend": True}}))
    done = in_process("ask", "one.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert set(Study.open("one.db", "one").trials[2].parameters) == {"x", "y"}
