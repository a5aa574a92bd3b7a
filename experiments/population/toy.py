"""Population-based training against the best constant learning rate of a grid, on noisy descent: ``python toy.py``.

The loss is a quadratic in 50 dimensions with curvatures from 0.02 to 1, and every gradient has noise. A large learning
rate approaches the minimum quickly but does not reach it; a small one gets closer, but slowly. Population and grid
make the same number of steps per network and in total. Both use the smallest loss after any round.
"""

from __future__ import annotations

import argparse

import numpy as np

from mpi_opt.core.search_space.space import Real
from mpi_opt.strategies import make_strategy

CURVATURES = np.geomspace(0.02, 1.0, 50)
N_STEPS, N_ROUNDS, NOISE = 20, 30, 0.3
LOW, HIGH = 1e-3, 1.5


def trained(weights: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
    """`N_STEPS` of stochastic gradient descent."""
    for _ in range(N_STEPS):
        weights = weights - rate * (CURVATURES * weights + NOISE * rng.standard_normal(len(weights)))
    return weights


def loss(weights: np.ndarray) -> float:
    """The quadratic loss: half the squared distance from the minimum, weighted by curvature."""
    return float(0.5 * CURVATURES @ weights**2)


def train_grid(n: int, seed: int) -> tuple[float, float]:
    """The smallest loss after any round with `n` constant rates, and its rate."""
    found = []
    for index, rate in enumerate(np.geomspace(LOW, HIGH, n)):
        rng, weights = np.random.default_rng([seed, index]), np.full(len(CURVATURES), 3.0)
        for _ in range(N_ROUNDS):
            weights = trained(weights, rate, rng)
            found.append((loss(weights), rate))
    return min(found)


def train_population(n: int, seed: int) -> tuple[float, list[float]]:
    """The smallest loss of a population of `n` networks with default options, and its schedule."""
    space = {"rate": Real(LOW, HIGH, prior="log-uniform")}
    strategy = make_strategy("population", space, seed=seed, options={"population": n, "max_budget": N_ROUNDS})
    rng, saved = np.random.default_rng(seed), {None: np.full(len(CURVATURES), 3.0)}
    losses, rates = [], {None: []}  # trial -> the rates of the training that it continues, then its own
    while proposals := strategy.ask(1):
        (one,) = proposals
        saved[one.number] = trained(saved[one.resume_from], one.parameters["rate"], rng)
        rates[one.number] = [*rates[one.resume_from], one.parameters["rate"]]
        losses.append(loss(saved[one.number]))
        strategy.tell(one, losses[-1])
    return min(losses), rates[int(np.argmin(losses))]


def main() -> None:
    """Prints a row for each size of the population."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    print("| networks | best constant rate: loss | population: loss | population better | a schedule |")
    print("|---|---|---|---|---|")
    for n in (8, 16):
        grid, population = [train_grid(n, seed)[0] for seed in seeds], [train_population(n, seed) for seed in seeds]
        ours = [found for found, _ in population]
        better = sum(mine < theirs for mine, theirs in zip(ours, grid, strict=True))
        rates = " ".join(f"{rate:.2g}" for rate in population[0][1][::6])
        cells = (n, f"{np.median(grid):.3g}", f"{np.median(ours):.3g}", f"{better} of {len(ours)}", rates)
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
