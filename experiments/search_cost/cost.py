"""The CPU time of a tell and an ask after a number of observed trials.

Usage: ``python cost.py [--peers] [--in-flight]``.

The space has six hyperparameters of different types. There is one thread and one pending trial, so that every ask waits
for a model. With ``--in-flight``: the CPU time of `evolutionary` for several numbers of pending trials.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).resolve().parents[1] / "search_quality"))

import numpy as np
from searchers import SEARCHERS

from mpi_opt.core.search_space.space import Categorical, Integer, Parameters, Real, Space
from mpi_opt.core.trial import Proposal
from mpi_opt.strategies import make_strategy

SPACE = {
    "rate": Real(1e-4, 1, prior="log-uniform"),
    "a": Real(0, 1),
    "b": Real(0, 1),
    "width": Integer(1, 64),
    "units": Integer(16, 256, step=16),
    "kind": Categorical(("x", "y", "z")),
}
SIZES = (50, 100, 200, 400)
N_REPEATS = 5


def cost(parameters: Parameters) -> float:
    distance = (parameters["a"] - 0.3) ** 2 + (math.log10(parameters["rate"]) + 2) ** 2 / 10
    return (
        distance + parameters["a"] * parameters["b"] + abs(parameters["width"] - 20) / 20 + (parameters["kind"] != "y")
    )


def seconds_per_trial(name: str) -> list[list[float]]:
    """For each of `SIZES`, the times of the next `N_REPEATS` trials."""
    searcher, found = SEARCHERS[name](SPACE, 0), []
    points = SEARCHERS["random"](SPACE, 1)
    n_reported = 0
    for size in SIZES:
        if name in ("bayesian", "evolutionary"):  # accept trials that they did not propose, which saves hours
            found.append(_seconds(_primed(name, points, size), cost))
            continue
        while n_reported < size:
            token, parameters = searcher.ask()
            searcher.tell(token, cost(parameters))
            n_reported += 1
        found.append(_seconds(searcher, cost))
        n_reported += N_REPEATS
    return found


def _primed(name: str, points: object, n_reported: int) -> object:
    searcher = SEARCHERS[name](SPACE, 0)
    for number in range(n_reported):
        _, parameters = points.ask()
        searcher._strategy.tell(Proposal(number, parameters), cost(parameters))
    return searcher


def _seconds(searcher: object, function: object) -> list[float]:
    taken = []
    for _ in range(N_REPEATS):
        started = time.process_time()
        token, parameters = searcher.ask()
        searcher.tell(token, function(parameters))
        taken.append(time.process_time() - started)
    return taken


def in_flight(pending: tuple[int, ...] = (8, 64, 1000), n_reported: int = 1000, n_trials: int = 100) -> None:
    """Prints the CPU time of `evolutionary` per trial, a tell and an ask, for several numbers of pending trials."""
    space, rng = Space(SPACE), np.random.default_rng(0)
    print("| pending trials | CPU ms of a tell and an ask |\n|---|---|")
    for n_pending in pending:
        strategy = make_strategy("evolutionary", space, seed=1)
        observed = [Proposal(number, space.sample(rng)) for number in range(n_reported)]
        strategy.resume([(proposal, cost(proposal.parameters)) for proposal in observed])
        waiting, taken = strategy.ask(n_pending), []
        for _ in range(n_trials):
            proposal = waiting.pop(0)
            started = time.process_time()
            strategy.tell(proposal, cost(proposal.parameters))
            waiting += strategy.ask(1)
            taken.append(time.process_time() - started)
        print(f"| {n_pending} | {milliseconds(taken)} |", flush=True)


def main() -> None:
    """Reads the command line; prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true", help="also measure Optuna and scikit-optimize")
    parser.add_argument("--in-flight", action="store_true", help="measure evolutionary with up to 1,000 pending trials")
    given = parser.parse_args()
    if given.in_flight:
        in_flight()
        return
    names = ["random", "sobol", "evolutionary", "bayesian"]
    names += ["Optuna TPE", "Optuna GPSampler", "scikit-optimize"] if given.peers else []
    print(
        "| CPU ms of a tell and an ask after | " + " | ".join(map(str, SIZES)) + " |\n|---" + "|---" * len(SIZES) + "|"
    )
    for name in names:
        print(f"| {name} | {' | '.join(map(milliseconds, seconds_per_trial(name)))} |", flush=True)


def milliseconds(seconds: list[float]) -> str:
    """The median, the smallest and the largest time."""
    return f"{1e3 * np.median(seconds):.3g} ({1e3 * min(seconds):.3g} to {1e3 * max(seconds):.3g})"


if __name__ == "__main__":
    main()
