"""Functions with a known optimum: the four of the main comparison, and others."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from problems import Problem

from mpi_opt.core.search_space.space import Categorical, Dimension, Integer, Parameters, Real


def functions() -> list[Problem]:
    """All of them."""
    return [of_reals(name, *described) for name, described in _reals().items()] + _mixed()


def _reals() -> dict[str, tuple[dict[str, Dimension], Callable[[np.ndarray], float], float]]:
    """Name -> space, function and optimum."""
    return {
        "branin": ({"x0": Real(-5, 10), "x1": Real(0, 15)}, branin, 0.39788735772973816),
        "hartmann6": (cube(6, 0, 1), hartmann6, -3.322368011415515),
        "rosenbrock4": (cube(4, -2.048, 2.048), rosenbrock, 0.0),
        "goldstein2": (cube(2, -2, 2), goldstein, 3.0),
        "hartmann3": (cube(3, 0, 1), hartmann3, -3.86278214782076),
        "shekel4": (cube(4, 0, 10), shekel, -10.536443153483526),
        "styblinski5": (cube(5, -5, 5), styblinski, -39.16616570377142 * 5),
        "michalewicz5": (cube(5, 0, math.pi), michalewicz, -4.687658),
        "rastrigin5": (cube(5, -4, 5), rastrigin, 0.0),
        "griewank6": (cube(6, -50, 70), griewank, 0.0),
        "levy8": (cube(8, -10, 10), levy, 0.0),
        "ackley8": (cube(8, -20, 30), ackley, 0.0),
        "zakharov10": (cube(10, -5, 10), zakharov, 0.0),
        "sphere12": (cube(12, -3, 5), sphere, 0.0),
    }


def cube(n_dimensions: int, low: float, high: float) -> dict[str, Dimension]:
    return {f"x{index}": Real(low, high) for index in range(n_dimensions)}


def of_reals(name: str, space: dict, function: Callable[[np.ndarray], float], optimum: float) -> Problem:
    def measure(parameters: Parameters) -> float:
        return float(function(np.array(list(parameters.values()))))

    return Problem(name, space, measure, lambda parameters: measure(parameters) - optimum)


def _mixed() -> list[Problem]:
    ackley5c = {f"x{i}": Real(-5, 10) for i in range(4)} | {"shift": Categorical(("a", "b", "c", "d", "e"))}
    conditional7 = {
        "rate": Real(1e-5, 1, prior="log-uniform"),
        "width": Integer(4, 512, prior="log-uniform"),
        "depth": Integer(1, 6),
        "optimizer": Categorical(("sgd", "adam", "lbfgs")),
        "momentum": Real(0, 0.99, when={"optimizer": "sgd"}),
        "activation": Categorical(("relu", "tanh")),
        "dropout": Real(0, 0.8, step=0.1),
    }
    rosenbrock4i = {f"x{i}": Real(-2, 2, step=0.1) if i % 2 else Real(-2, 2) for i in range(4)}
    branins = {
        "x0": Real(-5, 10),
        "x1": Real(0, 15),
        "first": Categorical(tuple("0123")),
        "second": Categorical(tuple("abc")),
    }
    logarithmic4 = {f"x{i}": Real(1e-6, 1e2, prior="log-uniform") for i in range(4)}
    integers6 = {f"n{i}": Integer(0, 40) for i in range(6)}
    return [
        Problem(name, space, function, function)
        for name, space, function in (
            ("ackley5c", ackley5c, ackley_mixed),
            ("conditional7", conditional7, conditional),
            ("rosenbrock4i", rosenbrock4i, lambda parameters: rosenbrock(np.array(list(parameters.values())))),
            ("branins4c", branins, branin_mixed),
            ("logarithmic4", logarithmic4, logarithmic),
            ("integers6", integers6, integers),
        )
    ]


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


def goldstein(x: np.ndarray) -> float:
    a, b = x
    first = 1 + (a + b + 1) ** 2 * (19 - 14 * a + 3 * a**2 - 14 * b + 6 * a * b + 3 * b**2)
    second = 30 + (2 * a - 3 * b) ** 2 * (18 - 32 * a + 12 * a**2 + 48 * b - 36 * a * b + 27 * b**2)
    return float(first * second)


_HARTMANN3_A = np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]])
_HARTMANN3_P = 1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]])


def hartmann3(x: np.ndarray) -> float:
    return -float(np.array([1, 1.2, 3, 3.2]) @ np.exp(-np.sum(_HARTMANN3_A * (x - _HARTMANN3_P) ** 2, axis=1)))


def rastrigin(x: np.ndarray) -> float:
    return float(10 * len(x) + np.sum(x**2 - 10 * np.cos(2 * math.pi * x)))


def zakharov(x: np.ndarray) -> float:
    weighted = 0.5 * float(np.arange(1, len(x) + 1) @ x)
    return float(np.sum(x**2)) + weighted**2 + weighted**4


def branin_mixed(parameters: Parameters) -> float:
    """Branin's function, tilted and lifted by two categories that matter together; 0 at its optimum."""
    first, second = int(parameters["first"]), "abc".index(parameters["second"])
    lift = 8.0 * ((first + 2 * second) % 4) + 3.0 * (second != 1) + 2.0 * abs(first - 2)
    tilt = 0.3 * abs(first - 2) * (parameters["x0"] + 5) / 15
    return branin(np.array([parameters["x0"], parameters["x1"]])) - 0.39788735772973816 + lift + tilt


def logarithmic(parameters: Parameters) -> float:
    """A bent valley in the logarithms; 0 at 1e-2 each."""
    x = (np.log10(np.array(list(parameters.values()))) + 2.0) / 2.0
    return float(np.sum(x**2) + 4.0 * np.sum((x[1:] - 0.5 * x[:-1] ** 2) ** 2) + 0.3 * np.sum(1 - np.cos(3 * x)))


def integers(parameters: Parameters) -> float:
    """A tilted bowl over whole numbers, with ripples; 0 at 7, 13, 19, 25, 31, 37."""
    x = (np.array(list(parameters.values())) - np.arange(7, 40, 6)) / 10.0
    return float(x @ x + 0.5 * np.sum(x) ** 2 + np.sum(1 - np.cos(2 * math.pi * x)))
