"""What each part of `bayesian` contributes: paired searches with and without the part.

``python ablation.py`` runs every variant on its problems with ten seeds and appends one JSON line per search to
``ablation.jsonl``, or to ``ablation_N.jsonl`` with ``--trials N``. Searches that are already there are skipped.
``--readme`` writes the tables into README.md.

A variant replaces options of the strategy or attributes of its modules. All variants refer to the code of commit
`MEASURED`, which must be on PYTHONPATH. ``--label NAME`` records other code as variant NAME.
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
from functools import cache, partial
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

from mpi_opt.core.space import Parameters, Space

MEASURED = "a907213"
HERE = Path(__file__).parent
README = HERE / "README.md"
BEGIN, END = "<!-- ablation: written by ablation.py --readme -->", "<!-- end of ablation -->"
N_TRIALS = (60, 100)
"""Numbers of trials of the searches in README.md; the first is the default."""
SATURATION = 1e-3
"""Regrets below this fraction of the regret of random search count as equal."""

PROPOSER, FITTING = "mpi_opt.strategies.surrogates.proposer", "mpi_opt.strategies.surrogates.fitting"
ALL = "all parts"

Change = dict[str, Any]
"""Values of options of the strategy and of attributes ``module:attribute``."""


def offsets(*values: float) -> Callable[[], Change]:
    """Selects among these offsets of the logarithm; infinity means no logarithm."""

    def change() -> Change:
        before = import_module(FITTING).Surrogate._chosen
        return {f"{FITTING}:Surrogate._chosen": lambda self, observed, among=values: before(self, observed, among)}

    return change


def no_model_of_failures() -> Change:
    """Ignores failed trials."""
    before = import_module(PROPOSER).Proposer.propose
    return {f"{PROPOSER}:Proposer.propose": lambda self, observed, *rest: before(self, observed.succeeded(), *rest)}


GENERAL = (
    "branin",
    "hartmann6",
    "rosenbrock4",
    "zakharov10",
    "griewank6",
    "ackley5c",
    "branins4c",
    "conditional7",
)
CATEGORIES = (
    "ackley5c",
    "branins4c",
    "conditional7",
    "tree10",
    "bowls60",
    "nasbench201.cifar10",
    "nasbench201.cifar100",
    "nasbench201.imagenet",
)
FAILURES = ("branin fails", "hartmann6 penalty")
LARGE = ("sphere80", "levy80")

VARIANTS: dict[str, tuple[tuple[str, ...], Change | Callable[[], Change]]] = {
    ALL: (tuple(dict.fromkeys(GENERAL + CATEGORIES + FAILURES + LARGE)), {}),
    "no forest above 60 hyperparameters": (LARGE, {"surrogate": "gp"}),
    "no model of the neighbourhood": (GENERAL, {f"{PROPOSER}:LOCAL_EVERY": 10**9}),
    "no other category": (CATEGORIES, {f"{PROPOSER}:OTHER_CATEGORY_EVERY": 10**9}),
    "other category, no sceptical model": (CATEGORIES, {f"{FITTING}:LARGEST_CATEGORY_LENGTH": math.inf}),
    "a quarter of the effort": (GENERAL, {f"{PROPOSER}:N_THOROUGH": 0}),
    "logarithm with offset 1 or none": (GENERAL, offsets(math.inf, 1.0)),
    "three logarithms or none": (GENERAL, offsets(math.inf, 1.0, 0.1, 0.01)),
    "always the logarithm with offset 1": (GENERAL, offsets(1.0)),
    "no logarithm": (GENERAL, offsets(math.inf)),
    "Matérn correlation only": (GENERAL, {f"{FITTING}:CORRELATIONS": ("matern",)}),
    "unlikely places allowed": (FAILURES, {f"{FITTING}:LEAST_SUCCESS": 1e-300}),
    "no model of failures": (FAILURES, no_model_of_failures),
    "no minimal distance": (GENERAL, {"mpi_opt.strategies.points.encoding:LEAST_DISTANCE": 1e-300}),
}
"""Name -> the problems on which the variant can differ from `ALL`, and the change."""


@cache
def all_problems() -> dict[str, Problem]:
    """Name -> problem."""
    large = [
        functions.of_reals("sphere80", functions.cube(80, -3, 5), functions.sphere, 0.0),
        functions.of_reals("levy80", functions.cube(80, -10, 10), functions.levy, 0.0),
    ]
    known = {one.name: one for one in [*functions.functions(), *unseen.unseen(), *problems.tables(), *large]}
    return known | {"branin fails": fails(known["branin"]), "hartmann6 penalty": penalised(known["hartmann6"])}


def fails(branin: Problem) -> Problem:
    """Branin's function, where four fifths of the space fail, including the neighbourhood of one minimum."""

    def measure(parameters: Parameters) -> float:
        return math.nan if parameters["x1"] > 2.4 and parameters["x0"] < 9.5 else branin.measure(parameters)

    return Problem("branin fails", branin.space, measure, branin.regret)


def penalised(problem: Problem) -> Problem:
    """A function that is 1e6 instead of a failure on a third of the space."""

    def measure(parameters: Parameters) -> float:
        return 1e6 if parameters["x0"] + parameters["x1"] > 1.1 else problem.measure(parameters)

    return Problem(f"{problem.name} penalty", problem.space, measure, problem.regret)


@contextmanager
def patched(patches: Change) -> Iterator[None]:
    """Replaces attributes ``module:name.name``."""
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


