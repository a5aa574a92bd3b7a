"""The best trial as a training that can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpi_learn.settings.yaml_file import parsed
from mpi_opt.configuration.placeholders import filled_training
from mpi_opt.core.search_space.space import Real, Space
from mpi_opt.store import Store
from mpi_opt.study.study import Study
from mpi_opt.views.text.best_trial import trial_yaml
from tests.mpi_opt.store.made_up import finish, start

TRAINING = {
    "model": "net.py:build",
    "parameters": {"depth": 2},
    "optimizer": {"name": "$optimizer", "learning_rate": "$rate", "momentum": "$momentum"},
    "batch_size": "$batch",
}
POINT = {"units": 8, "optimizer": "adam", "rate": 0.1, "batch": 32}


@pytest.mark.parametrize(
    ("signature", "arguments"),
    [
        ("units, depth", {"units": 8, "depth": 2}),
        ("units, batch, depth=3", {"units": 8, "batch": 32, "depth": 2}),  # one may go to two places
        ("**options", {"units": 8, "depth": 2}),
        ("depth", {"depth": 2}),
    ],
)
def test_model_gets_the_hyperparameters_that_its_function_names(
    tmp_path: Path, signature: str, arguments: dict
) -> None:
    (tmp_path / "net.py").write_text(f"raise SystemExit('it is read, not run')\ndef build({signature}):\n    pass\n")
    content = filled_training(TRAINING, POINT, tmp_path, guess=True)
    assert content["parameters"] == arguments
    assert content["optimizer"] == {"name": "adam", "learning_rate": 0.1}
    assert content["batch_size"] == 32


def test_model_whose_file_is_gone_receives_the_hyperparameters_that_no_other_key_uses(tmp_path: Path) -> None:
    assert filled_training(TRAINING, POINT, tmp_path, guess=True)["parameters"] == {"units": 8, "depth": 2}


def test_files_that_a_training_elsewhere_reads_have_absolute_paths(tmp_path: Path) -> None:
    training = {
        "model": "m.py:build",
        "gan": {"generator_optimizer": "o.py:make"},
        "checkpoint": {"path": "c", "start_from": "pretrained"},
        "data": {"train": ["a.h5"], "features": "X"},
    }
    configuration = {"training": training, "directory": "/home/ada"}
    with Store.open(str(tmp_path / "a.db")) as store:
        space = Space({"x": Real(0, 1)})
        study = store.create_study("a", strategy="random", seed=1, configuration=configuration, space=space)
        store.start(study.id, [start(0)])
        store.finish(study.id, [finish(0)])
        read = Study.read(store, "a")
        found = parsed(trial_yaml(read.record, read.trials[:1], is_elsewhere=True))
    assert found["model"] == "/home/ada/m.py:build"
    assert found["gan"]["generator_optimizer"] == "/home/ada/o.py:make"
    assert found["checkpoint"] == {"path": "c", "start_from": "/home/ada/pretrained"}
    assert found["data"]["train"] == ["/home/ada/a.h5"]


def test_model_of_a_file_takes_nothing() -> None:
    content = filled_training({"model": "model.keras", "batch_size": "$batch"}, {"batch": 32}, None)
    assert content == {"model": "model.keras", "batch_size": 32}
