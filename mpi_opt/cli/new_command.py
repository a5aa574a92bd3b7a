"""The command ``new``: writes a commented ``NAME.yaml`` and ``NAME.py``, which run without changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mpi_opt.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal["training", "function"]

TRAINING_YAML = """\
# A small network that classifies handwritten digits. The example runs; replace the model and the data with yours.
#
#   mpi-opt check NAME.yaml            verifies the files and that the model fits the data
#   mpi-opt search NAME.yaml           in one process; with -n 5: one rank coordinates, four train
#   mpi-opt results --study NAME       all trials, best first (the same search command continues the study)
#   mpi-opt best --study NAME          the best trial, ready for mpi-learn train
#
# Every key and its default: docs/reference/space.md and training.md.

study: NAME
store: sqlite:///NAME.db            # is created in the current directory
direction: minimize
figure_of_merit: val_loss           # a metric of the training, or file.py:function

space:                              # the hyperparameters; the model or $name below uses each of them
  units:         {type: integer, low: 16, high: 128, step: 16}
  activation:    {type: categorical, categories: [relu, elu]}
  dropout:       {type: real, low: 0.0, high: 0.5}
  learning_rate: {type: real, low: 1.0e-3, high: 1.0e-1, prior: log-uniform}   # uniform in its logarithm

search:
  strategy: bayesian                # or evolutionary, random, grid, sobol, halving, population, constructive
  trials: 10
  seed: 7

blocks:
  size: 1                           # ranks that train one model together

folds: 1                            # K of a K-fold cross-validation; 1 uses the validation data below

training:                           # the content of a training.yaml
  model: NAME.py:build_model        # is called with the hyperparameters that are its arguments
  data:
    train: [NAME.h5]                # also .npz .npy .root .parquet .csv, globs and URLs
    validation_fraction: 0.2
    features: X
    labels: y
  loss: sparse_categorical_crossentropy
  metrics: [accuracy]
  optimizer: {name: adam, learning_rate: $learning_rate}
  batch_size: 64                    # per rank
  epochs: 8
"""

TRAINING_PY = '''\
"""The model of NAME.yaml."""


def build_model(units: int = 64, activation: str = "relu", dropout: float = 0.2):
    """A classifier of 64 pixels in [0, 1] into ten digits.

    Arguments that are hyperparameters in NAME.yaml come from the search; the others keep their defaults. The function
    may also return a PyTorch module: import torch instead of keras.
    """
    import keras

    return keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(units, activation=activation),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
'''

FUNCTION_YAML = """\
# Any Python function instead of a training. The example runs; replace the function with yours.
#
#   mpi-opt check NAME.yaml            verifies the files
#   mpi-opt search NAME.yaml           in one process; with -n 5: one rank coordinates, four run trials
#   mpi-opt results --study NAME       all trials, best first (the same search command continues the study)
#
# Every key and its default: docs/reference/space.md.

study: NAME
store: sqlite:///NAME.db            # is created in the current directory
direction: maximize
objective: NAME.py:objective        # is called with the trial and returns the figure of merit

space:                              # the hyperparameters
  trees: {type: integer, low: 10, high: 200, prior: log-uniform}
  depth: {type: integer, low: 2, high: 12}
  split: {type: categorical, categories: [gini, entropy]}

search:
  strategy: bayesian                # or evolutionary, random, grid, sobol, …
  trials: 12
  seed: 7

blocks:
  size: 1                           # ranks that share one trial, by trial.comm

folds: 3                            # the function is called once per fold; the trial gets the mean
"""

FUNCTION_PY = '''\
"""The objective of NAME.yaml."""

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier


def objective(trial) -> float:
    """The accuracy of a random forest on the validation samples.

    Args:
        trial: Has `parameters` (dict), `number`, `seed`, `fold` and `folds`, `comm` (the mpi4py communicator of this
            trial), `split(n_samples, labels)`, and `report(step, value)` and `should_stop()` for long trials.
    """
    x, y = load_digits(return_X_y=True)
    training, validation = trial.split(len(x), y)
    forest = RandomForestClassifier(
        n_estimators=trial.parameters["trees"],
        max_depth=trial.parameters["depth"],
        criterion=trial.parameters["split"],
        random_state=trial.seed,
    )
    return forest.fit(x[training], y[training]).score(x[validation], y[validation])
'''


def new(
    name: Annotated[str, typer.Argument(help="Name of the files NAME.yaml and NAME.py in the current directory.")],
    kind: Annotated[
        Kind, typer.Option("--kind", help="training: a Keras model and its data; function: any Python function.")
    ] = "training",
) -> None:
    """Write a commented NAME.yaml and NAME.py that run without changes. Existing files are not overwritten."""
    for path in write_template(name, kind, Path()):
        print(f"wrote {path}")
    print(f"now run\n  mpi-opt search {name}.yaml")


def write_template(name: str, kind: Kind, folder: Path) -> list[Path]:
    """Writes the files of a new study, all or none of them.

    Args:
        name: The name of the study, of letters, digits, _ and -.
        kind: The kind of its objective.
        folder: The folder of the files.

    Returns:
        The paths of the files.

    Raises:
        ConfigurationError: `name` has other characters, or one of the files exists.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
        cure = "mpi-opt new jets writes jets.yaml and jets.py"
        raise ConfigurationError(
            f"expected a name of letters, digits, _ and -, found {name!r}", where="NAME", cure=cure
        )
    writers = {folder / f"{name}{suffix}": write for suffix, write in _writers(name, kind).items()}
    for path in writers:
        if path.exists():
            raise ConfigurationError("the file exists already", where=str(path), cure="choose another name")
    for path, write in writers.items():
        write(path)
    return list(writers)


def _writers(name: str, kind: Kind) -> dict[str, Callable[[Path], object]]:
    """Suffix -> the function that writes the file."""
    if kind == "function":
        return {".yaml": _writer(FUNCTION_YAML, name), ".py": _writer(FUNCTION_PY, name)}
    return {".yaml": _writer(TRAINING_YAML, name), ".py": _writer(TRAINING_PY, name), ".h5": _write_digits}


def _writer(template: str, name: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(template.replace("NAME", name), encoding="utf-8")


def _write_digits(path: Path) -> None:
    from mpi_learn.known_data import prepare

    prepare("digits", path)
