"""The problems of the comparison: tabulated networks, and a network that is trained (see also functions.py)."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpi_opt.core.search_space.space import Categorical, Dimension, Integer, Parameters, Real

TABLES = Path(os.environ.get("HPO_TABLES", Path(__file__).resolve().parents[3] / "shared" / "data" / "hpo"))
"""The folder with the tables of trained networks; without it there are none."""


@dataclass(frozen=True)
class Problem:
    """A function to minimise.

    Attributes:
        name: Its name in the results.
        space: Its hyperparameters.
        measure: Parameters -> the value that a search receives.
        regret: Parameters -> the difference of their true value from the optimum.
    """

    name: str
    space: dict[str, Dimension]
    measure: Callable[[Parameters], float]
    regret: Callable[[Parameters], float]


def tables() -> list[Problem]:
    """A problem for each table. A search receives the first repeat; the regret is that of the mean over repeats."""
    if not TABLES.is_dir():
        return []
    spaces = json.loads((TABLES / "spaces.json").read_text())
    return [
        _table(file, key, spaces[file]) for file in spaces if "axes" in spaces[file] for key in spaces[file]["tables"]
    ]


def _table(file: str, key: str, described: dict) -> Problem:
    sign = 1.0 if described["direction"] == "minimize" else -1.0
    values = sign * np.load(TABLES / f"{file}.npz")[key].astype(float)
    axes = {axis["name"]: axis["choices"] for axis in described["axes"]}
    space = {name: _axis(choices) for name, choices in axes.items()}
    mean = np.nanmean(values, axis=-1)

    def position(parameters: Parameters) -> tuple[int, ...]:
        return tuple(axes[name].index(v) if isinstance(v, str) else v for name, v in parameters.items())

    return Problem(
        f"{file}.{key}",
        space,
        lambda parameters: float(values[position(parameters)][0]),
        lambda parameters: float(mean[position(parameters)] - np.nanmin(mean)),
    )


def _axis(choices: list) -> Dimension:
    return Categorical(choices) if isinstance(choices[0], str) else Integer(0, len(choices) - 1)


def digits() -> Problem:
    """The error of scikit-learn's network on held-out handwritten digits, with six mixed hyperparameters."""
    space = {
        "learning_rate": Real(1e-4, 1e-1, prior="log-uniform"),
        "alpha": Real(1e-6, 1e-1, prior="log-uniform"),
        "units": Integer(8, 128, prior="log-uniform"),
        "layers": Integer(1, 3),
        "batch_size": Integer(16, 256, step=16),
        "activation": Categorical(("relu", "tanh", "logistic")),
    }
    return Problem("digits", space, digits_error, digits_error)


@functools.cache
def _digits_split() -> tuple[np.ndarray, ...]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    return tuple(train_test_split(images / 16.0, labels, test_size=0.5, random_state=0, stratify=labels))


def digits_error(parameters: Parameters) -> float:
    return _digits_error(tuple(parameters.items()))


@functools.cache
def _digits_error(parameters: tuple) -> float:
    from sklearn.neural_network import MLPClassifier

    given = dict(parameters)
    layers = (given.pop("units"),) * given.pop("layers")
    train_x, test_x, train_y, test_y = _digits_split()
    network = MLPClassifier(
        layers, learning_rate_init=given.pop("learning_rate"), max_iter=15, random_state=0, **given
    ).fit(train_x, train_y)
    return 1.0 - float(network.score(test_x, test_y))
