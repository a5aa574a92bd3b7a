"""Whether the probability of `search.confirm` that the best point is better than the default is calibrated.

    python confirm.py --searches 100          # prints a table of reported probabilities and true frequencies
    python confirm.py --smoke

The functions are drawn at random. The default configuration is close to the minimum of many of them, and the noise is
as large as the differences between good points, so that the answer is often uncertain.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from itertools import pairwise
from multiprocessing import get_context

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from mpi_opt.core.figures import Figures, Measured
from mpi_opt.core.figures_of_merit import MAIN
from mpi_opt.core.search_space.space import Parameters, Real, Space
from mpi_opt.core.trial import TrialRecord
from mpi_opt.store.records import StudyRecord
from mpi_opt.strategies import make_strategy
from mpi_opt.study.confirmation import best_points, confirmation

SPACE = Space({f"x{index}": Real(0, 1) for index in range(3)})
LIMITS = (0.0, 0.5, 0.75, 0.9, 0.97, 1.0)
N_TRIALS, N_NEW, N_IN_FLIGHT = 40, 5, 8


def main() -> None:
    """Reads the command line, runs the searches and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--strategy", default="evolutionary")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    with get_context("spawn").Pool(given.jobs) as pool:
        found = pool.map(partial(searched, given.strategy), range(2 if given.smoke else given.searches))
    table(np.array([each for each in found if each is not None]))


def table(found: np.ndarray) -> None:
    """Prints the reported probability and the frequency with which the best point is better, in ranges."""
    reported, is_better = found.T
    print(f"{len(found)} searches: mean probability {reported.mean():.2f}, better in {is_better.mean():.2f}")
    print(f"Brier score {np.mean((reported - is_better) ** 2):.3f}; of a constant {is_better.var():.3f}\n")
    print("| probability | searches | mean probability | better |\n|---|---|---|---|")
    for low, high in pairwise(LIMITS):
        inside = (reported >= low) & ((reported < high) | (high == LIMITS[-1]))
        if inside.any():
            print(
                f"| {low} to {high} | {inside.sum()} | {reported[inside].mean():.2f} | {is_better[inside].mean():.2f} |"
            )


def searched(strategy: str, seed: int) -> tuple[float, float] | None:
    """One search: the probability that it reports, and whether its best point is better than the default.

    None if the best point is the default.
    """
    rng = np.random.default_rng(seed)
    centre = np.clip(0.5 + rng.uniform(0.0, 0.3) * rng.standard_normal(3), 0.0, 1.0)
    scales, power = rng.lognormal(0.0, 1.0, 3), rng.choice([1.0, 2.0])
    noise = rng.uniform(0.02, 0.3) * float(np.mean(scales)) * 0.5**power

    def true_cost(point: Parameters) -> float:
        return float(np.sum(scales * np.abs(SPACE.encode(point) - centre) ** power))

    def run(number: int, point: Parameters) -> TrialRecord:
        value = true_cost(point) + noise * rng.standard_normal()
        return TrialRecord(number, "complete", point, Figures({MAIN: Measured(value)}))

    search = make_strategy(strategy, SPACE, seed=seed)
    trials: list[TrialRecord] = []
    running = []
    while len(trials) < N_TRIALS:
        running += search.ask(min(N_IN_FLIGHT - len(running), N_TRIALS - len(trials) - len(running)))
        proposal = running.pop(int(rng.integers(len(running))))
        trials.append(run(proposal.number, proposal.parameters))
        search.tell(proposal, trials[-1].figure_of_merit)
    study = StudyRecord(1, "s", "minimize", strategy, seed, "", {}, SPACE, "")
    points = [*(one.parameters for one in best_points(study, trials)), SPACE.default()]
    again = [run(N_TRIALS + index, points[index % len(points)]) for index in range(N_NEW * len(points))]
    options = {"search": {"options": {"points": points, "default": SPACE.default()}}}
    confirmed = confirmation(study, trials, StudyRecord(2, "c", "minimize", "", seed, "", options, SPACE, ""), again)
    if confirmed is None or confirmed.probability is None:
        return None
    return confirmed.probability, float(true_cost(confirmed.winner.parameters) < true_cost(SPACE.default()))


if __name__ == "__main__":
    main()
