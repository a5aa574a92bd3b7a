"""Functions with a known optimum on which no strategy was tuned: for final comparisons, not for choosing variants."""

from __future__ import annotations

import math

import numpy as np
from functions import cube, of_reals
from problems import Problem

from mpi_opt.core.search_space.space import Categorical, Integer, Parameters, Real


def unseen() -> list[Problem]:
    """All of them."""
    reals = {
        "camel2": (cube(2, -2, 2), camel, -1.0316284534898774),
        "schwefel4": (cube(4, -500, 500), schwefel, 0.0),
        "dixon8": (cube(8, -10, 10), dixon, 0.0),
        "powell8": (cube(8, -4, 5), powell, 0.0),
        "trid10": (cube(10, -100, 100), trid, -210.0),
        "cliffs3": (cube(3, 0, 1), cliffs, 0.0),
        "peaks4": (cube(4, 0, 1), peaks, -3.0),
    }
    mixed = (("tree10", TREE, tree), ("bowls60", BOWLS, bowls))
    return [of_reals(name, *described) for name, described in reals.items()] + [
        Problem(name, space, function, function) for name, space, function in mixed
    ]


def camel(x: np.ndarray) -> float:
    """The six-hump camel function of Dixon and Szegö."""
    a, b = x
    return float((4 - 2.1 * a**2 + a**4 / 3) * a**2 + a * b + (4 * b**2 - 4) * b**2)


def schwefel(x: np.ndarray) -> float:
    return float(418.9828872724338 * len(x) - np.sum(x * np.sin(np.sqrt(np.abs(x)))))


def dixon(x: np.ndarray) -> float:
    """The function of Dixon and Price, a bent valley."""
    return float((x[0] - 1) ** 2 + np.sum(np.arange(2, len(x) + 1) * (2 * x[1:] ** 2 - x[:-1]) ** 2))


def powell(x: np.ndarray) -> float:
    a, b, c, d = x.reshape(-1, 4).T
    return float(np.sum((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4))


def trid(x: np.ndarray) -> float:
    return float(np.sum((x - 1) ** 2) - np.sum(x[1:] * x[:-1]))


def cliffs(x: np.ndarray) -> float:
    """A quadratic on a checkerboard whose dark squares are raised."""
    is_dark = np.floor(5 * x[:2]).sum() % 2 != 0
    return float(4 * np.sum((x - 0.37) ** 2) + 2.0 * is_dark + 1.0 * (x[2] > 0.5))


CENTRES = np.random.default_rng(7).uniform(0.15, 0.85, (4, 4))
DEPTHS, WIDTHS = np.array([3.0, 2.2, 1.8, 1.5]), np.array([0.18, 0.35, 0.3, 0.4])


def peaks(x: np.ndarray) -> float:
    """Four minima, of which the deepest is the narrowest."""
    return -float((DEPTHS * np.exp(-np.sum((x - CENTRES) ** 2, axis=1) / (2 * WIDTHS**2))).max())


TREE = {
    "kind": Categorical(("machine", "forest", "network")),
    "scaling": Categorical(("none", "standard", "robust")),
    "penalty": Real(1e-3, 1e3, prior="log-uniform", when={"kind": "machine"}),
    "width": Real(1e-5, 10, prior="log-uniform", when={"kind": "machine"}),
    "trees": Integer(8, 1024, prior="log-uniform", when={"kind": "forest"}),
    "depth": Integer(2, 32, when={"kind": "forest"}),
    "rate": Real(1e-6, 1, prior="log-uniform", when={"kind": "network"}),
    "units": Integer(4, 1024, prior="log-uniform", when={"kind": "network"}),
    "dropout": Real(0, 0.9, when={"kind": "network"}),
    "activation": Categorical(("relu", "tanh", "gelu"), when={"kind": "network"}),
}


def tree(parameters: Parameters) -> float:
    """Three kinds of model, each with its own hyperparameters; 0 (almost, at 315 units) for the network."""
    error = 0.01 * (parameters["scaling"] != "robust")
    if parameters["kind"] == "machine":
        penalty = math.log10(parameters["penalty"])
        error += 0.07 + 0.03 * (penalty - 1) ** 2 + 0.02 * (math.log10(parameters["width"]) + 2) ** 2
        return error + 0.015 * (1 + math.sin(3 * penalty))
    if parameters["kind"] == "forest":
        return (
            error + 0.05 + 0.002 * (math.log2(parameters["trees"]) - 9) ** 2 + 0.001 * (parameters["depth"] - 14) ** 2
        )
    error += 0.02 * (math.log10(parameters["rate"]) + 3.2) ** 2 + 0.01 * (math.log2(parameters["units"]) - 8.3) ** 2
    return error + 0.6 * (parameters["dropout"] - 0.35) ** 2 + 0.02 * (parameters["activation"] != "gelu")


BOWLS = {
    "first": Categorical(tuple("abcde")),
    "second": Categorical(tuple("abcd")),
    "third": Categorical(tuple("abc")),
    **cube(3, 0, 1),
}
_RNG = np.random.default_rng(12345)
_HEIGHTS = _RNG.permutation(60).reshape(5, 4, 3) / 6.0
_CENTRES = _RNG.uniform(0.2, 0.8, (60, 3)).reshape(5, 4, 3, 3)


def bowls(parameters: Parameters) -> float:
    """A quadratic for each of 60 combinations of categories, with unordered heights and centres."""
    index = tuple("abcde".index(parameters[name]) for name in ("first", "second", "third"))
    x = np.array([parameters[f"x{i}"] for i in range(3)])
    return float(_HEIGHTS[index] + 20 * np.sum((x - _CENTRES[index]) ** 2))
