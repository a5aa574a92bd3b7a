"""A joint model of configuration and epoch, `halving` and ``pruning: curves``, at equal numbers of epochs.

    python experiments/freeze_thaw/compare.py [--curves FILE] [--seeds 10] [--searches NAME ...] [--sets NAME ...]
    python experiments/freeze_thaw/compare.py --print        # only the table, from `results.json`

The curves are those of ``experiments/pruning``. Eight trials run at the same time, and the time of an epoch is
lognormal. Each search is added to `results.json` when it ends, and none is run twice; the table is written to
README.md.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from freeze_thaw import FreezeThaw
from scipy.stats import mannwhitneyu

from mpi_opt.coordinator.pruning.curve_rule import CurveRule
from mpi_opt.core.trial import Failed
from mpi_opt.strategies import make_strategy

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("common", "pruning")]
import curves as pruning
from markdown_tables import markdown_table, with_quartiles, write_end

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
N_IN_FLIGHT, N_FULL, FRACTION, FRACTIONS = 8, 100, 0.2, (0.05, 0.1, 0.2)
FIRST_SEED, N_REFERENCE = 100, 40
JOINT = "joint model"
SEARCHES = {
    "halving, random points": lambda table, seed: make_strategy(
        "halving", table.space, seed=seed, options={"max_budget": table.n_epochs, "proposer": "random"}
    ),
    "random, pruning: curves": None,
    JOINT: lambda table, seed: FreezeThaw(table.space, seed, table.n_epochs),
    "joint model, no finishing": lambda table, seed: FreezeThaw(table.space, seed, table.n_epochs, finishing=0.0),
}
"""Name -> constructs the strategy."""


class Best:
    """The best received cost of a search, and how often it has improved.

    Costs of the formulas have noise. A search is judged by the cost without noise of its best received one.
    """

    def __init__(self, table: object, exact: np.ndarray) -> None:
        self._table, self._exact, self._cost = table, exact, np.inf
        self.improved: list[tuple[int, float]] = []

    def add(self, spent: int, parameters: dict, n_epochs: int) -> float:
        """Enters a trial that has trained `n_epochs`; returns its cost."""
        row = int(((self._table.rows - self._table.space.encode(parameters)) ** 2).sum(axis=1).argmin())
        cost = float(self._table.costs[row, n_epochs - 1])
        if cost < self._cost:
            self._cost = cost
            self.improved.append((spent, float(self._exact[row, n_epochs - 1])))
        return cost


def reference(table: object, exact: np.ndarray, seed: int) -> dict:
    """`N_FULL` full trainings of ``random``."""
    best = Best(table, exact)
    for number, one in enumerate(make_strategy("random", table.space, seed=seed).ask(N_FULL), 1):
        best.add(number * table.n_epochs, one.parameters, table.n_epochs)
    return {"improved": best.improved}


def search(strategy: object, table: object, exact: np.ndarray, seed: int) -> dict:
    """Runs a search whose trials have budgets."""
    rng, best, n_left = np.random.default_rng([seed, 7]), Best(table, exact), int(N_FULL * table.n_epochs * FRACTION)
    clock, running, trained, n_new, n_complete = 0.0, [], {None: 0}, 0, 0
    began_s, n_epochs = time.process_time(), n_left
    while n_left > 0 or running:
        while n_left > 0 and len(running) < N_IN_FLIGHT and (asked := strategy.ask(1)):
            (one,) = asked
            trained[one.number] = round(one.budget)
            epochs = trained[one.number] - trained[one.resume_from]
            if epochs > n_left:
                n_left = 0
                break
            n_left, n_new = n_left - epochs, n_new + (one.resume_from is None)
            heapq.heappush(running, (clock + epochs * rng.lognormal(0.0, 0.5), one.number, one))
        if not running:
            break
        clock, number, one = heapq.heappop(running)
        cost = best.add(n_epochs - n_left, one.parameters, trained[number])
        n_complete += trained[number] == table.n_epochs
        strategy.tell(one, cost if np.isfinite(cost) else Failed("not finite"))
    ms = 1e3 * (time.process_time() - began_s) / len(trained)
    return {"improved": best.improved, "configurations": n_new, "complete": n_complete, "ms": ms}


def pruned_search(table: object, exact: np.ndarray, seed: int) -> dict:
    """Runs a search of ``random`` with ``pruning: curves``."""
    rng, asked = np.random.default_rng([seed, 7]), make_strategy("random", table.space, seed=seed)
    rule, best, running, clock, n_complete = CurveRule("", 1.0, table.space), Best(table, exact), [], 0.0, 0
    began_s, n_epochs = time.process_time(), int(N_FULL * table.n_epochs * FRACTION)
    for spent in range(1, n_epochs + 1):
        while len(running) < N_IN_FLIGHT:
            (one,) = asked.ask(1)
            epoch_s = rng.lognormal(0.0, 0.5)
            heapq.heappush(running, (clock + epoch_s, one.number, 1, epoch_s, one))
        clock, number, epochs, epoch_s, one = heapq.heappop(running)
        cost = best.add(spent, one.parameters, epochs)
        is_last = epochs == table.n_epochs
        if is_last or rule.prunes(one, 1, epochs - 1, cost):
            rule.end(one, 1, cost if is_last and np.isfinite(cost) else None)
            n_complete += is_last
        else:
            heapq.heappush(running, (clock + epoch_s, number, epochs + 1, epoch_s, one))
    ms = 1e3 * (time.process_time() - began_s) / (number + 1)
    return {"improved": best.improved, "configurations": number + 1, "complete": n_complete, "ms": ms}


def best_after(result: dict, n_epochs: float) -> float:
    return next((cost for at, cost in reversed(result["improved"]) if at <= n_epochs), np.inf)


def _comparison(joint: list[dict], others: list[dict]) -> str:
    """The probability that a search with the joint model has a smaller regret, and p of the Mann-Whitney test."""
    test = mannwhitneyu(*([best_after(one, np.inf) for one in each] for each in (others, joint)))
    p = f"= {test.pvalue:.3f}" if test.pvalue >= 0.001 else "< 0.001"
    return f"{test.statistic / (len(joint) * len(others)):.2f} (p {p})"


def write_table(results: dict[str, dict]) -> None:
    head = ["curves", "search", "searches", *(f"regret at {part:.0%}" for part in FRACTIONS), "P(better)"]
    head += ["reaches the reference", "configurations", "complete", "ms per trial", "joint model better"]
    rows = []
    for name in (*pruning.TASKS, *pruning.FORMULAS):
        if (of := results.get(f"{name}/reference")) is None:
            continue
        regrets = np.array([best_after(one, np.inf) for one in of["searches"]]) - of["optimum"]
        limit = float(np.median(regrets))
        rows.append([name, "random, all epochs", len(regrets), "", "", with_quartiles(regrets), *[""] * 6])
        found = {
            label: [one for key, one in results.items() if key.startswith(f"{name}/{label}/")] for label in SEARCHES
        }
        for label, own in ({"random, full trainings": of["searches"]} | found).items():
            if not own:
                continue
            at = [[best_after(one, part * of["epochs"]) - of["optimum"] for one in own] for part in FRACTIONS]
            better = np.mean([(each < regrets).mean() + 0.5 * (each == regrets).mean() for each in at[-1]])
            n_reached = sum(cost <= limit for cost in at[-1])
            row = [name, label, len(own), *map(with_quartiles, at), f"{better:.2f}", f"{n_reached} of {len(own)}"]
            for key, digits in (("configurations", 0), ("complete", 0), ("ms", 1)):
                row.append(f"{np.mean([one[key] for one in own]):.{digits}f}" if key in own[0] else "")
            rows.append([*row, "" if label in ("random, full trainings", JOINT) else _comparison(found[JOINT], own)])
    write_end(HERE / "README.md", markdown_table(head, rows))


def main() -> None:
    """Runs the searches that are not in `results.json`, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--curves", type=Path, default=pruning.CURVES, help="file lcbench_curves.npz")
    parser.add_argument("--seeds", type=int, default=10, help="searches of each kind")
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    sets = (*pruning.TASKS, *pruning.FORMULAS)
    parser.add_argument("--sets", nargs="+", choices=sets, default=sets)
    parser.add_argument("--print", action="store_true", help="only the table, from results.json")
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    tables = {} if given.print else {name: pruning.table_of(name, given.curves) for name in given.sets}
    exact = {name: pruning.table_of(name, given.curves, noise=0.0).costs for name in tables}
    for name, table in tables.items():
        if f"{name}/reference" not in results:
            searches = [reference(table, exact[name], seed) for seed in range(N_REFERENCE)]
            optimum, n_epochs = float(np.nanmin(exact[name][:, -1])), N_FULL * table.n_epochs
            results[f"{name}/reference"] = {"epochs": n_epochs, "optimum": optimum, "searches": searches}
    for seed in range(FIRST_SEED, FIRST_SEED + given.seeds):
        for label in given.searches:
            for name, table in tables.items():
                key = f"{name}/{label}/{seed}"
                if key not in results:
                    make = SEARCHES[label]
                    found = search(make(table, seed), table, exact[name], seed) if make else None
                    results[key] = found or pruned_search(table, exact[name], seed)
                    RESULTS.write_text(json.dumps(results))
                    print(key, results[key]["improved"][-1], round(results[key]["ms"], 1), flush=True)
    write_table(results)


if __name__ == "__main__":
    main()
