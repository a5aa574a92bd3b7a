"""What each part of `bayesian` and `evolutionary` contributes: the same searches with one part switched off.

``python ablation.py --strategy bayesian`` runs every variant on every problem and seed and appends one JSON line per
search to ``ablation.jsonl``; searches that are already there are skipped. ``--print`` prints the tables, ``--readme``
writes them into README.md.

A variant is a set of options of the strategy, and of attributes of its modules with their replacements. Parts that
were removed after their ablation exist only in the code of commit `MEASURED`; to run those variants again, check that
commit out and put it first on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import functions
import numpy as np
import problems
import unseen
from problems import Problem
from protocol import regrets
from searchers import Ours

from mpi_opt.core.space import Categorical, Parameters, Space

MEASURED = "557b847"
RESULTS = Path(__file__).with_name("ablation.jsonl")
N_TRIALS, AFTER = 100, (25, 50, 100)
CLOSE = 1e-4
"""Proposals are counted as close if every number differs by less than this part of its range."""

PROPOSER, FITTING = "mpi_opt.strategies.surrogates.proposer", "mpi_opt.strategies.surrogates.fitting"
EVOLUTION = "mpi_opt.strategies.evolutionary"


def minimal_distance(distance: float) -> Callable[[], dict[str, Any]]:
    """`bayesian` with proposals at least `distance` (part of the range, largest of all numbers) from earlier ones."""

    def patches() -> dict[str, Any]:
        from mpi_opt.strategies.bayesian import Bayesian

        before = Bayesian._is_allowed

        def is_allowed(self: Any, row: np.ndarray) -> bool:
            if not before(self, row):
                return False
            rows = np.vstack([self._history._rows[: self._history._n], self._pending_rows()])
            return not bool((np.abs(rows - row) < distance).all(axis=1).any())

        least = {"mpi_opt.strategies.points.encoding:LEAST_DISTANCE": 1e-300}
        return least | {"mpi_opt.strategies.bayesian:Bayesian._is_allowed": is_allowed}

    return patches


def offsets(*values: float) -> Callable[[], dict[str, Any]]:
    """`bayesian` with a choice among these logarithmic transformations; infinity: none."""

    def patches() -> dict[str, Any]:
        before = import_module(FITTING).Surrogate._chosen
        return {f"{FITTING}:Surrogate._chosen": lambda self, told, among=values: before(self, told, among)}

    return patches


def no_model_of_failures() -> dict[str, Any]:
    """Failed trials are left out."""
    before = import_module(PROPOSER).Proposer._proposed
    return {
        f"{PROPOSER}:Proposer._proposed": lambda self, told, *rest: before(self, told.succeeded(), *rest),
    }


def penalties_are_values() -> dict[str, Any]:
    return {"mpi_opt.strategies.surrogates.observations:Observations.without_penalties": lambda self: self}


Change = dict[str, Any]
"""Option of the strategy, or ``module:attribute``, to value."""

VARIANTS: dict[str, dict[str, Change | Callable[[], Change]]] = {
    "bayesian": {
        "all parts": {},
        "no model of the neighbourhood": {f"{PROPOSER}:LOCAL_EVERY": 10**9},
        "never leaves a category": {f"{PROPOSER}:OTHER_CATEGORY_EVERY": 10**9},
        "leaves a category, no sceptical model": {f"{FITTING}:LARGEST_CATEGORY_LENGTH": math.inf},
        "no logarithm": offsets(math.inf),
        "logarithm or not": offsets(math.inf, 1.0),
        "three logarithms or none": offsets(math.inf, 1.0, 0.1, 0.01),
        "Matérn correlation only": {f"{FITTING}:CORRELATIONS": ("matern",)},
        "Gaussian correlation only": {f"{FITTING}:CORRELATIONS": ("gaussian",)},
        "an eighth of the candidates": {f"{PROPOSER}:N_GLOBAL": 64, f"{PROPOSER}:N_LOCAL": 32},
        "one climb": {f"{PROPOSER}:N_STARTS": 1},
        "no candidates near the best": {f"{PROPOSER}:N_LOCAL": 0},
        "unlikely places allowed": {f"{FITTING}:LEAST_SUCCESS": 1e-300},
        "no model of failures": no_model_of_failures,
        "penalties are values": penalties_are_values,
        "no forest above 60 hyperparameters": {"surrogate": "gp"},
        "no distance": minimal_distance(0.0),
        "distance 1e-3": minimal_distance(1e-3),
    },
    "evolutionary": {
        "all parts": {},
        "no interpolation": {"children": 1},
        "no differences": {f"{EVOLUTION}:DIFFERENTIAL": 0.0},
        "no wide mutations": {f"{EVOLUTION}:WIDE": 0.0},
        "one logarithm": {f"{EVOLUTION}:OFFSETS": (1.0,)},
        "no logarithm": {f"{EVOLUTION}:OFFSETS": (math.inf,)},
        "logarithm or not": {f"{EVOLUTION}:OFFSETS": (1.0, math.inf)},
        "best guess each time": {f"{EVOLUTION}:GUESS_WEIGHTS": (1.0,)},
        "one weight of the distance": {f"{EVOLUTION}:GUESS_WEIGHTS": (0.9,)},
    },
}

NAMES = (
    "branin",
    "hartmann6",
    "rosenbrock4",
    "levy8",
    "zakharov10",
    "ackley5c",
    "branins4c",
    "conditional7",
    "nasbench201.cifar10",
    "hartmann6 noise",
)
FAILURES = ("branin fails", "hartmann6 penalty")
LARGE = ("sphere80", "levy80")
CATEGORIES = ("ackley5c", "branins4c", "conditional7", "nasbench201.cifar10")
NOISE = 0.05
ONLY = {
    "never leaves a category": CATEGORIES,
    "leaves a category, no sceptical model": CATEGORIES,
    "unlikely places allowed": FAILURES,
    "no model of failures": FAILURES,
    "penalties are values": FAILURES[1:],
    "no distance": NAMES[:-1],
    "distance 1e-3": NAMES[:-1],
    "no forest above 60 hyperparameters": LARGE,
    "all parts": NAMES + FAILURES + LARGE,
}
"""The problems of a variant that can differ on some only; for all others `NAMES`."""


def all_problems() -> dict[str, tuple[Problem, float]]:
    """Name -> problem and relative noise."""
    known = {problem.name: problem for problem in [*functions.functions(), *unseen.unseen(), *problems.tables()]}
    known["sphere80"] = functions.of_reals("sphere80", functions.cube(80, -3, 5), functions.sphere, 0.0)
    known["levy80"] = functions.of_reals("levy80", functions.cube(80, -10, 10), functions.levy, 0.0)
    known |= {"branin fails": fails(known["branin"]), "hartmann6 penalty": penalised(known["hartmann6"])}
    found = {name: (problem, 0.0) for name, problem in known.items()}
    return found | {f"{name} noise": (problem, NOISE) for name, problem in known.items()}


def fails(branin: Problem) -> Problem:
    """Fails on four fifths of the space; two of the three minima are there, the third lies just beside."""

    def measure(parameters: Parameters) -> float:
        return math.nan if parameters["x1"] > 2.4 and parameters["x0"] < 9.5 else branin.measure(parameters)

    return Problem("branin fails", branin.space, measure, branin.regret)


def penalised(problem: Problem) -> Problem:
    """A value of 1e6 where trials fail, which is a third of the space."""

    def measure(parameters: Parameters) -> float:
        return 1e6 if parameters["x0"] + parameters["x1"] > 1.1 else problem.measure(parameters)

    return Problem(f"{problem.name} penalty", problem.space, measure, problem.regret)


class Watched(Ours):
    """A strategy whose proposals are compared with its earlier ones."""

    def __init__(self, name: str, space: dict, seed: int, options: dict | None = None) -> None:
        super().__init__(name, space, seed, options)
        self._space = Space(space)
        self._is_category = np.array([isinstance(dimension, Categorical) for dimension in space.values()])
        self._rows = np.empty((0, len(space)))
        self.n_close = 0

    def ask(self) -> tuple[Any, Parameters]:
        token, parameters = super().ask()
        row = self._space.encode(parameters)
        difference = np.where(self._is_category, self._rows != row, np.abs(self._rows - row))
        self.n_close += bool((difference < CLOSE).all(axis=1).any())
        self._rows = np.vstack([self._rows, row])
        return token, parameters


@contextmanager
def patched(patches: dict[str, Any]) -> Iterator[None]:
    """With attributes ``module:name.name`` replaced."""
    before = []
    for target, value in patches.items():
        module, _, path = target.partition(":")
        owner, name = import_module(module), path
        while "." in name:
            first, _, name = name.partition(".")
            owner = getattr(owner, first)
        before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def search(strategy: str, variant: str, problem: Problem, noise: float, seed: int) -> dict[str, Any]:
    """One search as a line of the results."""
    change = VARIANTS[strategy][variant]
    change = change() if callable(change) else change
    patches = {key: value for key, value in change.items() if ":" in key}
    options = {key: value for key, value in change.items() if ":" not in key}
    made: list[Watched] = []

    def make(space: dict, seed: int) -> Watched:
        made.append(Watched(strategy, space, seed, options))
        return made[-1]

    started = time.process_time()
    with patched(patches), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        curve = regrets(problem, make, seed, N_TRIALS, noise)
    return {
        "regret": [float(f"{curve[n - 1]:.4g}") for n in AFTER],
        "close": made[0].n_close,
        "cpu_s": round(time.process_time() - started, 2),
    }


def read_results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []


def run(strategy: str, variants: list[str], names: list[str] | None, seeds: range) -> None:
    """Runs what is missing, seed by seed, so that a part of the results is balanced, too."""
    known = all_problems()
    done = {(one["strategy"], one["variant"], one["problem"], one["seed"]) for one in read_results()}
    for seed in seeds:
        for name in names or NAMES + FAILURES + LARGE:
            for variant in variants:
                key = (strategy, variant, name, seed)
                if key not in done and (names or name in ONLY.get(variant, NAMES)):
                    line = dict(zip(("strategy", "variant", "problem", "seed"), key, strict=True))
                    line |= search(strategy, variant, *known[name], seed)
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", choices=list(VARIANTS), default="bayesian")
    parser.add_argument("--variants", help="names, separated by commas; default: all")
    parser.add_argument("--problems", help="names, separated by commas; default: all")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--label", help="run the code as it is, and record it as a variant of this name")
    given = parser.parse_args()
    if given.label:
        VARIANTS[given.strategy] = {given.label: {}}
        ONLY[given.label] = NAMES + FAILURES
    variants = given.variants.split(",") if given.variants else list(VARIANTS[given.strategy])
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    run(given.strategy, variants, given.problems.split(",") if given.problems else None, seeds)


if __name__ == "__main__":
    main()
