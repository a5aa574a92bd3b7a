"""How much an earlier study helps, and how much a misleading one hurts: simple regret with transfer and without.

``python measure.py --seeds 8`` prints a table and writes it to table.md. Nothing is trained: the studies are functions.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mpi_opt.core.space import Parameters, Real, Space
from mpi_opt.strategies import Transfer, make_strategy

SPACE = Space({name: Real(0, 1) for name in ("a", "b", "c", "d")})
N_EARLIER, AT = 60, (10, 20, 30, 40)
Function = Callable[[np.ndarray], float]


def rugged(shift: float, scale: float = 1.0) -> Function:
    """A narrow bent valley with waves, with minimum 0 at 0.35 + shift."""

    def value(x: np.ndarray) -> float:
        y = x - 0.35 - shift * np.array([1.0, -1.0, 0.5, -0.5])
        valley = 20 * (y[1] - 2 * y[0] ** 2) ** 2 + y[0] ** 2 + 10 * (y[2] - y[3]) ** 2 + y[3] ** 2
        return float(scale * (valley + 0.1 * (1 - np.cos(9 * y)).sum()))

    return value


NEW = rugged(0.0)
EARLIER: dict[str, Function] = {
    "shifted by 0.03, 50 times as large": rugged(0.03, 50.0),
    "shifted by 0.1": rugged(0.1),
    "unrelated": lambda x: float(((x - np.array([0.9, 0.1, 0.9, 0.1])) ** 2).sum()),
    "the opposite": lambda x: -NEW(x),
}
WAYS = {"best 5": False, "best 5, learn": True}
"""Name in the table -> whether the search learns from the other trials."""


def point_of(parameters: Parameters) -> np.ndarray:
    """As an array of shape (n_dimensions,)."""
    return np.array([parameters[name] for name in SPACE])


def regrets(transfer: Transfer | None, seed: int) -> list[float]:
    """The smallest value after each number of trials in `AT`, with 4 concurrent trials."""
    strategy = make_strategy("bayesian", SPACE, seed=seed, transfer=transfer)
    rng, pending, values = random.Random(seed), [], []
    while len(values) < AT[-1]:
        pending += strategy.ask(4 - len(pending))
        proposal = pending.pop(rng.randrange(len(pending)))
        values.append(NEW(point_of(proposal.parameters)))
        strategy.tell(proposal, values[-1])
    return [min(values[:n]) for n in AT]


def searched(function: Function, seed: int) -> list[tuple[Parameters, float]]:
    """The trials of an earlier search, best first."""
    strategy, found = make_strategy("evolutionary", SPACE, seed=seed + 1000), []
    for _ in range(N_EARLIER):
        (proposal,) = strategy.ask(1)
        found.append((proposal.parameters, function(point_of(proposal.parameters))))
        strategy.tell(proposal, found[-1][1])
    return sorted(found, key=lambda one: one[1])


def main() -> None:
    """Measures and writes the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=8)
    seeds = range(parser.parse_args().seeds)
    rows = {"none, without transfer": np.median([regrets(None, seed) for seed in seeds], axis=0)}
    print(rows, flush=True)
    for name, function in EARLIER.items():
        for way, learn in WAYS.items():
            found = [regrets(Transfer(searched(function, seed), 5, learn), seed) for seed in seeds]
            rows[f"{name}, {way}"] = np.median(found, axis=0)
            print(f"{name}, {way}", rows[f"{name}, {way}"], flush=True)
    lines = ["| earlier study | " + " | ".join(f"{n} trials" for n in AT) + " |", "|---|" + "---|" * len(AT)]
    lines += [f"| {name} | " + " | ".join(f"{value:.2g}" for value in row) + " |" for name, row in rows.items()]
    Path(__file__).with_name("table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
