"""What strategies are compared on: functions with a known optimum, tabulated networks, a network that is trained."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpi_opt.space import Categorical, Dimension, Integer, Parameters, Real

TABLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "hpo"


@dataclass(frozen=True)
class Problem:
    """Something to minimise.

    Attributes:
        name: What it is called in the results.
        space: Its hyperparameters.
        measure: Parameters -> what a search is told.
        regret: Parameters -> how far from the optimum they truly are.
    """

    name: str
    space: dict[str, Dimension]
    measure: Callable[[Parameters], float]
    regret: Callable[[Parameters], float]


def functions() -> list[Problem]:
    """The functions of the comparison."""
    reals = {
        "branin": ({"x0": Real(-5, 10), "x1": Real(0, 15)}, branin, 0.39788735772973816),
        "hartmann6": ({f"x{i}": Real(0, 1) for i in range(6)}, hartmann6, -3.322368011415515),
        "rosenbrock4": ({f"x{i}": Real(-2.048, 2.048) for i in range(4)}, rosenbrock, 0.0),
        "levy8": ({f"x{i}": Real(-10, 10) for i in range(8)}, levy, 0.0),
        "styblinski5": ({f"x{i}": Real(-5, 5) for i in range(5)}, styblinski, -39.16616570377142 * 5),
        "michalewicz5": ({f"x{i}": Real(0, math.pi) for i in range(5)}, michalewicz, -4.687658),
        "griewank6": ({f"x{i}": Real(-50, 70) for i in range(6)}, griewank, 0.0),
        "sphere12": ({f"x{i}": Real(-3, 5) for i in range(12)}, sphere, 0.0),
        "shekel4": ({f"x{i}": Real(0, 10) for i in range(4)}, shekel, -10.536443153483526),
    }
    problems = [_function(name, space, function, optimum) for name, (space, function, optimum) in reals.items()]
    mixed = {f"x{i}": Real(-5, 10) for i in range(4)} | {"shift": Categorical(("a", "b", "c", "d", "e"))}
    problems.append(Problem("ackley5c", mixed, ackley_mixed, ackley_mixed))
    layered = {
        "rate": Real(1e-5, 1, prior="log-uniform"),
        "width": Integer(4, 512, prior="log-uniform"),
        "depth": Integer(1, 6),
        "optimizer": Categorical(("sgd", "adam", "lbfgs")),
        "momentum": Real(0, 0.99, when={"optimizer": "sgd"}),
        "activation": Categorical(("relu", "tanh")),
        "dropout": Real(0, 0.8, step=0.1),
    }
    problems.append(Problem("conditional7", layered, conditional, conditional))
    return problems


def _function(name: str, space: dict, function: Callable[[np.ndarray], float], optimum: float) -> Problem:
    def measure(parameters: Parameters) -> float:
        return float(function(np.array(list(parameters.values()))))

    return Problem(name, space, measure, lambda parameters: measure(parameters) - optimum)


def branin(x: np.ndarray) -> float:
    a, b = x
    return (
        (b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10
    )


_HARTMANN_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6(x: np.ndarray) -> float:
    return -float(np.array([1, 1.2, 3, 3.2]) @ np.exp(-np.sum(_HARTMANN_A * (x - _HARTMANN_P) ** 2, axis=1)))


def rosenbrock(x: np.ndarray) -> float:
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def levy(x: np.ndarray) -> float:
    w = 1 + (x - 1) / 4
    middle = np.sum((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(math.pi * w[:-1] + 1) ** 2))
    return float(math.sin(math.pi * w[0]) ** 2 + middle + (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2))


def styblinski(x: np.ndarray) -> float:
    return float(0.5 * np.sum(x**4 - 16 * x**2 + 5 * x))


def michalewicz(x: np.ndarray) -> float:
    return -float(np.sum(np.sin(x) * np.sin(np.arange(1, len(x) + 1) * x**2 / math.pi) ** 20))


def griewank(x: np.ndarray) -> float:
    return float(np.sum(x**2) / 4000 - np.prod(np.cos(x / np.sqrt(np.arange(1, len(x) + 1)))) + 1)


def sphere(x: np.ndarray) -> float:
    return float(np.sum((x - 1.234) ** 2))


_SHEKEL_C = np.array(
    [
        [4, 4, 4, 4],
        [1, 1, 1, 1],
        [8, 8, 8, 8],
        [6, 6, 6, 6],
        [3, 7, 3, 7],
        [2, 9, 2, 9],
        [5, 5, 3, 3],
        [8, 1, 8, 1],
        [6, 2, 6, 2],
        [7, 3.6, 7, 3.6],
    ]
)
_SHEKEL_B = 0.1 * np.array([1, 2, 2, 4, 4, 6, 3, 7, 5, 5])


def shekel(x: np.ndarray) -> float:
    return -float(np.sum(1 / (np.sum((x - _SHEKEL_C) ** 2, axis=1) + _SHEKEL_B)))


def ackley(x: np.ndarray) -> float:
    return float(
        20 + math.e - 20 * math.exp(-0.2 * math.sqrt(np.mean(x**2))) - math.exp(np.mean(np.cos(2 * math.pi * x)))
    )


def ackley_mixed(parameters: Parameters) -> float:
    """Ackley's function of four reals and a fifth coordinate with a value for each category; 0 for c at the optimum."""
    shift = {"a": -3.0, "b": -1.5, "c": 0.0, "d": 2.0, "e": 4.0}[parameters["shift"]]
    return ackley(np.array([*(parameters[f"x{i}"] - 0.7 * (i - 1) for i in range(4)), shift]))


def conditional(parameters: Parameters) -> float:
    """Shaped like the error of a network; smallest, 0, for sgd at the point below."""
    rate = math.log10(parameters["rate"])
    best_rate = {"sgd": -1.0, "adam": -3.0, "lbfgs": -0.5}[parameters["optimizer"]]
    error = 0.25 * (rate - best_rate) ** 2 + 0.1 * (math.log2(parameters["width"]) - 7) ** 2
    error += 0.05 * (parameters["depth"] - 3) ** 2 + (parameters["dropout"] - 0.3) ** 2
    error += {"sgd": 0.0, "adam": 0.15, "lbfgs": 0.4}[parameters["optimizer"]] + 0.1 * (
        parameters["activation"] == "tanh"
    )
    return error + (2 * (parameters["momentum"] - 0.9) ** 2 if "momentum" in parameters else 0.0)


def tables() -> list[Problem]:
    """Every table of the shared data: measured by its first repeat, judged by the mean over repeats."""
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
    """Scikit-learn's handwritten digits and network, with six mixed hyperparameters; the error on held-out images."""
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
