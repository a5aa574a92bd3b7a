"""Searches with ``pruning: none``, ``median`` and ``curves`` on tables of learning curves, at equal numbers of epochs.

    python experiments/pruning/curves.py [--curves FILE] [--seeds 10] [--strategies random bayesian] [--sets NAME ...]
    python experiments/pruning/curves.py --print        # only the table, from `results.json`

Eight trials run at the same time, and the time of an epoch is lognormal. The curves are predictions of a surrogate of
LCBench, and formulas with noise. Each search is added to `results.json` when it ends, and none is run twice; the table
is written to README.md.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from mpi_opt.coordinator.pruning.curve_rule import CurveRule
from mpi_opt.coordinator.pruning.median_rule import MedianRule
from mpi_opt.coordinator.pruning.pruning_rule import PruningRule
from mpi_opt.core.search_space.space import Dimension, Integer, Real, Space
from mpi_opt.core.trial import Failed
from mpi_opt.strategies import make_strategy

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from markdown_tables import markdown_table, with_quartiles, write_end

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
CURVES = HERE.parents[2] / "shared" / "data" / "hpo" / "lcbench_curves.npz"
TASKS = ("3945", "167152", "189866")
FORMULAS = ("crossing", "late")
RULES = ("none", "median", "curves")
N_IN_FLIGHT, N_FULL, FRACTION = 8, 100, 0.4
"""Trials at the same time; trainings of the search that is the reference; the part of its epochs that searches have."""
FRACTIONS = (0.1, 0.2, 0.4)
FIRST_SEED, N_REFERENCE = 100, 40


@dataclass(frozen=True)
class Table:
    """The costs of 1,500 configurations after each epoch; a point of the space is its nearest configuration."""

    costs: np.ndarray
    space: Space
    rows: np.ndarray

    @property
    def n_epochs(self) -> int:
        return self.costs.shape[1]

    def curve(self, parameters: dict) -> np.ndarray:
        return self.costs[int(((self.rows - self.space.encode(parameters)) ** 2).sum(axis=1).argmin())]


def lcbench(file: Path, task: str) -> Table:
    """Minus the validation accuracy in percent."""
    stored = np.load(file)
    columns = dict(zip(map(str, stored["config_names"]), stored["config"].astype(float).T, strict=True))
    dimensions = {name: _dimension(column) for name, column in columns.items()}
    rows = [[_encoded(dimensions[name], value) for value in column] for name, column in columns.items()]
    return Table(-stored[f"val_accuracy_{task}"].astype(float), Space(dimensions), np.array(rows).T)


def _dimension(column: np.ndarray) -> Dimension:
    low, high = float(column.min()), float(column.max())
    prior = "log-uniform" if low > 0 and high > 20 * low else "uniform"
    is_whole = (column == np.round(column)).all()
    return Integer(int(low), int(high), prior=prior) if is_whole else Real(low, high, prior=prior)


def _encoded(dimension: Dimension, value: float) -> float:
    return dimension.encode(int(value) if isinstance(dimension, Integer) else value)


def crossing(noise: float = 0.006) -> Table:
    """Slow learners end best, some curves rise again, a part of the fastest diverges; with noise."""
    rng, n, n_epochs = np.random.default_rng([0, 0]), 1500, 50
    x, epochs = rng.random((n, 4)), np.arange(1, n_epochs + 1)
    rate = x[:, 0]
    bottom = 0.1 + 0.6 * (rate - 0.25) ** 2 + 0.3 * (x[:, 1] - 0.6) ** 2 + 0.05 * (1 - np.cos(9 * x[:, 2])) * x[:, 3]
    tau = 0.5 * np.exp(3.2 * (1 - rate)) * (0.5 + x[:, 3])
    decay = np.exp(-((epochs / tau[:, None]) ** (0.5 + 0.5 * x[:, 2:3])))
    rise = np.maximum(0, x[:, 1:2] - 0.8) * np.maximum(0, epochs - 25) * 0.01
    costs = bottom[:, None] + (1.2 - bottom[:, None]) * decay + rise + noise * rng.standard_normal((n, n_epochs))
    costs[rng.random(n) < 0.1 * (rate > 0.8)] = np.nan
    return Table(costs, Space({f"x{index}": Real(0.0, 1.0) for index in range(4)}), x)


def late(noise: float = 0.02) -> Table:
    """Costs fall at one epoch: early, or for a random 30 % of the configurations at any time; with noise."""
    rng, n, n_epochs = np.random.default_rng([0, 1]), 1500, 50
    x, epochs = rng.random((n, 4)), np.arange(1, n_epochs + 1)
    drop = np.where(rng.random(n) < 0.3, rng.uniform(5, 40, n), rng.uniform(1, 4, n))
    depth = np.exp(-3 * ((x - 0.35) ** 2).sum(axis=1)) * (0.6 + 0.4 * rng.random(n))
    costs = 2.3 - 1.4 * depth[:, None] / (1 + np.exp(-(epochs - drop[:, None]) / (1 + 3 * x[:, :1])))
    costs -= 0.2 * x[:, 1:2] * np.log(epochs) / np.log(n_epochs)
    costs += noise * rng.standard_normal((n, n_epochs))
    return Table(costs, Space({f"x{index}": Real(0.0, 1.0) for index in range(4)}), x)


def table_of(name: str, file: Path, **noise: float) -> Table:
    return lcbench(file, name) if name in TASKS else {"crossing": crossing, "late": late}[name](**noise)


def rule_of(name: str, space: Space) -> PruningRule | None:
    if name == "curves":
        return CurveRule("", 1.0, space)
    return MedianRule("", 1.0) if name == "median" else None


def search(table: Table, strategy: str, pruning: str, fraction: float, seed: int) -> dict:
    """Runs one search, with the rule as in the coordinator.

    Returns:
        The numbers of epochs at which the best cost improved, with the costs; how many trials were started and how many
        ended completely; and the CPU time of the rule for each epoch, in ms.
    """
    rng, asked = np.random.default_rng([seed, 7]), make_strategy(strategy, table.space, seed=seed)
    rule = rule_of(pruning, table.space)
    n_epochs, running, clock, best = int(N_FULL * table.n_epochs * fraction), [], 0.0, np.inf
    improved, n_trials, n_complete, rule_s = [], 0, 0, 0.0
    for spent in range(1, n_epochs + 1):
        while len(running) < N_IN_FLIGHT:
            (one,) = asked.ask(1)
            epoch_s = rng.lognormal(0.0, 0.5)
            n_trials += 1
            heapq.heappush(running, (clock + epoch_s, one.number, 0, epoch_s, one, table.curve(one.parameters)))
        clock, number, epoch, epoch_s, one, curve = heapq.heappop(running)
        cost, is_last = float(curve[epoch]), epoch + 1 == table.n_epochs
        began_s = time.process_time()
        is_bad = rule is not None and rule.prunes(one, 1, epoch, cost) and not is_last
        if rule is not None and (is_bad or is_last):
            rule.end(one, 1, cost if is_last and np.isfinite(cost) else None)
        rule_s += time.process_time() - began_s
        if not (is_bad or is_last):
            heapq.heappush(running, (clock + epoch_s, number, epoch + 1, epoch_s, one, curve))
            continue
        n_complete += is_last
        asked.tell(one, cost if np.isfinite(cost) else Failed("not finite"))
        if cost < best:
            best = cost
            improved.append((spent, cost))
    return {"improved": improved, "trials": n_trials, "complete": n_complete, "rule_ms": 1e3 * rule_s / n_epochs}


def best_after(result: dict, n_epochs: float) -> float:
    return min((cost for at, cost in result["improved"] if at <= n_epochs), default=np.inf)


def write_table(results: dict[str, dict]) -> None:
    """Regrets, and the epochs to the median regret of the reference, as parts of its epochs."""
    head = ["curves", "strategy", "pruning", "searches", *(f"regret at {part:.0%}" for part in FRACTIONS)]
    head += ["reaches the reference at", "reached by", "trials", "complete", "ms per epoch"]
    rows = []
    for name in (*TASKS, *FORMULAS):
        found = {key.split("/", 1)[1]: one for key, one in results.items() if key.startswith(f"{name}/")}
        if "reference" not in found:
            continue
        n_epochs, optimum, reference = (found["reference"][key] for key in ("epochs", "optimum", "costs"))
        limit = float(np.median(reference))
        rows.append(
            [name, "random", "none, all epochs", len(reference), "", "", "", "1", f"{limit - optimum:.3g}", "", "", ""]
        )
        for strategy in ("random", "bayesian"):
            for pruning in RULES:
                own = [one for key, one in found.items() if key.startswith(f"{strategy}/{pruning}/")]
                if not own:
                    continue
                reach = [
                    min((at for at, cost in one["improved"] if cost <= limit), default=np.inf) / n_epochs for one in own
                ]
                regrets = [
                    with_quartiles([best_after(one, part * n_epochs) - optimum for one in own]) for part in FRACTIONS
                ]
                middle = float(np.median(reach))
                row = [name, strategy, pruning, len(own), *regrets, f"{middle:.2f}" if middle < 9 else f"> {FRACTION}"]
                row += [f"{sum(np.isfinite(reach))} of {len(own)}"]
                rows.append(
                    row
                    + [
                        f"{np.mean([one[key] for one in own]):.{digits}f}"
                        for key, digits in (("trials", 0), ("complete", 0), ("rule_ms", 2))
                    ]
                )
    write_end(HERE / "README.md", markdown_table(head, rows))


def main() -> None:
    """Runs the searches that are not in `results.json`, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--curves", type=Path, default=CURVES, help="file lcbench_curves.npz")
    parser.add_argument("--seeds", type=int, default=10, help="searches of each kind")
    parser.add_argument("--strategies", nargs="+", choices=("random", "bayesian"), default=["random", "bayesian"])
    parser.add_argument("--sets", nargs="+", choices=(*TASKS, *FORMULAS), default=[*TASKS, *FORMULAS])
    parser.add_argument("--print", action="store_true", help="only the table, from results.json")
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    tables = {} if given.print else {name: table_of(name, given.curves) for name in given.sets}
    for name, table in tables.items():
        if f"{name}/reference" not in results:
            costs = [best_after(search(table, "random", "none", 1.0, seed), np.inf) for seed in range(N_REFERENCE)]
            optimum = float(np.nanmin(table.costs[:, -1]))
            results[f"{name}/reference"] = {"epochs": N_FULL * table.n_epochs, "optimum": optimum, "costs": costs}
    for seed in range(FIRST_SEED, FIRST_SEED + given.seeds):
        for strategy in given.strategies:
            for name, table in tables.items():
                for pruning in RULES:
                    key = f"{name}/{strategy}/{pruning}/{seed}"
                    if key not in results:
                        results[key] = search(table, strategy, pruning, FRACTION, seed)
                        RESULTS.write_text(json.dumps(results))
                        print(key, {one: results[key][one] for one in ("trials", "complete", "rule_ms")}, flush=True)
    write_table(results)


if __name__ == "__main__":
    main()
