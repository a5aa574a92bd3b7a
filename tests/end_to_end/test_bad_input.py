"""Invalid input: exit status 2 before any training, and one message with file, key and cure, without traceback."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from mpi_learn.errors import UserError
from mpi_learn.job.exit_status import INVALID
from mpi_opt.cli.main import _guarded, main, run
from tests.optional_packages import needs, with_marks
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


class Drop:
    def __repr__(self):
        return "missing"


DROP = Drop()


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
    # the change; the parts of the message: place and problem, cure
    ("serch", {}, "space.yaml: serch: unknown key", "did you mean search? known keys: study"),
    ("optimizer", {"name": "sgd"}, "space.yaml: optimizer: unknown key", "move it under `training:`"),
    ("trials", 5, "space.yaml: trials: unknown key", "move it under `search:`"),
    ("timeout", "5m", "space.yaml: timeout: unknown key", "move it under `trial:`"),
    ("size", 2, "space.yaml: size: unknown key", "move it under `blocks:`"),
    ("seed", 3, "space.yaml: seed: unknown key", "move it under `training:` or `search:`"),
    ("search.trails", 5, "space.yaml: search.trails: unknown key", "did you mean trials? known keys: strategy"),
    (
        "search.trials",
        "many",
        "space.yaml: search.trials: expected an integer, found 'many'",
        "write, for example, `trials: 5`",
    ),
    (
        "search.trials",
        0,
        "space.yaml: search.trials: expected 1 or more, found 0",
        "write a value of 1 or more",
    ),
    (
        "search.trials",
        2.5,
        "space.yaml: search.trials: expected an integer, found 2.5",
        "write, for example, `trials: 5`",
    ),
    (
        "search.seed",
        -1,
        "space.yaml: search.seed: expected 0 or more, found -1",
        "write a value of 0 or more",
    ),
    (
        "search.target",
        "low",
        "space.yaml: search.target: expected a number or a list, found 'low'",
        "write, for example, `target: 0.5`",
    ),
    (
        "search.time_limit",
        "soon",
        "space.yaml: search.time_limit: expected a duration such as 90s, 30m or 2h, not 'soon'",
        "write a number and d, h, m or s",
    ),
    (
        "search.strategy",
        "bayesan",
        "search.strategy: there is no strategy 'bayesan'",
        "did you mean bayesian? known: auto, bayesian, scikit-optimize, evolutionary,",
    ),
    ("search.strategy", "mine.py:Strategy", "mine.py: there is no such file", "did you mean model.py?"),
    ("search.options", {"populaton": 3}, "search.options.populaton: unknown key", "known keys: initial, constraints"),
    ("search", [], "space.yaml: search: expected a section of keys, found []", "write `search: {key: value, …}`"),
    ("direction", "up", "space.yaml: direction: there is no 'up'", "known: minimize, maximize"),
    (
        "folds",
        0,
        "space.yaml: folds: expected 1 or more, found 0",
        "write a value of 1 or more",
    ),
    ("folds", "three", "space.yaml: folds: expected an integer, found 'three'", "write, for example, `folds: 5`"),
    (
        "folds",
        1000,
        "space.yaml: folds: 60 samples cannot be split into 1000 folds",
        "write folds: 5, or give more samples",
    ),
    ("blocks.size", 0, "space.yaml: blocks.size: expected 1 or more, found 0", "write a value of 1 or more, or auto"),
    (
        "blocks.size",
        "large",
        "space.yaml: blocks.size: expected an integer, found 'large'",
        "write, for example, `size: 5`, or auto",
    ),
    ("blocks.sise", 2, "space.yaml: blocks.sise: unknown key", "did you mean size? known keys: size, elastic, spares"),
    (
        "trial.timeout",
        "-5",
        "space.yaml: trial.timeout: expected a duration such as 90s, 30m or 2h, not '-5'",
        "write a number and d, h, m or s",
    ),
    (
        "trial.timeout",
        0,
        "space.yaml: trial.timeout: must be more than 0",
        "write a duration such as 90s, 30m or 2h, or remove the key",
    ),
    (
        "trial.retries",
        -1,
        "space.yaml: trial.retries: expected 0 or more, found -1",
        "write a value of 0 or more",
    ),
    ("study", "", "space.yaml: study: expected a text that is not empty, found ''", "write `study: NAME`"),
    ("study", "é" * 256, "space.yaml: study: expected at most 255 characters, found 256", "write a shorter name"),
    ("track", 5, "space.yaml: track: expected a text, found 5", "write, for example, `track: NAME`"),
    ("space", DROP, "space.yaml: space: this key is required", "add `space: …`"),
    ("space", {}, "space.yaml: space: the search space is empty", "name at least one hyperparameter"),
    (
        "space.units",
        5,
        "space.yaml: space.units: expected a section of keys, found 5",
        "write `units: {key: value, …}`",
    ),
    (
        "space.units.type",
        "int",
        "space.yaml: space.units.type: type must be one of real, integer, categorical, not 'int'",
        "write, for example, type: integer",
    ),
    (
        "space.units.type",
        ["real", "integer"],
        "space.yaml: space.units.type: type must be one of real, integer, categorical, not ['real', 'integer']",
        "write, for example, type: integer",
    ),
    (
        "space.units.type",
        DROP,
        "space.yaml: space.units.type: type must be one of real, integer, categorical, not None",
        "write, for example, type: real",
    ),
    ("space.units.low", 9, "space.yaml: space.units.low: low must be less than high, not 9 ≥ 8", "exchange the two"),
    (
        "space.units.low",
        8,
        "space.yaml: space.units.low: low must be less than high, not 8 ≥ 8",
        "leave it out of the space",
    ),
    (
        "space.units.low",
        2.5,
        "space.yaml: space.units.low: an integer hyperparameter needs a whole number as low, not 2.5",
        "write a whole number, or type: real",
    ),
    (
        "space.units.low",
        "two",
        "space.yaml: space.units.low: an integer hyperparameter needs a whole number as low, not 'two'",
        "write a whole number, or type: real",
    ),
    ("space.units.low", DROP, "space.yaml: space.units: low missing", "add low: …"),
    (
        "space.units.step",
        100,
        "space.yaml: space.units.step: step must be between 0 and high - low = 6, not 100",
        "write a smaller positive step, or remove it",
    ),
    ("space.units.stop", 1, "space.yaml: space.units: unknown key 'stop'", "did you mean step?"),
    (
        "space.units.when",
        {"rte": 1},
        "space.yaml: space.units.when: 'rte' is not a hyperparameter",
        "one of: rate, units",
    ),
    (
        "space.units.when",
        {"rate": 5.0},
        "space.yaml: space.units.when: rate never takes the value 5.0",
        "its values: real, 0.0001 to 0.1, log-uniform",
    ),
    (
        "space.units.when",
        {"units": 3},
        "space.yaml: space: the conditions of units depend on each other",
        "drop one `when`",
    ),
    (
        "space.units.when",
        "rate",
        "space.yaml: space.units.when: expected a mapping, not 'rate'",
        "write, for example, {optimizer: sgd}",
    ),
    (
        "space.rate.low",
        0,
        "space.yaml: space.rate.low: a log-uniform prior needs low > 0, not 0",
        "increase low, or write prior: uniform",
    ),
    (
        "space.rate.high",
        float("inf"),
        "space.yaml: space.rate.high: high must be a finite number, not inf",
        "write a number",
    ),
    (
        "space.rate.prior",
        "log",
        "space.yaml: space.rate.prior: prior must be one of uniform, log-uniform, not 'log'",
        "write prior: uniform or prior: log-uniform",
    ),
    (
        "space.kind",
        {"type": "categorical", "categories": []},
        "space.yaml: space.kind.categories: categories is empty",
        "name at least one value",
    ),
    (
        "space.kind",
        {"type": "categorical", "categories": "ab"},
        "space.yaml: space.kind.categories: categories must be a list, not 'ab'",
        "write [a, b, c]",
    ),
    (
        "space.kind",
        {"type": "categorical", "categories": ["a", "a"]},
        "space.yaml: space.kind.categories: duplicate category in ['a', 'a']",
        "name each once",
    ),
    (
        "space.kind",
        {"type": "categorical", "categories": [[1]]},
        "space.yaml: space.kind.categories: a category must be text, a number, true, false or null, not [1]",
        "give it a name and look the name up in the model's function",
    ),
    (
        "space.2x",
        {"type": "real", "low": 0, "high": 1},
        "space.yaml: space.2x: the name of a hyperparameter must consist of letters, digits and _",
        "start with a letter; write 2x as x2, for example",
    ),
    (
        "space.unused",
        {"type": "real", "low": 0, "high": 1},
        "space.yaml: space.unused: the hyperparameter unused is not used",
        "write $unused somewhere in training:, name it in",
    ),
    (
        "figure_of_merit",
        "val_f1",
        "space.yaml: figure_of_merit: the training does not produce the metric val_f1",
        "it produces: loss, accuracy, val_loss, val_accuracy; or add f1 to `metrics:`",
    ),
    (
        "figure_of_merit",
        "model.py:merits",
        "space.yaml: figure_of_merit: model.py: there is no function merits",
        "did you mean merit? it has: build, merit",
    ),
    (
        "figure_of_merit",
        "nowhere.py:merit",
        "space.yaml: figure_of_merit: nowhere.py: there is no such file",
        "did you mean model.py?",
    ),
    (
        "objective",
        "model.py:objective",
        "space.yaml: objective: model.py: there is no function objective",
        "it has: build, merit",
    ),
    (
        "objective",
        "something",
        "space.yaml: objective: expected a function, found 'something'",
        "write file.py:function or package.module:function",
    ),
    (
        "training",
        DROP,
        "space.yaml: training: this section is missing; `objective: train` needs it",
        "write a training: section, or objective: file.py:function,",
    ),
    ("training.model", DROP, "space.yaml: training.model: this key is required", "add `model: …`"),
    (
        "training.model",
        "model.py:bild",
        "space.yaml: training: model.py: there is no function bild",
        "did you mean build? it has: build, merit",
    ),
    (
        "training.model",
        "modle.py:build",
        "space.yaml: training: modle.py: there is no such file",
        "did you mean model.py?",
    ),
    (
        "training.model",
        "no.such.module:build",
        "space.yaml: training: no.such.module: there is no module no.such.module",
        "is it installed in this environment?",
    ),
    (
        "training.parameters",
        {"layers": 3},
        "space.yaml: training: model.py:build has no parameter layers",
        "did you mean n_classes? it has: units, n_classes",
    ),
    (
        "training.parameters",
        "units=3",
        "space.yaml: training.parameters: expected a section of keys, found 'units=3'",
        "write `parameters: {key: value, …}`",
    ),
    (
        "training.parameters",
        {1: 3},
        "space.yaml: training.parameters.1: expected a text as the key, found 1",
        'write "1" in quotes',
    ),
    (
        "training.batch_size",
        "$batch",
        "space.yaml: training: $batch is not a hyperparameter of the space",
        "known: rate, units",
    ),
    (
        "training.seed",
        "$units",
        "space.yaml: training.seed: expected a number, found $units: all trials must have the same validation samples",
        "write a number, or remove this key",
    ),
    (
        "training.batch_size",
        0,
        "space.yaml: training.batch_size: expected 1 or more, found 0",
        "write a value of 1 or more",
    ),
    (
        "training.batch_size",
        "big",
        "space.yaml: training.batch_size: expected an integer, found 'big'",
        "write, for example, `batch_size: 5`",
    ),
    (
        "training.epochs",
        0,
        "space.yaml: training.epochs: expected 1 or more, found 0",
        "write a value of 1 or more",
    ),
    ("training.epoch", 5, "space.yaml: training.epoch: unknown key", "did you mean epochs? known keys: model"),
    (
        "training.optimizer.name",
        "adm",
        "space.yaml: training.optimizer: there is no adm",
        "did you mean adam? known: sgd, adam, adamw, rmsprop,",
    ),
    (
        "training.optimizer.momentun",
        0.9,
        "space.yaml: training.optimizer.momentun: unknown key",
        "known keys: clip_norm, clip_value, schedule, learning_rate",
    ),
    (
        "training.optimizer.learning_rate",
        -1,
        "space.yaml: training.optimizer.learning_rate: expected more than 0, found -1",
        "write a value of more than 0",
    ),
    (
        "training.algorithm",
        {"name": "allreduse"},
        "space.yaml: training.algorithm: there is no allreduse",
        "did you mean allreduce? known: allreduce, downpour, easgd,",
    ),
    (
        "training.early_stopping",
        {"metric": "val_lss"},
        "space.yaml: training.early_stopping.metric: the training does not produce the metric val_lss",
        "did you mean val_loss? it produces: loss, accuracy, val_loss, val_accuracy",
    ),
    (
        "training.target",
        {"metric": "accuracy"},
        "space.yaml: training.target: give exactly one of above and below",
        "write `above: 0.99` or `below: 0.01`",
    ),
    (
        "training.checkpoint",
        {"path": 5},
        "space.yaml: training.checkpoint.path: expected a path, found 5",
        "write `path: FOLDER/FILE`",
    ),
    ("training.data", DROP, "space.yaml: training.data: this section is required", "say which files to train on"),
    (
        "training.data.train",
        ["nope.h5"],
        "space.yaml: training.data.train: nope.h5: there is no such file",
        "has no file with a similar name",
    ),
    (
        "training.data.train",
        ["nonsense://a/b.h5"],
        "space.yaml: training.data.train: nonsense://a/b.h5: Protocol not known",
        "use a URL that fsspec supports",
    ),
    (
        "training.data.train",
        ["*.parquet"],
        "space.yaml: training.data.train: *.parquet: no file matches this pattern",
        "check the path and the suffix",
    ),
    (
        "training.data.train",
        ["model.py"],
        "space.yaml: training.data.train: model.py: the suffix belongs to no known format",
        "use the suffix of its format, one of: .h5 .hdf5 .npz .npy .root",
    ),
    (
        "training.data.train",
        ["broken.h5"],
        "space.yaml: training.data.train: broken.h5: cannot be read as HDF5",
        "the file is damaged, incomplete or of another format: write",
    ),
    (
        "training.data.train",
        ["empty.h5"],
        "space.yaml: training.data.train: empty.h5: cannot be read as HDF5",
        "the file is damaged, incomplete or of another format: write",
    ),
    (
        "training.data.features",
        "x",
        "space.yaml: training.data.features: data.h5: x: there is no 'x' in this HDF5 file",
        "did you mean X? there are: X, far, short, y",
    ),
    (
        "training.data.labels",
        "labels",
        "space.yaml: training.data.labels: data.h5: labels: there is no 'labels' in this HDF5 file",
        "there are: X, far, short, y",
    ),
    (
        "training.data.weights",
        "short",
        "space.yaml: training.data.weights: data.h5: short: 60 samples of features but 50 of weights",
        "features and weights need one entry for each sample",
    ),
    (
        "training.data.features",
        {"names": "X", "function": "nowhere.py:scaled"},
        "space.yaml: training.data.features: nowhere.py: there is no such file",
        "did you mean model.py?",
    ),
    (
        "training.data.labels",
        "short",
        "space.yaml: training.data.labels: data.h5: short: 60 samples of features but 50 of labels",
        "features and labels need one entry for each sample",
    ),
    (
        "training.data.fetures",
        "X",
        "space.yaml: training.data.fetures: unknown key",
        "did you mean features? known keys: train",
    ),
    (
        "training.data.validation_fraction",
        1.5,
        "space.yaml: training.data.validation_fraction: expected less than 1, found 1.5",
        "write a value of less than 1",
    ),
]


@needs("keras")
def test_check_names_the_file_and_section_of_a_mistake_that_only_a_framework_detects(folder, capsys):
    content = changed("training.data.labels", "far") | {"figure_of_merit": "loss"}
    (folder / "space.yaml").write_text(yaml.safe_dump(content))
    assert run(["check", "space.yaml"]) == INVALID
    assert capsys.readouterr().err.startswith("mpi-opt: space.yaml: training.data.labels: ")


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


@pytest.mark.parametrize(
    ("path", "value", "problem", "cure"),
    with_marks(CASES, {"nonsense://a/b.h5": "fsspec"}),
    ids=[f"{path}={value}"[:50] for path, value, *_ in CASES],
)
def test_mistake_in_the_file_is_one_message_with_place_problem_and_cure(path, value, problem, cure, folder, capsys):
    (folder / "space.yaml").write_text(yaml.safe_dump(changed(path, value)))
    _is_refused(["search", "space.yaml"], f"mpi-opt: {problem}", cure, folder, capsys)
    assert not (folder / "bad.db").exists()


def test_with_folds_the_figure_of_merit_may_be_a_validation_metric_of_the_model_itself(folder):
    content = changed("training.loss", DROP) | {"figure_of_merit": "val_energy_loss"}
    (folder / "space.yaml").write_text(yaml.safe_dump(content))
    assert run(["search", "space.yaml"]).configuration.figure_of_merit == "val_energy_loss"


def test_without_a_mistake_there_is_a_plan(folder):
    (folder / "space.yaml").write_text(yaml.safe_dump(GOOD))
    assert run(["search", "space.yaml"]).space.keys() == GOOD["space"].keys()


@pytest.mark.parametrize(
    ("text", "problem", "cure"),
    [
        ("space: {x: {type: real", "this is not YAML: line 1, column 23: expected ',' or '}'", "brackets and quotes"),
        ("- a\n- b\n", "expected `key: value` lines, found ['a', 'b']", "mpi-opt new NAME"),
        ("", "expected `key: value` lines, found None", "mpi-opt new NAME"),
        ("study: a\nstudy: b\n", "this is not YAML: line 2, column 1: found duplicate key", "keep one of them"),
        (
            "study: !!python/object/apply:os.system [ls]\n",
            "this is not YAML: line 1, column 8",
            "check the indentation",
        ),
        ("study: \x00", "this is not YAML: unacceptable character", "check the indentation"),
        ("study: !!timestamp x\n", "this is not YAML: line 1, column 8", "check the indentation"),
        (f"study: {'9' * 5000}\n", "this is not YAML: Exceeds the limit", "put a text in quotes"),
        (f"study: {'[' * 3000 + ']' * 3000}\n", "this is not YAML: maximum recursion depth", "nest fewer brackets"),
    ],
)
def test_file_that_is_not_yaml_is_one_message_with_place_problem_and_cure(text, problem, cure, folder, capsys):
    (folder / "space.yaml").write_text(text)
    _is_refused(["search", "space.yaml"], f"mpi-opt: space.yaml: {problem}", cure, folder, capsys)


USAGE = "Try 'mpi-opt {} --help' for help."


@pytest.mark.parametrize(
    ("arguments", "problem", "cure"),
    [
        (["search"], "SPACE.yaml", USAGE.format("search")),
        (
            ["search", "nope.yaml"],
            "nope.yaml: cannot read the file: No such file or directory",
            "check the path, which is relative to the current directory",
        ),
        (
            ["search", "spce.yaml"],
            "spce.yaml: cannot read the file: No such file or directory",
            "did you mean space.yaml?",
        ),
        (["search", "space.yaml", "--trials", "0"], "Invalid value for '--trials'", USAGE.format("search")),
        (
            ["search", "space.yaml", "--report", "--store", "sqlite://"],
            "--report: the store is in memory, and cannot be opened again when the report is written",
            "write --store results.db",
        ),
        (["search", "space.yaml", "--trials", "x"], "Invalid value for '--trials'", USAGE.format("search")),
        (
            ["search", "space.yaml", "--block-size", "big"],
            "--block-size: expected a number, auto or measured, found 'big'",
            "write",
        ),
        (["search", "space.yaml", "--time-limit", "soon"], "search.time_limit: expected a duration", "d, h, m or s"),
        (
            ["search", "space.yaml", "--strategy", "magic"],
            "search.strategy: there is no strategy 'magic'",
            "known: auto, bayesian",
        ),
        (
            ["search", "space.yaml", "--fold", "2"],
            "No such option: --fold",
            USAGE.format("search"),
        ),
        (["serch", "space.yaml"], "No such command 'serch'", "Try 'mpi-opt --help' for help."),
        (["plan", "space.yaml"], "Missing option '-n'", USAGE.format("plan")),
        (["plan", "space.yaml", "-n", "0"], "Invalid value for '-n'", USAGE.format("plan")),
        (["check", "."], ".: cannot read the file: Is a directory", "check the path"),
        (
            ["results", "--store", "nope.db"],
            "nope.db: there is no such file",
            "name the store of a search with --store",
        ),
        (
            ["results", "--store", "model.py"],
            "model.py: this is not a database's URL",
            "write results.db, or postgresql://",
        ),
        (
            ["best", "--study", "x", "--store", "broken.h5"],
            "broken.h5: this is not a database's URL",
            "write results.db",
        ),
    ],
)
def test_mistake_on_the_command_line_is_one_message_with_problem_and_cure(arguments, problem, cure, folder, capsys):
    (folder / "space.yaml").write_text(yaml.safe_dump(GOOD))
    _is_refused(arguments, problem, cure, folder, capsys)


def test_report_of_a_file_with_a_store_in_memory_is_refused_before_the_search(folder, capsys):
    (folder / "space.yaml").write_text(yaml.safe_dump(changed("store", "sqlite://")))
    problem = "--report: the store is in memory, and cannot be opened again when the report is written"
    _is_refused(["search", "space.yaml", "--report"], problem, "write --store results.db", folder, capsys)
    assert run(["search", "space.yaml"]).report is False


@pytest.mark.mpi
@pytest.mark.parametrize("n_ranks", [pytest.param(1, marks=pytest.mark.thorough), 4])
@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("search.trials", "many", ["search.trials", "'many'"]),
        ("store", "sqlite:////no/such/folder/x.db", ["/no/such/folder"]),
        ("store", "nonsense://x", ["nonsense"]),
        ("track", "nonsense:x", ["nonsense", "tensorboard:PLACE"]),
    ],
)
def test_a_mistake_is_reported_once_and_blocks_no_rank(n_ranks, path, value, words, folder):
    (folder / "space.yaml").write_text(yaml.safe_dump(changed(path, value)))
    done = in_world(n_ranks, "-m", "mpi_opt", "search", "space.yaml", cwd=folder, timeout=100)
    assert done.returncode == INVALID, done.stderr
    assert done.stderr.count("mpi-opt: ") == 1
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words)


PATIENT = """
from unittest.mock import patch
from mpi_opt.cli.main import main
with patch("mpi_opt.coordinator.blocks.block_pool.PARTING_S", 60.0):
    main(["search", "space.yaml"])
