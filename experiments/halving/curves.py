"""``halving`` with a fifth of the epochs against ``random`` with 100 full trainings, on the learning curves of LCBench.

``python curves.py --seeds 10`` prints a line for each task. Eight trials run at the same time, and the time of an epoch
is lognormal. A search receives the accuracy after the number of epochs of the trial's budget. The regret is the best
accuracy of the table after all 52 epochs minus the best accuracy that the search has received. With noise, the regret
uses the accuracy in the table of the configuration with the best received value.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from mpi_opt.core.space import Dimension, Integer, Parameters, Real, Space
from mpi_opt.strategies import make_strategy

TABLE = Path(__file__).resolve().parents[3] / "shared" / "data" / "hpo" / "lcbench_curves.npz"
TASKS = ("3945", "167152", "189866")
N_EPOCHS, N_FULL, N_IN_FLIGHT, FRACTION = 52, 100, 8, 0.2


class Curves:
    """The table of one task: a point of the space is its nearest configuration.

    Args:
        task: The name of the table.
        by_row: Whether the space is the row number, which is unrelated to the hyperparameters, instead of the seven
            hyperparameters.
    """

    def __init__(self, task: str, by_row: bool) -> None:
        table = np.load(TABLE)
        self.accuracy = table[f"val_accuracy_{task}"].astype(float)
        columns = dict(zip(map(str, table["config_names"]), table["config"].astype(float).T, strict=True))
        dimensions = {name: _dimension(column) for name, column in columns.items()}
        self.space = Space({"row": Integer(0, len(self.accuracy) - 1)} if by_row else dimensions)
        self._by_row = by_row
        self._rows = np.array([[_encoded(dimensions[name], x) for x in column] for name, column in columns.items()]).T

    def row(self, parameters: Parameters) -> int:
        """The row of the configuration that is nearest to a point."""
        if self._by_row:
            return parameters["row"]
        return int(((self._rows - self.space.encode(parameters)) ** 2).sum(axis=1).argmin())

    def regret(self, accuracy: float) -> float:
        """The difference from the best accuracy of the table."""
        return float(self.accuracy[:, -1].max()) - accuracy


def _dimension(column: np.ndarray) -> Dimension:
    low, high = float(column.min()), float(column.max())
    prior = "log-uniform" if low > 0 and high > 20 * low else "uniform"
    if (column == np.round(column)).all():
        return Integer(int(low), int(high), prior=prior)
    return Real(low, high, prior=prior)


def _encoded(dimension: Dimension, value: float) -> float:
    return dimension.encode(int(value) if isinstance(dimension, Integer) else value)


def regret_of_random(curves: Curves, seed: int, noise: float) -> float:
    """The regret after `N_FULL` full trainings."""
    strategy, rng = make_strategy("random", curves.space, seed=seed), np.random.default_rng([seed, 1])
    accuracies = [curves.accuracy[curves.row(one.parameters), -1] for one in strategy.ask(N_FULL)]
    return curves.regret(max((accuracy + noise * rng.standard_normal(), accuracy) for accuracy in accuracies)[1])


def regret_of_halving(curves: Curves, seed: int, options: dict, noise: float) -> float:
    """The regret after the fraction `FRACTION` of the epochs of `N_FULL` full trainings."""
    strategy = make_strategy("halving", curves.space, seed=seed, options={"max_budget": N_EPOCHS} | options)
    rng, left, clock, best = np.random.default_rng(seed), FRACTION * N_FULL * N_EPOCHS, 0.0, (-np.inf, -np.inf)
    noises = np.random.default_rng([seed, 1])
    running: list = []
    trained: dict[int | None, float] = {None: 0.0}
    while left > 0 or running:
        while left > 0 and len(running) < N_IN_FLIGHT and (asked := strategy.ask(1)):
            (one,) = asked
            trained[one.number] = one.budget
            n_epochs = one.budget - trained[one.resume_from]
            if n_epochs > left:
                left = 0.0
                break
            left -= n_epochs
            heapq.heappush(running, (clock + n_epochs * rng.lognormal(0.0, 0.5), one.number, one))
        if running:
            clock, _, one = heapq.heappop(running)
            accuracy = curves.accuracy[curves.row(one.parameters), int(one.budget) - 1]
            received = accuracy + noise * noises.standard_normal()
            best = max(best, (received, accuracy))
            strategy.tell(one, -received)
    return curves.regret(best[1])


def main() -> None:
    """Prints a row for each task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--by-row", action="store_true", help="search the number of the row")
    parser.add_argument("--noise", type=float, default=0.0, help="standard deviation of the noise, in percent")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--options", type=json.loads, default={}, help="of halving, as JSON")
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    print("| task | random, all epochs | halving, a fifth | better or equal |\n|---|---|---|---|")
    for task in given.tasks.split(","):
        curves = Curves(task, given.by_row)
        halving = [regret_of_halving(curves, seed, given.options, given.noise) for seed in seeds]
        full = np.median([regret_of_random(curves, seed, given.noise) for seed in range(100)])
        better = sum(regret <= full for regret in halving)
        print(f"| {task} | {full:.3g} | {np.median(halving):.3g} | {better} of {given.seeds} |", flush=True)


if __name__ == "__main__":
    main()
