"""What each part of ``bayesian`` contributes: the tables of paired searches with and without the part.

    python ablation.py        # writes the tables to README.md

The searches are not repeated here: ``ablation.jsonl`` (60 trials) and ``ablation_100.jsonl`` (100 trials) have a line
for each. They were run with the code of commit a907213, by the version of this program in commit be980bb. Some parts
that it removes no longer exist.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import functions
import numpy as np
import problems
import unseen
from problems import Problem

from mpi_opt.core.search_space.space import Space

HERE = Path(__file__).parent
README = HERE / "README.md"
BEGIN, END = "<!-- ablation: written by ablation.py -->", "<!-- end of ablation -->"
RESULTS = {60: HERE / "ablation.jsonl", 100: HERE / "ablation_100.jsonl"}
"""Number of trials of a search -> its file."""
SATURATION = 1e-3
"""Regrets below this fraction of the regret of random search count as equal."""
ALL = "all parts"

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
VARIANTS: dict[str, tuple[str, ...]] = {
    "no forest above 60 hyperparameters": ("sphere80", "levy80"),
    "no model of the neighbourhood": GENERAL,
    "no other category": CATEGORIES,
    "other category, no sceptical model": CATEGORIES,
    "a quarter of the effort": GENERAL,
    "three logarithms or none": GENERAL,
    "no logarithm": GENERAL,
}
"""Name -> the problems on which the variant can differ from `ALL`."""


@cache
def all_problems() -> dict[str, Problem]:
    """Name -> problem."""
    large = [
        functions.of_reals("sphere80", functions.cube(80, -3, 5), functions.sphere, 0.0),
        functions.of_reals("levy80", functions.cube(80, -10, 10), functions.levy, 0.0),
    ]
    return {one.name: one for one in [*functions.functions(), *unseen.unseen(), *problems.tables(), *large]}


@cache
def read_results(n_trials: int) -> dict[tuple[str, str, int], dict[str, Any]]:
    """The line of each (variant, problem, seed)."""
    lines = map(json.loads, RESULTS[n_trials].read_text().splitlines())
    return {(line["variant"], line["problem"], line["seed"]): line for line in lines}


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
    for variant, names in VARIANTS.items():
        if on := tuple(name for name in names if (variant, name, 1) in found):
            measured.setdefault(on, []).append(variant)
    return "\n\n".join(table(variants, names, n_trials) for names, variants in measured.items())


def main() -> None:
    before, _, rest = README.read_text().partition(BEGIN)
    text = "\n\n".join(map(tables, RESULTS))
    README.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
