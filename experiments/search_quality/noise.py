"""The true regret of the recommended trial and of the trial with the smallest value, with noise in the values.

python noise.py --noise 0.05 --seeds 20          # prints a table; the noise is a part of the function's spread
python noise.py --noise 0 --seeds 3              # without noise, both must be the same trial
python noise.py --smoke                          # one short search
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

os.environ.setdefault("OMP_NUM_THREADS", "1")

import functions
import numpy as np
import unseen
from problems import Problem
from protocol import N_IN_FLIGHT

from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.strategies import make_strategy
from mpi_opt.strategies.surrogates.fitting import ExpectedValues

NAMES = ("branin", "hartmann6", "rosenbrock4", "ackley5c", "conditional7", "integers6", "tree10")
EVERY_FUNCTION = "all"
N_POINTS = 500
"""Number of random points from which the spread of a function is computed."""


def main() -> None:
    """Reads the command line, runs the searches and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=",".join(NAMES), help="names, or `all`")
    parser.add_argument("--strategy", default="bayesian")
    parser.add_argument(
        "--noise", type=float, default=0.05, help="standard deviation, in units of the spread of the function"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    if given.smoke:
        given.problems, given.seeds, given.trials = "branin", 1, 20
    names = [one.name for one in everything()] if given.problems == EVERY_FUNCTION else given.problems.split(",")
    print("| | noisy | smallest value | recommended | best of all trials | ratio of means | other trial |")
    print("|---|---|---|---|---|---|---|")
    search = partial(searched, strategy=given.strategy, noise=given.noise, n_trials=given.trials)
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        for name in names:
            print(row(name, np.array(list(pool.map(partial(search, name), range(given.seeds))))), flush=True)


def everything() -> list[Problem]:
    return [*functions.functions(), *unseen.unseen()]


def row(name: str, found: np.ndarray) -> str:
    """A row of the table from shape (n_seeds, 5), as `searched` returns it."""
    smallest, recommended, oracle, is_noisy, is_other = found.T
    cells = [f"{np.median(each):.3g} (mean {each.mean():.3g})" for each in (smallest, recommended, oracle)]
    ratio = recommended.mean() / max(smallest.mean(), 1e-300)
    return f"| {name} | {is_noisy.mean():.0%} | {' | '.join(cells)} | {ratio:.2f} | {is_other.mean():.0%} |"


def spread(problem: Problem) -> float:
    """The standard deviation of the function at random points."""
    space, rng = Space(problem.space), np.random.default_rng(0)
    return float(np.std([problem.measure(space.sample(rng)) for _ in range(N_POINTS)]))


def searched(name: str, seed: int, *, strategy: str, noise: float, n_trials: int) -> tuple[float, ...]:
    """One search: the true regrets of the trial with the smallest value, of the recommended one and of the best one.

    Also whether the values count as noisy, and whether the two are different trials.
    """
    (problem,) = [one for one in everything() if one.name == name]
    search, rng = make_strategy(strategy, problem.space, seed=seed), np.random.default_rng(seed)
    scale = noise * spread(problem)
    points: list[Parameters] = []
    costs: list[float] = []
    running = []
    while len(costs) < n_trials:
        running += search.ask(min(N_IN_FLIGHT - len(running), n_trials - len(costs) - len(running)))
        proposal = running.pop(int(rng.integers(len(running))))
        points.append(proposal.parameters)
        costs.append(problem.measure(proposal.parameters) + scale * rng.standard_normal())
        search.tell(proposal, costs[-1])
    expected = ExpectedValues(Space(problem.space), points, costs)
    smallest = int(np.argmin(costs))
    recommended = int(np.argmin(expected.means)) if expected.are_noisy else smallest
    regrets = (*(problem.regret(points[each]) for each in (smallest, recommended)), min(map(problem.regret, points)))
    return *regrets, float(expected.are_noisy), float(recommended != smallest)


if __name__ == "__main__":
    main()
