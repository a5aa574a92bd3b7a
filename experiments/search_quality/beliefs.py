"""Searches with a good, a wrong and no belief about the best point (``expect``).

    python beliefs.py --seeds 10 --jobs 2

A belief is a normal distribution for each number, with a standard deviation of `--spread` of its range, and a factor of
3 for each category. The good belief has the optimum within its own error: its centre is drawn from the same
distribution around the optimum. The wrong one is half of the range away, with another category. Each search is a line
of ``beliefs.jsonl``; those that the file has are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import functions
import numpy as np
from crowd import problems as problems_of_crowds
from problems import Problem
from protocol import regrets
from searchers import SEARCHERS

from mpi_opt.core.search_space.space import Categorical, Parameters

RESULTS = Path(__file__).resolve().with_name("beliefs.jsonl")
BELIEFS = ("none", "good", "wrong")
AFTER = (10, 20, 30, 50)
N_TRIALS = 60
OPTIMA: dict[str, Parameters] = {
    "branin": {"x0": 3.14159, "x1": 2.275},
    "hartmann6": dict(zip(functions.cube(6, 0, 1), (0.2017, 0.1500, 0.4769, 0.2753, 0.3117, 0.6573), strict=True)),
    "rosenbrock4": dict.fromkeys(functions.cube(4, 0, 1), 1.0),
    "ackley5c": {f"x{i}": 0.7 * (i - 1) for i in range(4)} | {"shift": "c"},
    "decisive6": {"solver": "c", "form": "q", "norm": "layer", "rate": 10**-4.2, "units": 256, "drop": 0.2},
}


def believed(problem: Problem, belief: str, seed: int, spread: float) -> Problem:
    """The problem with a belief in its space."""
    if belief == "none":
        return problem
    optimum, rng = OPTIMA[problem.name], np.random.default_rng([seed, 5])
    space = {}
    for name, dimension in problem.space.items():
        if isinstance(dimension, Categorical):
            others = [one for one in dimension.categories if one != optimum[name]]
            value = optimum[name] if belief == "good" else others[int(rng.integers(len(others)))]
            space[name] = replace(dimension, expect={"value": value, "factor": 3})
            continue
        best = dimension.encode(optimum[name])
        centre = best + spread * rng.standard_normal() if belief == "good" else (best + 0.5) % 1.0
        value, end = (dimension.decode(min(max(unit, 0.0), 1.0)) for unit in (centre, centre + spread))
        is_log = dimension.prior == "log-uniform"
        width = {"factor": max(end / value, 1.01)} if is_log else {"spread": spread * (dimension.high - dimension.low)}
        space[name] = replace(dimension, expect={"value": value} | width)
    return replace(problem, space=space)


def searched(given: tuple[str, str, int, float]) -> dict:
    """One search, as a line of the results."""
    name, belief, seed, spread = given
    everything = {one.name: one for one in functions.functions()} | problems_of_crowds()
    problem = believed(everything[name], belief, seed, spread)
    curve = regrets(problem, SEARCHERS["bayesian"], seed, N_TRIALS)
    rounded = [float(f"{regret:.4g}") for regret in curve]
    return {"problem": name, "belief": belief, "seed": seed, "spread": spread, "regrets": rounded}


def table(lines: list[dict]) -> str:
    """Median regrets, and the trials until the median regret of the searches without a belief after 30 trials."""
    rows = ["| | belief | " + " | ".join(f"after {n}" for n in AFTER) + " | trials to the target |", "|---" * 7 + "|"]
    for name in dict.fromkeys(line["problem"] for line in lines):
        mine = [line for line in lines if line["problem"] == name]
        of = {b: np.array([line["regrets"] for line in mine if line["belief"] == b]) for b in BELIEFS}
        target = np.median(of["none"][:, 29])
        rows += [f"| {name} | {belief} | {cells(of[belief], target)} |" for belief in BELIEFS]
    return "\n".join(rows)


def cells(curves: np.ndarray, target: float) -> str:
    """A row of the table from the regrets (n_seeds, `N_TRIALS`)."""
    n_needed = np.where((curves <= target).any(axis=1), (curves <= target).argmax(axis=1) + 1, N_TRIALS + 1)
    after = [f"{np.median(curves[:, n - 1]):.2g}" for n in AFTER]
    low, middle, high = np.quantile(n_needed, [0.25, 0.5, 0.75])
    return " | ".join([*after, f"{middle:.0f} ({low:.0f} to {high:.0f})"])


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", default=",".join(OPTIMA))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--spread", type=float, default=0.1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--smoke", action="store_true", help="three searches of branin; prints their table")
    given = parser.parse_args()
    if given.smoke:
        print(table([searched(("branin", belief, 0, given.spread)) for belief in BELIEFS]))
        return
    known = [json.loads(line) for line in given.results.open()] if given.results.is_file() else []
    done = {(line["problem"], line["belief"], line["seed"], line["spread"]) for line in known}
    wanted = [(n, b, s, given.spread) for s in range(given.seeds) for n in given.problems.split(",") for b in BELIEFS]
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool, given.results.open("a") as file:
        for line in pool.map(searched, [one for one in wanted if one not in done]):
            known.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
    print(table([line for line in known if line["spread"] == given.spread]))


if __name__ == "__main__":
    main()
