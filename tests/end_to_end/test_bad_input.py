"""What a user can have wrong: exit status 2 before any training, one message with file, key and cure, no traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from mpi_opt.cli.main import BAD_INPUT, run
from tests.mpirun import mpirun
from tests.world import in_world

MODEL = """
def build(units=8, n_classes=3):
    import keras
    Dense = keras.layers.Dense
    return keras.Sequential([Dense(units, activation="relu"), Dense(n_classes, activation="softmax")])

def merit(result):
    return result.history["loss"][-1]
"""

GOOD: dict[str, Any] = {
    "study": "bad",
    "store": "sqlite:///bad.db",
    "figure_of_merit": "val_loss",
    "space": {
        "units": {"type": "integer", "low": 2, "high": 8},
        "rate": {"type": "real", "low": 1e-4, "high": 1e-1, "prior": "log-uniform"},
    },
    "search": {"strategy": "random", "trials": 2},
    "folds": 2,
    "training": {
        "model": "model.py:build",
        "data": {"train": ["data.h5"], "features": "X", "labels": "y"},
        "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"],
        "optimizer": {"name": "adam", "learning_rate": "$rate"},
        "epochs": 1,
    },
}

DROP = object()


def changed(path: str, value: Any) -> dict[str, Any]:
    """GOOD with the value at a dotted path changed, or dropped."""
    content = yaml.safe_load(yaml.safe_dump(GOOD))
    *parents, last = path.split(".")
    place = content
    for key in parents:
        place = place.setdefault(key, {})
    if value is DROP:
        del place[last]
    else:
        place[last] = value
    return content


CASES = [
    # what is changed, what the message must say
    ("serch", {}, ["serch", "did you mean search"]),
    ("search.trails", 5, ["search.trails", "did you mean trials"]),
    ("search.trials", "many", ["search.trials", "expected integer", "'many'"]),
    ("search.trials", 0, ["search.trials", "greater than or equal to 1"]),
    ("search.trials", 2.5, ["search.trials", "2.5"]),
    ("search.seed", -1, ["search.seed"]),
    ("search.target", "low", ["search.target", "'low'"]),
    ("search.time_limit", "soon", ["search.time_limit", "expected a duration"]),
    ("search.strategy", "bayesan", ["search.strategy", "did you mean bayesian"]),
    ("search.strategy", "mine.py:Strategy", ["mine.py", "no such file"]),
    ("search.options", {"populaton": 3}, ["populaton", "search.options"]),
    ("search", [], ["search", "expected a section of keys"]),
    ("direction", "up", ["direction", "minimize"]),
    ("folds", 0, ["folds"]),
    ("folds", "three", ["folds", "expected integer"]),
    ("folds", 1000, ["folds", "60 samples cannot be split into 1000 folds"]),
    ("blocks.size", 0, ["blocks.size", "at least 1"]),
    ("blocks.size", "large", ["blocks.size"]),
    ("blocks.sise", 2, ["blocks.sise", "did you mean size"]),
    ("trial.timeout", "-5", ["trial.timeout", "expected a duration"]),
    ("trial.timeout", 0, ["trial.timeout", "more than 0"]),
    ("trial.retries", -1, ["trial.retries"]),
    ("study", "", ["study"]),
    ("track", 5, ["track"]),
    ("space", DROP, ["space", "required"]),
    ("space", {}, ["space is empty", "name at least one"]),
    ("space.units", 5, ["space.units"]),
    ("space.units.type", "int", ["space.units.type", "real, integer, categorical"]),
    ("space.units.type", ["real", "integer"], ["space.units.type", "['real', 'integer']"]),
    ("space.units.type", DROP, ["space.units.type", "None"]),
    ("space.units.low", 9, ["space.units", "low must be less than high"]),
    ("space.units.low", 8, ["space.units", "low must be less than high"]),
    ("space.units.low", 2.5, ["space.units", "whole number"]),
    ("space.units.low", "two", ["space.units"]),
    ("space.units.low", DROP, ["space.units", "low missing"]),
    ("space.units.step", 100, ["space.units", "step must lie between"]),
    ("space.units.stop", 1, ["space.units", "'stop'", "did you mean step"]),
    ("space.units.when", {"rte": 1}, ["space.units.when", "'rte' is not a hyperparameter"]),
    ("space.units.when", {"rate": 5.0}, ["space.units.when", "never takes the value 5.0"]),
    ("space.units.when", {"units": 3}, ["go round in a circle"]),
    ("space.units.when", "rate", ["space.units.when"]),
    ("space.rate.low", 0, ["space.rate", "log-uniform", "low > 0"]),
    ("space.rate.high", float("inf"), ["space.rate", "finite"]),
    ("space.rate.prior", "log", ["space.rate", "prior must be one of"]),
    ("space.kind", {"type": "categorical", "categories": []}, ["space.kind", "categories is empty"]),
    ("space.kind", {"type": "categorical", "categories": "ab"}, ["space.kind", "must be a list"]),
    ("space.kind", {"type": "categorical", "categories": ["a", "a"]}, ["space.kind", "stands twice"]),
    ("space.kind", {"type": "categorical", "categories": [[1]]}, ["space.kind", "must be text, a number"]),
    ("space.2x", {"type": "real", "low": 0, "high": 1}, ["space.2x", "letters, digits"]),
    ("space.unused", {"type": "real", "low": 0, "high": 1}, ["space.unused", "used by nothing", "write $unused"]),
    ("figure_of_merit", "val_f1", ["figure_of_merit", "val_f1", "loss, accuracy"]),
    ("figure_of_merit", "model.py:merits", ["figure_of_merit", "merits", "did you mean merit"]),
    ("figure_of_merit", "nowhere.py:merit", ["figure_of_merit", "nowhere.py", "no such file"]),
    ("objective", "model.py:objective", ["objective", "model.py", "there is no function objective"]),
    ("objective", "something", ["objective"]),
    ("training", DROP, ["training", "missing"]),
    ("training.model", DROP, ["training", "model", "required"]),
    ("training.model", "model.py:bild", ["model.py", "did you mean build"]),
    ("training.model", "modle.py:build", ["modle.py", "did you mean model.py"]),
    ("training.model", "no.such.module:build", ["no.such.module"]),
    ("training.parameters", {"layers": 3}, ["layers"]),
    ("training.parameters", "units=3", ["training.parameters", "'units=3'"]),
    ("training.parameters", {1: 3}, ["training.parameters"]),
    ("training.batch_size", "$batch", ["$batch is not a hyperparameter", "known: rate, units"]),
    ("training.batch_size", 0, ["training.batch_size"]),
    ("training.batch_size", "big", ["training.batch_size", "'big'"]),
    ("training.epochs", 0, ["training.epochs"]),
    ("training.epoch", 5, ["training.epoch", "did you mean epochs"]),
    ("training.optimizer.name", "adm", ["training.optimizer", "did you mean adam"]),
    ("training.optimizer.momentun", 0.9, ["momentun"]),
    ("training.optimizer.learning_rate", -1, ["training.optimizer"]),
    ("training.algorithm", {"name": "allreduse"}, ["training.algorithm", "did you mean allreduce"]),
    ("training.early_stopping", {"metric": "val_lss"}, ["early_stopping", "val_lss"]),
    ("training.target", {"metric": "accuracy"}, ["training.target", "above and below"]),
    ("training.checkpoint", {"path": 5}, ["training.checkpoint.path", "expected a path, found 5"]),
    ("training.data", DROP, ["data"]),
    ("training.data.train", ["nope.h5"], ["data.train", "nope.h5", "no such file"]),
    ("training.data.train", ["*.parquet"], ["data.train", "*.parquet"]),
    ("training.data.train", ["model.py"], ["model.py"]),
    ("training.data.train", ["broken.h5"], ["broken.h5"]),
    ("training.data.train", ["empty.h5"], ["empty.h5"]),
    ("training.data.features", "x", ["data.h5", "x"]),
    ("training.data.labels", "labels", ["data.h5", "labels"]),
    ("training.data.labels", "short", ["data.h5", "60"]),
    ("training.data.fetures", "X", ["fetures", "did you mean features"]),
    ("training.data.validation_fraction", 1.5, ["validation_fraction"]),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"], file["y"] = rng.normal(size=(60, 4)).astype("f4"), np.repeat([0, 1, 2], 20)
        file["short"], file["far"] = np.zeros(50), np.repeat([0, 1, 7], 20)
    (tmp_path / "broken.h5").write_bytes((tmp_path / "data.h5").read_bytes()[:700])
    (tmp_path / "empty.h5").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("path", "value", "words"), CASES, ids=[f"{path}={value}"[:50] for path, value, _ in CASES])
def test_a_mistake_in_the_file_is_told_in_one_message(path, value, words, folder, capsys):
    (folder / "space.yaml").write_text(yaml.safe_dump(changed(path, value)))
    assert run(["search", "space.yaml"]) == BAD_INPUT
    _is_one_message(capsys.readouterr().err, words)
    assert not (folder / "bad.db").exists()


def test_without_a_mistake_there_is_a_plan(folder):
    (folder / "space.yaml").write_text(yaml.safe_dump(GOOD))
    assert run(["search", "space.yaml"]).space.keys() == GOOD["space"].keys()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("space: {x: {type: real", ["space.yaml", "not YAML", "line"]),
        ("- a\n- b\n", ["space.yaml", "expected `key: value` lines"]),
        ("", ["space.yaml", "expected `key: value` lines"]),
        ("study: a\nstudy: b\n", ["space.yaml", "stands twice"]),
        ("study: !!python/object/apply:os.system [ls]\n", ["space.yaml", "not YAML"]),
        ("study: \x00", ["space.yaml"]),
        ("study: !!timestamp x\n", ["space.yaml", "not YAML"]),
        (f"study: {'9' * 5000}\n", ["space.yaml", "not YAML"]),
        (f"study: {'[' * 3000 + ']' * 3000}\n", ["space.yaml", "not YAML"]),
    ],
)
def test_a_file_that_is_no_yaml_is_told_in_one_message(text, words, folder, capsys):
    (folder / "space.yaml").write_text(text)
    assert run(["search", "space.yaml"]) == BAD_INPUT
    _is_one_message(capsys.readouterr().err, words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["search"], ["SPACE.yaml"]),
        (["search", "nope.yaml"], ["nope.yaml"]),
        (["search", "space.yaml", "--trials", "0"], ["--trials"]),
        (["search", "space.yaml", "--trials", "x"], ["--trials"]),
        (["search", "space.yaml", "--block-size", "big"], ["--block-size", "a number or auto"]),
        (["search", "space.yaml", "--time-limit", "soon"], ["time_limit", "duration"]),
        (["search", "space.yaml", "--strategy", "magic"], ["magic"]),
        (["search", "space.yaml", "--fold", "2"], ["--fold"]),
        (["serch", "space.yaml"], ["serch"]),
        (["plan", "space.yaml"], ["-n"]),
        (["plan", "space.yaml", "-n", "0"], ["-n"]),
        (["check", "."], ["."]),
        (["results", "--store", "nope.db"], ["nope.db"]),
        (["results", "--store", "model.py"], ["model.py"]),
        (["best", "--study", "x", "--store", "broken.h5"], ["broken.h5"]),
    ],
)
def test_a_mistake_on_the_command_line_is_told_in_one_message(arguments, words, folder, capsys):
    (folder / "space.yaml").write_text(yaml.safe_dump(GOOD))
    assert run(arguments) == BAD_INPUT
    _is_one_message(capsys.readouterr().err, words)


@pytest.mark.mpi
@pytest.mark.parametrize("n_ranks", [1, 4])
@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("search.trials", "many", ["search.trials", "'many'"]),
        ("store", "sqlite:////no/such/folder/x.db", ["/no/such/folder"]),
        ("store", "nonsense://x", ["nonsense"]),
        ("track", "nonsense:x", ["nonsense", "tensorboard:PLACE"]),
    ],
)
def test_a_mistake_is_told_once_and_hangs_no_rank(n_ranks, path, value, words, folder):
    (folder / "space.yaml").write_text(yaml.safe_dump(changed(path, value)))
    done = in_world(n_ranks, "-m", "mpi_opt", "search", "space.yaml", cwd=folder, timeout=100)
    assert done.returncode == BAD_INPUT, done.stderr
    assert done.stderr.count("mpi-opt: ") == 1
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words)


@pytest.mark.mpi
@pytest.mark.parametrize("n_ranks", [1, 3])
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys\nsys.exit('usage: script FILE')", ["SystemExit: usage: script FILE", "__main__"]),
        ("raise OSError('no such detector')", ["OSError: no such detector"]),
        ("import no_such_package", ["no_such_package"]),
    ],
)
def test_a_file_of_the_users_that_cannot_be_imported_is_told_once_and_hangs_no_rank(n_ranks, code, words, folder):
    (folder / "script.py").write_text(f"{code}\n\ndef objective(trial):\n    return 1.0\n")
    content = {key: GOOD[key] for key in ("study", "store", "space")} | {"objective": "script.py:objective"}
    (folder / "space.yaml").write_text(yaml.safe_dump(content))
    done = mpirun(n_ranks, "-m", "mpi_opt", "search", "space.yaml", cwd=folder, timeout=60)
    assert done.returncode == BAD_INPUT, done.stderr
    assert done.stderr.count("mpi-opt: ") == 1
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in ["script.py", *words]), done.stderr


@pytest.mark.mpi
def test_a_folder_in_which_the_ranks_cannot_write_their_logs_is_told_at_the_start(folder):
    (folder / "space.yaml").write_text(yaml.safe_dump(GOOD))
    (folder / "bad.logs").touch()
    done = in_world(3, "-m", "mpi_opt", "search", "space.yaml", cwd=folder, timeout=60)
    assert done.returncode == BAD_INPUT, done.stderr
    _is_one_message(done.stderr.partition("mpi-opt: ")[2], ["bad.logs", "where you may write"])


def test_a_password_is_not_shown(folder, capsys):
    (folder / "space.yaml").write_text(yaml.safe_dump(GOOD | {"store": "postgres://ada:secret@host/db"}))
    assert run(["results", "--store", "postgres://ada:secret@host/db"]) == BAD_INPUT
    run(["check", "space.yaml"])
    shown = "".join(capsys.readouterr())
    assert "ada:***@host" in shown
    assert "secret" not in shown


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("training.data.labels", "far", ["label", "7"]),
        ("training.loss", "sparse_crossentropy", ["sparse_crossentropy"]),
        ("training.metrics", ["acuracy"], ["acuracy"]),
    ],
)
def test_what_only_a_framework_can_tell_is_told_before_the_first_trial(path, value, words, folder):
    pytest.importorskip("tensorflow")
    content = changed(path, value)
    content["figure_of_merit"] = "loss"
    (folder / "space.yaml").write_text(yaml.safe_dump(content))
    done = in_world(2, "-m", "mpi_opt", "search", "space.yaml", cwd=folder, timeout=200)
    assert done.returncode == BAD_INPUT, done.stderr
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.mpi
def test_a_mistake_that_is_shown_with_its_traceback_hangs_no_rank(folder):
    (folder / "space.yaml").write_text(yaml.safe_dump(changed("search.trialz", 3)))
    done = mpirun(2, "-m", "mpi_opt", "search", "space.yaml", "--debug", cwd=folder, timeout=30)
    assert done.returncode == BAD_INPUT, done.stderr
    assert "Traceback" in done.stderr
    assert "trialz" in done.stderr


@pytest.mark.mpi
def test_a_strategy_that_cannot_be_made_hangs_no_rank(folder):
    raising = "class Mine:\n    def __init__(self, *_, **__):\n        raise RuntimeError('not today')\n"
    (folder / "strategy.py").write_text(raising)
    (folder / "space.yaml").write_text(yaml.safe_dump(changed("search.strategy", "strategy.py:Mine")))
    done = in_world(2, "-m", "mpi_opt", "search", "space.yaml", cwd=folder, timeout=30)
    assert done.returncode in (1, BAD_INPUT)
    assert "not today" in done.stderr


def _is_one_message(err: str, words: list[str]) -> None:
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 12, err
    for word in words:
        assert word in err, err