def search(change: Change, problem: Problem, seed: int, n_trials: int) -> dict[str, Any]:
    """One search: the regret after half of the trials and after all, and the processor time."""
    patches = {key: value for key, value in change.items() if ":" in key}
    options = {key: value for key, value in change.items() if ":" not in key}
    make = partial(Ours, "bayesian", options=options)
    started = time.process_time()
    with patched(patches), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        curve = regrets(problem, make, seed, n_trials)
    regret = [float(f"{curve[n - 1]:.4g}") for n in (n_trials // 2, n_trials)]
    return {"regret": regret, "cpu_s": round(time.process_time() - started, 2)}


def results_file(n_trials: int) -> Path:
    """The file with the results of searches of `n_trials` trials."""
    return HERE / ("ablation.jsonl" if n_trials == N_TRIALS[0] else f"ablation_{n_trials}.jsonl")


def read_results(n_trials: int) -> dict[tuple[str, str, int], dict[str, Any]]:
    """The line of each (variant, problem, seed)."""
    file = results_file(n_trials)
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    return {(line["variant"], line["problem"], line["seed"]): line for line in lines}


def run(variants: list[str], among: list[str], seeds: range, n_trials: int) -> None:
    """Runs the missing searches seed by seed, so that interrupted results are paired, too."""
    done = read_results(n_trials)
    for seed in seeds:
        for variant in variants:
            names, change = VARIANTS[variant]
            for name in names:
                if name in among and (variant, name, seed) not in done:
                    found = search(change() if callable(change) else change, all_problems()[name], seed, n_trials)
                    with results_file(n_trials).open("a") as file:
                        line = {"variant": variant, "problem": name, "seed": seed} | found
                        file.write(json.dumps(line, ensure_ascii=False) + "\n")


@cache
def smallest_regret(name: str, n_trials: int) -> float:
    """`SATURATION` of the median regret of random search over 25 seeds."""
    problem, best = all_problems()[name], []
    space = Space(problem.space)
    for seed in range(25):
        rng = np.random.default_rng(seed)
        best.append(min(problem.regret(space.sample(rng)) for _ in range(n_trials)))
    return SATURATION * float(np.median(best))


def difference(variant: str, name: str, index: int, n_trials: int) -> tuple[float, float, int]:
    """Mean over seeds of log10(regret of the variant / regret with all parts), its standard error, number of seeds."""
    found, least = read_results(n_trials), smallest_regret(name, n_trials)
    seeds = [seed for one, problem, seed in found if (one, problem) == (variant, name) and (ALL, name, seed) in found]
    logs = [
        [math.log10(max(found[one, name, seed]["regret"][index], least)) for seed in seeds] for one in (variant, ALL)
    ]
    differences = np.subtract(*logs)
    return float(differences.mean()), float(differences.std(ddof=1) / math.sqrt(len(seeds))), len(seeds)


def table(variants: list[str], names: tuple[str, ...], n_trials: int) -> str:
    """A row for each variant: the difference on average and on each problem, and the processor time."""
    found = read_results(n_trials)
    head = ["", f"mean, {n_trials // 2} trials", f"mean, {n_trials} trials", *names, "CPU time", "seeds"]
    rows = [head, ["---"] * len(head)]
    for variant in variants:
        after = [[difference(variant, name, index, n_trials) for name in names] for index in (0, 1)]
        means = [_average(cells) for cells in after]
        cells = [f"{mean:+.2f} ± {se:.2f}" for mean, se, _ in after[-1]]
        keys = [key for key in found if key[0] == variant and key[1] in names and (ALL, *key[1:]) in found]
        cpu_s = sum(found[key]["cpu_s"] for key in keys) / sum(found[ALL, *key[1:]]["cpu_s"] for key in keys)
        rows.append([variant, *means, *cells, f"{cpu_s:.2f}", str(min(n for _, _, n in after[-1]))])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _average(differences: list[tuple[float, float, int]]) -> str:
    """The mean over problems, and its standard error."""
    means, errors, _ = zip(*differences, strict=True)
    return f"{np.mean(means):+.2f} ± {math.hypot(*errors) / len(errors):.2f}"


def tables(n_trials: int) -> str:
    """A table for each set of problems on which variants were measured, with at least two seeds."""
    found = read_results(n_trials)
    measured: dict[tuple[str, ...], list[str]] = {}
    for variant, (names, _) in VARIANTS.items():
        if variant != ALL and (on := tuple(name for name in names if (variant, name, 1) in found)):
            measured.setdefault(on, []).append(variant)
    return "\n\n".join(table(variants, names, n_trials) for names, variants in measured.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", help="names, separated by semicolons; default: all")
    parser.add_argument("--problems", help="names, separated by commas; default: all")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=N_TRIALS[0])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--label", help="record the current code as a variant of this name")
    parser.add_argument("--readme", action="store_true", help="write the tables into README.md")
    given = parser.parse_args()
    if given.readme:
        text = "\n\n".join(filter(None, map(tables, N_TRIALS)))
        before, _, rest = README.read_text().partition(BEGIN)
        README.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")
        return
    if given.label:
        VARIANTS[given.label] = (VARIANTS[ALL][0], {})
    variants = [given.label] if given.label else given.variants.split(";") if given.variants else list(VARIANTS)
    names = given.problems.split(",") if given.problems else list(all_problems())
    run(variants, names, range(given.first_seed, given.first_seed + given.seeds), given.trials)


if __name__ == "__main__":
    main()
