"""Valid and invalid content of a training.yaml, and the messages for the latter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.errors import ConfigurationError
from mpi_learn.optimizers.configuration import Adam
from mpi_learn.settings.validation import Section, validated
from mpi_learn.settings.yaml_file import dumped, parsed, read_yaml
from mpi_learn.training.configuration import TrainingConfiguration, read_configuration
from mpi_learn.training.sections import EarlyStopping
from mpi_learn.training.state import Stopping

GOOD = {"model": "m.py:f", "loss": "mse", "data": {"train": ["a.h5"], "features": "X", "labels": "y"}}

WRONG = {
    "unknown key names the nearest": ({"batchsize": 3}, "batchsize: unknown key", "did you mean batch_size"),
    "unknown nested key": ({"data": GOOD["data"] | {"shufle": True}}, "data.shufle: unknown key", "shuffle"),
    "key of Keras": ({"class_weight": {0: 1}}, "class_weight: unknown key", "write `data: {class_weight:"),
    "argument of fit": ({"initial_epoch": 3}, "initial_epoch: unknown key", "continues from the last checkpoint"),
    "key of Horovod": ({"backward_passes_per_step": 2}, "backward_passes_per_step: unknown key", "accumulate: N"),
    "key of a DataLoader": ({"data": GOOD["data"] | {"batch_size": 3}}, "data.batch_size: unknown key", "top level"),
    "argument of an optimizer": (
        {"optimizer": {"name": "adam", "betas": [0.5, 0.9]}}, "optimizer.betas: unknown key", "beta_1: X, beta_2: Y",
    ),
    "a truth value as an integer": ({"epochs": True}, "epochs: expected an integer, found True", "`epochs: 5`"),
    "a truth value as a number": (
        {"optimizer": {"name": "sgd", "momentum": False}}, "optimizer.momentum: expected a number", "`momentum: 0.5`",
    ),
    "a truth value of several types": ({"batch_size": True}, "batch_size: expected an integer", "`batch_size: 5`"),
    "a truth value in a list": ({"loss_weights": [True, 1.0]}, "loss_weights.0: expected a number", "found True"),
    "a truth value among parts": ({"pipeline": {"stages": 2, "split": [2, True]}}, "pipeline.split.1: expected", "`5`"),
    "norm of each array of Keras": (
        {"optimizer": {"name": "sgd", "clipnorm": 1.0}}, "optimizer.clipnorm: unknown key", "that of each array",
    ),
    "wrong type": ({"batch_size": "many"}, "batch_size: expected an integer", "'many'"),
    "float16 with a master": (
        {"precision": "mixed_float16", "algorithm": "downpour"}, "mixed_float16 does not support algorithm: downpour",
        "mixed_bfloat16",
    ),
    "float16 with compression": (
        {"precision": "mixed_float16", "algorithm": {"name": "allreduce", "compression": "int8"}},
        "mixed_float16 does not support compression: int8", "mixed_bfloat16",
    ),
    "too small": ({"batch_size": 0}, "batch_size", "1 or more, found 0"),
    "unknown optimizer": ({"optimizer": {"name": "adm"}}, "optimizer: there is no adm", "did you mean adam"),
    "option of another optimizer": (
        {"optimizer": {"name": "adam", "momentum": 0.9}}, "optimizer.momentum: unknown key", "beta_1",
    ),
    "unknown schedule": (
        {"optimizer": {"name": "sgd", "schedule": {"name": "cosin"}}}, "optimizer.schedule.name", "did you mean cosine",
    ),
    "unknown algorithm": ({"algorithm": "allreduc"}, "algorithm", "did you mean allreduce"),
    "metric that is not produced": (
        {"early_stopping": {"metric": "val_los"}}, "early_stopping.metric", "the training does not produce",
    ),
    "metric of which it is not known what is better": (
        {"metrics": ["m.py:significance"], "early_stopping": {"metric": "significance"}},
        "early_stopping.mode: it is not known whether a small or a large significance is better",
        "write `mode: min` or `mode: max`",
    ),
    "metric of a schedule": (
        {"optimizer": {"name": "sgd", "schedule": {"name": "plateau", "metric": "los"}}}, "optimizer.schedule.metric",
        "did you mean loss",
    ),
    "metric of a schedule of which it is not known what is better": (
        {
            "metrics": ["m.py:significance"],
            "optimizer": {"name": "sgd", "schedule": {"name": "plateau", "metric": "significance"}},
        },
        "optimizer.schedule.mode: it is not known whether a small or a large significance is better",
        "write `mode: min` or `mode: max`",
    ),
    "metric of the schedule of one of two models": (
        {
            "model": "m.py:both", "metrics": [],
            "gan": {"generator_optimizer": {"name": "adam", "schedule": {"name": "plateau", "metric": "los"}}},
        }, "gan.generator_optimizer.schedule.metric", "did you mean loss",
    ),
    "metric of the schedule of workers": (
        {
            "algorithm": {
                "name": "downpour", "sync_every": 2,
                "worker_optimizer": {"name": "sgd", "schedule": {"name": "plateau", "metric": "los"}},
            },
        }, "algorithm.worker_optimizer.schedule.metric", "did you mean loss",
    ),
    "validation metric without validation data": (
        {"target": {"metric": "val_loss", "below": 1}}, "target.metric", "→ give data.validation",
    ),
    "metric that is not among the metrics": (
        {"metrics": ["mae"], "target": {"metric": "auc", "above": 1}}, "target.metric: the training does not produce",
        "it produces: loss, mae; or add auc to `metrics:`",
    ),
    "validation metric without validation data that is not among the metrics": (
        {"target": {"metric": "val_auc", "above": 1}}, "target.metric",
        "it produces: loss; or add auc to `metrics:`; give data.validation or data.validation_fraction for val_",
    ),
    "validation metric without validation data or a loss": (
        {"loss": None, "early_stopping": {"patience": 3}}, "early_stopping.metric", "give data.validation",
    ),
    "an empty list of features": (
        {"data": GOOD["data"] | {"features": []}}, "data.features: an empty list names no array", "at least one",
    ),
    "an empty list of columns": (
        {"data": GOOD["data"] | {"features": [["a"], []]}}, "data.features: an empty list names no array", "",
    ),
    "an empty mapping of labels": ({"data": GOOD["data"] | {"labels": {}}}, "data.labels: an empty list", ""),
    "dealt samples without a master": (
        {"data": GOOD["data"] | {"share": "dynamic"}}, "data.share: dynamic needs a master", "downpour",
    ),
    "a master without a model for the optimizer of one of two models": (
        {
            "model": "m.py:both", "metrics": [], "algorithm": "downpour",
            "gan": {"discriminator_optimizer": "nadam"},
        }, "", "downpour updates the weights on a master, which has no model for nadam",
    ),
    "exact steps below zero": (
        {"algorithm": {"name": "allreduce", "compression": "power-sgd", "exact_steps": -1}}, "algorithm.exact_steps",
        "0 or more, found -1",
    ),
    "factor of a loss that is not finite": (
        {"gan": {"loss_weights": [float("inf")]}}, "gan.loss_weights.0", "expected a finite number",
    ),
    "misspelt name of the loss of an output": (
        {"loss": {"energy": {"nam": "huber"}}}, "loss.energy.name: this key is required\n",
        "→ write `name` instead of `nam`",
    ),
    "invalid loss of an output whose name is similar to `name`": (
        {"loss": {"energy": "mse", "time": ["mae"]}}, "loss.time: expected a text", "NAME",
    ),
    "invalid loss of an output with such a name and a section": (
        {"loss": {"game": {"nam": "huber"}}}, "loss.game.name: this key is required", "write `name` instead of `nam`",
    ),
    "misspelt name of a loss with arguments": (
        {"loss": {"nam": "huber", "delta": 2.0}}, "loss.name: this key is required\n", "write `name` instead of `nam`",
    ),
    "misspelt name of a callback": (
        {"callbacks": {"nam": "CSVLogger"}}, "callbacks.name: this key is required", "write `name` instead of `nam`",
    ),
    "misspelt name of the metric of an output": (
        {"metrics": {"energy": {"nam": "mae"}}}, "metrics.energy.name: this key", "write `name` instead of `nam`",
    ),
    "misspelt name of an optimizer": (
        {"optimizer": {"nam": "sgd"}}, "optimizer: expected a name, found", "write `name` instead of `nam`",
    ),
    "a number in place of a loss": (
        {"loss": 3}, "loss: expected a text, a section of keys or a list, found 3", "write, for example, `loss: NAME`",
    ),
    "a number in place of a callback": (
        {"callbacks": ["m.py:f", 3]}, "callbacks.1: expected a text or a section of keys, found 3",
        "write, for example, `NAME`",
    ),
    "a class that is not a number": (
        {"data": GOOD["data"] | {"class_weight": {"a": 1}}},
        "data.class_weight.a: expected an integer as the key, found 'a'\n", "→ write, for example, `0: …`",
    ),
    "a class and its weight that are not numbers": (
        {"data": GOOD["data"] | {"class_weight": {"signal": "5,0"}}}, "data.class_weight.signal: expected an integer",
        "write, for example, `0: …`",
    ),
    "a number in place of features": (
        {"data": GOOD["data"] | {"features": 3}}, "data.features: expected a text, a section of keys or a list, found",
        "write, for example, `features: NAME`",
    ),
    "a number in place of a feature": (
        {"data": GOOD["data"] | {"features": {"energy": 3}}},
        "data.features.energy: expected a text or a list, found 3\n", "→ write, for example, `energy: NAME`",
    ),
    "unknown dtype of one array": (
        {"data": GOOD["data"] | {"dtype": {"X": "floot32"}}}, "data.dtype.X: there is no 'floot32'", "mean float32?",
    ),
    "two bounds": ({"target": {"metric": "loss", "below": 1, "above": 2}}, "target", "exactly one of above and below"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "place", "said"), WRONG.values(), ids=WRONG)
def test_wrong_configuration_is_one_error_with_key_and_cure(change, place, said):
    with pytest.raises(ConfigurationError) as raised:
        read_configuration(GOOD | change, where="t.yaml")
    assert str(raised.value).startswith(f"t.yaml: {place}")
    assert said in str(raised.value)
    assert "also invalid" not in str(raised.value)  # such as an alternative that was not meant


def test_missing_key_is_named():
    with pytest.raises(ConfigurationError, match=r"training\.model: this key is required"):
        read_configuration({"loss": "mse"}, where="space.yaml: training")


def test_paths_are_taken_from_the_files_folder(tmp_path):
    (tmp_path / "t.yaml").write_text(
        "model: m.py:f\nloss: l.py:g\nmetrics: [mae, m.py:h]\ndata: {train: [a.h5], features: X, labels: y}\n"
        "checkpoint: {path: c}\n"
    )
    read = read_configuration(tmp_path / "t.yaml")
    assert (read.model, read.loss) == (f"{tmp_path}/m.py:f", f"{tmp_path}/l.py:g")
    assert read.metrics == ["mae", f"{tmp_path}/m.py:h"]
    assert read.checkpoint.path == tmp_path / "c"
    assert str(tmp_path) in str(read.data.train)


def test_paths_may_begin_in_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    checkpoint = {"path": "~/c", "start_from": "~/s"}
    data = GOOD["data"] | {"train": ["~/a.h5"], "cache": "~/k"}
    read = read_configuration(GOOD | {"data": data, "checkpoint": checkpoint, "trace": "~/t"})
    assert (read.checkpoint.path, read.checkpoint.start_from, read.trace) == tuple(tmp_path / name for name in "cst")
    assert (read.data.train, read.data.cache) == ([f"{tmp_path}/a.h5"], f"{tmp_path}/k")


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "~nosuchuser/m.py:f"},
        {"trace": "~nosuchuser/t"},
        {"checkpoint": {"path": "~nosuchuser/c"}},
        {"checkpoint": {"path": "c", "start_from": "~nosuchuser/s"}},
        {"data": GOOD["data"] | {"train": "~nosuchuser/a.h5"}},
        {"data": GOOD["data"] | {"cache": "~nosuchuser/k"}},
    ],
)
def test_home_directory_of_an_unknown_user_is_reported(changes):
    with pytest.raises(ConfigurationError, match=r"~nosuchuser/.*: there is no home directory ~nosuchuser"):
        read_configuration(GOOD | changes)


def test_numbers_like_1e_4_are_numbers(tmp_path):
    (tmp_path / "t.yaml").write_text("model: m.py:f\nloss: mse\nparameters: {rate: 1e-4, n: 3, name: e5}\n")
    assert read_configuration(tmp_path / "t.yaml").parameters == {"rate": 1e-4, "n": 3, "name": "e5"}


def test_yes_no_and_times_are_text_as_in_yaml_1_2(tmp_path):
    (tmp_path / "t.yaml").write_text(
        "model: m.py:f\nloss: mse\nparameters: {kinds: [yes, no, on, off], time: 1:30:00, code: 010}\n"
        "data: {train: a.h5, features: X, labels: y, shuffle: no}\nsync_batchnorm: yes\n"
    )
    read = read_configuration(tmp_path / "t.yaml")
    assert read.parameters == {"kinds": ["yes", "no", "on", "off"], "time": "1:30:00", "code": 10}
    assert (read.data.shuffle, read.sync_batchnorm) == (False, True)


def test_numbers_of_numpy_become_those_of_python():
    parameters = {"units": np.int64(64), "rates": [np.float32(0.5), {"on": np.bool_(True)}]}
    read = read_configuration(GOOD | {"parameters": parameters})
    assert json.loads(read.model_dump_json())["parameters"] == {"units": 64, "rates": [0.5, {"on": True}]}


def test_written_values_are_read_back():
    content = {"b": [1, 1e-4, None, True], "a": {"x": "1e-4", "no": "no", "ü": "é: ü", "lines": "a\nb"}, "path": "~/x"}
    assert parsed(dumped(content)) == content
    assert list(parsed(dumped(content))) == list(content)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: [", r"line 1, column \d+: expected the node content"),
        ("a: 1\nb: 2\na: 2", r'line 3, column 1: found duplicate key "a".*\n.*keep one of them'),
        ("a:\n\tb: 1", "line 2, column 1: .*cannot start any token"),
        ("a: 2020-13-45", "month must be in 1..12"),
        ('a: !!int ""', "this is not YAML: string index out of range"),
        ("a: !!bool maybe", "this is not YAML: 'maybe'"),
        ("? [a, {b: c}]\n: 1", "this is not YAML: unhashable type"),
        ("- a", "expected `key: value` lines"),
        ("", "expected `key: value` lines, found None"),
    ],
)
def test_file_that_is_no_mapping_is_refused_with_file_and_line(tmp_path, text, said):
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=rf"t\.yaml: .*{said}"):
        read_configuration(tmp_path / "t.yaml")


def test_missing_file_names_the_nearest(tmp_path):
    (tmp_path / "training.yaml").write_text("")
    with pytest.raises(ConfigurationError, match=r"did you mean training\.yaml"):
        read_configuration(tmp_path / "trainin.yaml")


def test_a_name_alone_is_a_section_with_default_values():
    read = read_configuration(GOOD | {"optimizer": "sgd", "algorithm": "allreduce", "metrics": "accuracy"})
    assert (read.optimizer.learning_rate, read.algorithm.name, read.metrics) == (0.01, "allreduce", ["accuracy"])


def test_metric_names_are_known_without_a_framework():
    data = GOOD["data"] | {"validation_fraction": 0.2}
    read = read_configuration(GOOD | {"metrics": ["accuracy", "m.py:mine"], "data": data})
    assert read.metric_names() == ["loss", "accuracy", "mine", "val_loss", "val_accuracy", "val_mine"]


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"metrics": ["a.py:f1", "b.py:f1"], "weighted_metrics": ["c.py:f1"]}, ["f1", "f1_1", "weighted_f1"]),
        ({"metrics": {"out": ["mae"]}}, ["out_mae", "mae"]),
        ({"metrics": {"out": ["a.py:f", "b.py:f"]}}, ["out_f", "out_f_1", "f", "f_1"]),
        ({"metrics": {"energy": ["mae"], "angle": ["mae"]}}, ["energy_mae", "angle_mae"]),
    ],
)
def test_metric_names_are_those_of_the_history(metrics, expected):
    """The metrics of a single output have its name as a prefix only if the model returns a mapping."""
    assert read_configuration(GOOD | metrics).metric_names() == ["loss", *expected]


def test_a_dumped_configuration_reads_back_the_same():
    read = read_configuration(GOOD | {"optimizer": {"name": "lamb"}, "checkpoint": {"path": "c"}})
    assert read_configuration(read.model_dump(mode="json")) == read


def test_reading_a_configuration_loads_no_framework_and_no_mpi():
    code = (
        "import sys; from mpi_learn import read_configuration; read_configuration({'model': 'a.py:f', 'loss': 'mse'});"
        "print([name for name in ('tensorflow', 'keras', 'torch', 'numba', 'mpi4py.MPI') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path.cwd(), check=True)
    assert done.stdout.strip() == "[]"


SMALLER = ["val_loss", "mse", "val_mean_absolute_error", "MeanSquaredLogarithmicError", "kl_divergence", "poisson",
           "val_perplexity", "log_cosh", "BinaryCrossentropy", "FalsePositives", "discriminator_loss", "val_rmse",
           "SquaredHinge", "cross_entropy", "KLDivergence", "loss1", "val_logloss"]  # fmt: skip
LARGER = ["accuracy", "val_acc", "sparse_top_k_categorical_accuracy", "AUC", "val_precision", "Recall", "F1Score",
          "R2Score", "MeanIoU", "cosine_similarity", "SensitivityAtSpecificity", "true_positives",
          "f1", "val_r2", "auc", "val_auc_1", "acc5", "f1score", "FBetaScore", "iou", "kind_acc",
          "rocauc", "val_prauc"]  # fmt: skip


WITHOUT_WORDS = ["err2", "diff1", "accumulated_bias", "val_background_acceptance", "various", "terrors", "glossary"]
"""They contain r2, f1, acc, iou, error and loss, but not as words."""


@pytest.mark.parametrize(("metric", "direction"), [(m, "min") for m in SMALLER] + [(m, "max") for m in LARGER])
def test_the_direction_of_known_metrics_follows_from_their_names(metric, direction):
    assert EarlyStopping(metric=metric).direction == direction
    assert EarlyStopping(metric=metric, mode="max").direction == "max"


@pytest.mark.parametrize("metric", ["significance", "val_gap", "seconds", *WITHOUT_WORDS])
def test_an_unknown_metric_needs_an_explicit_direction(metric):
    assert EarlyStopping(metric=metric).direction is None
    assert EarlyStopping(metric=metric, mode="min").direction == "min"


@pytest.mark.parametrize(("mode", "best"), [("min", 1), ("max", 2)])
def test_early_stopping_keeps_the_weights_of_the_best_epoch(mode, best):
    stopping = Stopping(EarlyStopping(metric="val_gap", mode=mode, patience=9), None)
    for epoch, value in enumerate([3.0, 1.0, 5.0, 4.0, float("nan")]):
        stopping.remember(epoch, {"val_gap": value}, np.full(2, float(epoch)), np.zeros(1))
    assert stopping.best_epoch == best
    assert stopping.best_weights.tolist() == [best, best]


def test_no_known_key_is_explained_as_one_of_another_program():
    for section in (TrainingConfiguration, DataConfiguration, Adam):
        assert not set(section.equivalents) & set(section.model_fields)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_yaml_is_read_in_the_encodings_of_yaml(tmp_path, encoding):
    (tmp_path / "a.yaml").write_bytes("name: Müller µ\n".encode(encoding))
    assert read_yaml(tmp_path / "a.yaml") == {"name": "Müller µ"}


def test_yaml_in_another_encoding_is_refused_with_the_line(tmp_path):
    (tmp_path / "a.yaml").write_bytes("study: a\nname: Müller\n".encode("latin-1"))
    with pytest.raises(ConfigurationError, match="the file is not in UTF-8: line 2 has the byte 0xfc") as caught:
        read_yaml(tmp_path / "a.yaml")
    assert caught.value.where == str(tmp_path / "a.yaml")
    assert "save the file in UTF-8" in caught.value.cure


class Weighted(Section):
    weights: dict[int, float | Literal["equal"]]


def test_an_invalid_name_of_a_key_is_explained_before_its_value():
    """Both are invalid at the same place: the type of the value is no type of the name."""

    with pytest.raises(ConfigurationError) as error:
        validated(Weighted, {"weights": {"a": "b"}}, "a.yaml")
    assert error.value.problem == "expected an integer as the key, found 'a'"
    with pytest.raises(ConfigurationError) as error:
        validated(Weighted, {"weights": {"1": "b"}}, "a.yaml")
    assert error.value.problem.startswith("expected a number") and "equal" in error.value.cure
