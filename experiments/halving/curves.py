"""``halving`` with a fifth of the epochs against ``random`` with 100 full trainings, on predicted curves of LCBench.

The curves are predictions of a surrogate (YAHPO Gym), not trainings.

    python experiments/halving/curves.py [--only NAME ...] [--curves FILE]
    python experiments/halving/curves.py --print        # only table and picture, from `results.json`
    python experiments/halving/curves.py --results FILE    # other results; their table is printed, README.md is kept

Eight trials run at the same time, and the time of an epoch is lognormal. A search receives the accuracy after the
number of epochs of the trial's budget. The regret is the best accuracy of the table after all 52 epochs minus the best
accuracy that the search has received. With noise, the regret uses the accuracy in the table of the configuration with
the best received value. The regrets are stored in `results.json`; their table is written to
README.md, and their distributions are drawn in `halving.png`.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.stats import mannwhitneyu

from mpi_opt.core.search_space.space import Dimension, Integer, Parameters, Real, Space
from mpi_opt.strategies import make_strategy

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from markdown_tables import markdown_table, with_quartiles, write_end

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
CURVES = HERE.parents[2] / "shared" / "data" / "hpo" / "lcbench_curves.npz"
TASKS = ("3945", "167152", "189866")
N_EPOCHS, N_FULL, N_IN_FLIGHT, FRACTION = 52, 100, 8, 0.2
N_RANDOM = 100
"""Searches of ``random`` on each task."""


@dataclass(frozen=True)
class Setting:
    """What is compared.

    Attributes:
        by_row: Whether a search proposes the row number of a configuration, instead of its hyperparameters.
        options: The options of ``halving``.
        noise: Standard deviation of the noise in received accuracies, in percent.
        seeds: The seeds of ``halving``.
    """

    by_row: bool
    options: dict = field(default_factory=dict)
    noise: float = 0.0
    seeds: range = range(50)


PUBLISHED = {"factor": 3, "exploration": 0}
SETTINGS = {
    "rows": Setting(True, {"proposer": "random"}),
    "rows, 1 % noise": Setting(True, {"proposer": "random"}, noise=1.0),
    "rows, as published": Setting(True, {"proposer": "random"} | PUBLISHED),
    "hyperparameters": Setting(False, seeds=range(100, 105)),
    "hyperparameters, as published": Setting(False, PUBLISHED, seeds=range(100, 105)),
}
DRAWN = {"halving, a fifth": "rows", "halving, as published": "rows, as published"}
"""Label in the picture -> its setting."""


class Curves:
    """The table of one task: a point of the space is its nearest configuration.

    Args:
        file: All tables.
        task: The name of the table.
        by_row: Whether the space is the row number, which is unrelated to the hyperparameters, instead of the seven
            hyperparameters.
    """

    def __init__(self, file: Path, task: str, by_row: bool) -> None:
        table = np.load(file)
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


def table(results: dict[str, dict[str, dict[str, list[float]]]]) -> str:
    """As Markdown, with the searches of ``halving`` that are as good as the median of ``random``, and a test.

    "P(better)" is the probability that a search of ``halving`` has a smaller regret than one of ``random``, where equal
    regrets count one half. "p" belongs to the two-sided Mann-Whitney test.

    Args:
        results: Setting -> task -> strategy -> the regret of each search.
    """
    head = ["search by", "table", "random, all epochs", "halving, a fifth", "searches of halving", "better or equal"]
    rows = []
    for setting, by_task in results.items():
        for task, regrets in by_task.items():
            halving, median = regrets["halving"], np.median(regrets["random"])
            n_better = sum(regret <= median for regret in halving)
            test = mannwhitneyu(regrets["random"], halving)
            p_better = test.statistic / (len(halving) * len(regrets["random"]))
            row = [setting, task, with_quartiles(regrets["random"]), with_quartiles(halving), len(halving), n_better]
            rows.append([*row, f"{p_better:.2f}", f"{test.pvalue:.3f}" if test.pvalue >= 0.001 else "< 0.001"])
    return markdown_table([*head, "P(better)", "p"], rows)


def draw(results: dict[str, dict[str, dict[str, list[float]]]], file: Path) -> None:
    """The distribution of the regrets of searches by row number, a panel for each table."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3), layout="constrained")
    for axes, task in zip(figure.subplots(1, len(TASKS), sharey=True), TASKS, strict=True):
        axes.ecdf(results["rows"][task]["random"], label="random, all epochs")
        for label, setting in DRAWN.items():
            axes.ecdf(results[setting][task]["halving"], label=label)
        axes.set(title=f"table {task}", xlabel="regret / percentage points", xlim=(0, None))
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("fraction of the searches")
    figure.axes[0].legend(fontsize="small")
    figure.savefig(file, dpi=90)


def main() -> None:
    """Measures, and writes the table to README.md, or prints that of other results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="some of the settings")
    parser.add_argument("--curves", type=Path, default=CURVES, help="file lcbench_curves.npz")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of results; default: results.json")
    parser.add_argument("--print", action="store_true", help="only table and picture, from the file of results")
    given = parser.parse_args()
    results = json.loads(given.results.read_text()) if given.results.exists() else {}
    for name in [] if given.print else given.only:
        setting, by_task = SETTINGS[name], results.setdefault(name, {})
        for task in TASKS:
            curves = Curves(given.curves, task, setting.by_row)
            by_task[task] = {
                "random": [regret_of_random(curves, seed, setting.noise) for seed in range(N_RANDOM)],
                "halving": [regret_of_halving(curves, seed, setting.options, setting.noise) for seed in setting.seeds],
            }
            given.results.write_text(json.dumps(results))
            print(name, task, flush=True)
    if given.results.resolve() == RESULTS:
        write_end(HERE / "README.md", table(results))
        if all(setting in results for setting in DRAWN.values()):
            draw(results, HERE / "halving.png")
    else:
        print(table(results))


if __name__ == "__main__":
    main()
