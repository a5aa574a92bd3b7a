"""How much of a Pareto front is found: the hypervolume after 60 trials, with and without a part of `evolutionary`.

``python fronts.py [--seeds N]`` prints the table of README.md. The figures of merit are like those of ZDT1 and ZDT2
(Zitzler, Deb and Thiele, Evol. Comput. 8, 2000), with four numbers and a category.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable

import numpy as np

from mpi_opt.core.search_space.space import Categorical, Parameters, Real, Space
from mpi_opt.strategies import evolutionary, make_strategy

SPACE = Space({f"x{index}": Real(0, 1) for index in range(4)} | {"kind": Categorical(["good", "bad"])})
N_TRIALS, N_IN_FLIGHT, FIRST_SEED = 60, 4, 100
REFERENCE = 1.1
"""Both coordinates of the reference point of the hypervolume."""
EXPONENTS = {"convex": 0.5, "not convex": 2.0}
VARIANTS = {
    "`evolutionary`": ("evolutionary", evolutionary.DIFFERENTIAL),
    "`evolutionary` without differences": ("evolutionary", 0.0),
    "`random`": ("random", evolutionary.DIFFERENTIAL),
}

Point = tuple[float, float]


def figures(parameters: Parameters, exponent: float) -> Point:
    """ZDT1 (exponent 0.5) or ZDT2 (exponent 2), whose fronts have x1 = x2 = x3 = 0 and the good category."""
    first = parameters["x0"]
    distance = 1 + 3 * sum(parameters[f"x{index}"] for index in (1, 2, 3)) + (parameters["kind"] == "bad")
    return first, distance * (1 - (first / distance) ** exponent)


def search(name: str, exponent: float, seed: int) -> list[Point]:
    """The figures of merit of all trials of a search, whose trials end in a random order."""
    strategy, rng = make_strategy(name, SPACE, seed=seed, n_figures=2), random.Random(seed)
    running, found = [], []
    while len(found) < N_TRIALS:
        running += strategy.ask(N_IN_FLIGHT - len(running))
        proposal = running.pop(rng.randrange(len(running)))
        found.append(figures(proposal.parameters, exponent))
        strategy.tell(proposal, found[-1])
    return found


def hypervolume(points: list[Point]) -> float:
    """The area that is dominated by the points and bounded by `REFERENCE`."""
    area, height = 0.0, REFERENCE
    for first, second in sorted(point for point in points if point[0] < REFERENCE):
        area += (REFERENCE - first) * max(height - second, 0.0)
        height = min(height, second)
    return area


def largest(curve: Callable[[np.ndarray], np.ndarray]) -> float:
    """The hypervolume of the whole front."""
    first = np.linspace(0, 1, 10_001)
    return hypervolume(list(zip(first.tolist(), curve(first).tolist(), strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(FIRST_SEED, FIRST_SEED + parser.parse_args().seeds)
    print(f"| | {' | '.join(f'{kind} front' for kind in EXPONENTS)} | seeds |\n|---|---|---|---|")
    for label, (name, differential) in VARIANTS.items():
        evolutionary.DIFFERENTIAL = differential
        cells = []
        for exponent in EXPONENTS.values():
            found = [hypervolume(search(name, exponent, seed)) for seed in seeds]
            low, median, high = np.percentile(found, (25, 50, 75))
            cells.append(f"{median:.2f} ({low:.2f} to {high:.2f})")
        print(f"| {label} | {' | '.join(cells)} | {len(seeds)} |", flush=True)
    whole = [largest(lambda first, exponent=exponent: 1 - first**exponent) for exponent in EXPONENTS.values()]
    print(f"| whole front | {' | '.join(f'{value:.2f}' for value in whole)} | – |")


if __name__ == "__main__":
    main()