"""
"""A search that waits for every block: on a loaded machine one may import the user's file seconds later than another,
and the search would end its process."""


@pytest.mark.mpi
@pytest.mark.parametrize("n_ranks", [pytest.param(1, marks=pytest.mark.thorough), 3])
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys\nsys.exit('usage: script FILE')", ["SystemExit: usage: script FILE", "__main__"]),
        ("raise OSError('no such detector')", ["OSError: no such detector"]),
        ("import no_such_package", ["no_such_package"]),
    ],
)
def test_a_user_file_that_cannot_be_imported_is_reported_once_and_blocks_no_rank(n_ranks, code, words, folder):
    (folder / "script.py").write_text(f"{code}\n\ndef objective(trial):\n    return 1.0\n")
    content = {key: GOOD[key] for key in ("study", "store", "space")} | {"objective": "script.py:objective"}
    (folder / "space.yaml").write_text(yaml.safe_dump(content))
    done = in_world(n_ranks, "-c", PATIENT, cwd=folder, timeout=60)
    assert done.returncode == INVALID, done.stderr
    assert done.stderr.count("mpi-opt: ") == 1
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in ["script.py", *words]), done.stderr


@pytest.mark.mpi
def test_a_folder_without_permission_for_logs_is_reported_at_the_start(folder):
    (folder / "space.yaml").write_text(yaml.safe_dump(GOOD))
    (folder / "bad.logs").touch()
    done = in_world(3, "-m", "mpi_opt", "search", "space.yaml", cwd=folder, timeout=60)
    assert done.returncode == INVALID, done.stderr
    _is_one_message(done.stderr.partition("mpi-opt: ")[2], ["bad.logs", "in a folder that is writable"])


@pytest.mark.mpi
def test_n_under_mpirun_is_reported_once_and_blocks_no_rank(folder):
    (folder / "space.yaml").write_text(yaml.safe_dump(GOOD))
    done = in_world(2, "-m", "mpi_opt", "search", "space.yaml", "-n", "2", cwd=folder, timeout=60)
    assert done.returncode == INVALID, done.stderr
    _is_one_message(done.stderr.partition("mpi-opt: ")[2], ["-n starts mpirun", "drop -n, or drop mpirun"])


def test_a_password_is_not_shown(folder, capsys):
    (folder / "space.yaml").write_text(yaml.safe_dump(GOOD | {"store": "postgres://ada:secret@host/db"}))
    assert run(["results", "--store", "postgres://ada:secret@host/db"]) == INVALID
    run(["check", "space.yaml"])
    shown = "".join(capsys.readouterr())
    assert "ada:***@host" in shown
    assert "secret" not in shown


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("training.data.labels", "far", ["training.data.labels: ", "label", "7"]),
        ("training.loss", "sparse_crossentropy", ["sparse_crossentropy"]),
        ("training.metrics", ["acuracy"], ["acuracy"]),
    ],
)
def test_mistakes_that_only_a_framework_detects_are_reported_before_the_first_trial(path, value, words, folder):
    content = changed(path, value)
    content["figure_of_merit"] = "loss"
    (folder / "space.yaml").write_text(yaml.safe_dump(content))
    done = in_world(2, "-m", "mpi_opt", "search", "space.yaml", cwd=folder, timeout=200)
    assert done.returncode == INVALID, done.stderr
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.mpi
def test_a_mistake_that_is_shown_with_its_traceback_blocks_no_other_rank(folder):
    (folder / "space.yaml").write_text(yaml.safe_dump(changed("search.trialz", 3)))
    done = in_world(2, "-m", "mpi_opt", "search", "space.yaml", "--debug", cwd=folder, timeout=30)
    assert done.returncode == INVALID, done.stderr
    assert "Traceback" in done.stderr
    assert "trialz" in done.stderr


@pytest.mark.parametrize(("rank", "status"), [("0", INVALID), ("2", 0)])
def test_only_rank_0_reports_an_error_that_all_ranks_have(rank, status, monkeypatch, capsys):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", rank)

    def fails():
        raise UserError("the store is full")

    assert _guarded(fails, debug=False) == status
    assert ("the store is full" in capsys.readouterr().err) is (rank == "0")


@pytest.mark.mpi
def test_a_strategy_that_cannot_be_constructed_blocks_no_rank(folder):
    raising = "class Mine:\n    def __init__(self, *_, **__):\n        raise RuntimeError('not today')\n"
    (folder / "strategy.py").write_text(raising)
    (folder / "space.yaml").write_text(yaml.safe_dump(changed("search.strategy", "strategy.py:Mine")))
    done = in_world(2, "-m", "mpi_opt", "search", "space.yaml", cwd=folder, timeout=30)
    assert done.returncode in (1, INVALID)
    assert "not today" in done.stderr


def _is_refused(
    arguments: list[str], problem: str, cure: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with status 2, before it starts anything, and one message: the problem, then the cure."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (INVALID, "")
    message = re.sub(r"[\s│╭╮╰╯─]+", " ", printed.err.replace(f"{folder}/", "").replace("sqlite:///", ""))
    assert "Traceback" not in message
    assert len(printed.err.splitlines()) <= 12, printed.err
    head, _, rest = message.partition(" → ")
    if not rest:  # of the command line's own parser
        assert "Usage: mpi-opt" in message
        head = rest = message
    assert problem in head
    assert cure in rest


def _is_one_message(err: str, words: list[str]) -> None:
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 12, err
    for word in words:
        assert word in err, err
