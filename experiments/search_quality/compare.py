"""Compares strategies and peers: ``python compare.py --problems branin,digits --searchers bayesian,random --seeds 10``.

Results are kept in ``results.json`` beside this file, one curve for each problem, searcher and seed, so that a run that
was broken off goes on; ``--print`` writes the tables, ``--plot`` the picture.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import functions
import numpy as np
import problems
from protocol import regrets
from searchers import SEARCHERS

N_TRIALS = 100
RESULTS = Path(__file__).with_name("results.json")
FIVE = ("branin", "hartmann6", "rosenbrock4", "ackley5c", "digits")


def main() -> None:
    """Reads the command line and runs, prints or plots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=",".join(FIVE), help="names, or `tables` for all tables")
    parser.add_argument("--searchers", default=",".join(SEARCHERS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--noise", type=float, default=0.0, help="relative standard deviation of what is told")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    if given.print:
        print_table(results)
    elif given.plot:
        plot(results, given.plot)
    else:
        run(given, results)


def run(given: argparse.Namespace, results: dict) -> None:
    known = {problem.name: problem for problem in [*functions.functions(), *problems.tables(), problems.digits()]}
    names = [problem.name for problem in problems.tables()] if given.problems == "tables" else given.problems.split(",")
    for seed in range(given.seeds):
        for name in names:
            for searcher in given.searchers.split(","):
                label = name + (f" noise {given.noise:g}" if given.noise else "")
                done = results.setdefault(label, {}).setdefault(searcher, {})
                if str(seed) in done:
                    continue
                started = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    curve = regrets(known[name], SEARCHERS[searcher], seed, N_TRIALS, given.noise)
                done[str(seed)] = [float(f"{regret:.4g}") for regret in curve]
                print(
                    f"{label} {searcher} {seed}: {curve[-1]:.3g} in {time.perf_counter() - started:.1f} s", flush=True
                )
                written = RESULTS.with_suffix(".tmp")
                written.write_text(json.dumps(results))
                written.replace(RESULTS)


def medians(curves: dict[str, list[float]]) -> np.ndarray:
    """Shape (n_trials,): the median over seeds."""
    return np.median(np.array(list(curves.values())), axis=0)


def print_table(results: dict) -> None:
    """Median regret after 50 / 100 trials, and for the tables the mean rank."""
    labels = [label for label in results if "." not in label.split(" ")[0]]
    searchers = [name for name in SEARCHERS if any(name in results[label] for label in results)]
    print("| | " + " | ".join(labels) + " |\n|---" * 1 + "|---" * len(labels) + "|")
    for name in searchers:
        cells = [_cell(results[label].get(name)) for label in labels]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print_ranks(results, searchers)


def _cell(curves: dict[str, list[float]] | None) -> str:
    if not curves:
        return "–"
    middle = medians(curves)
    return f"{middle[49]:.2g} / {middle[-1]:.2g} ({len(curves)})"


def print_ranks(results: dict, searchers: list[str]) -> None:
    tables = [label for label in results if "." in label.split(" ")[0]]
    present = [name for name in searchers if tables and all(name in results[label] for label in tables)]
    if not present:
        return
    means = np.array([[np.mean([c[-1] for c in results[t][name].values()]) for t in tables] for name in present])
    ranks = means.argsort(axis=0).argsort(axis=0) + 1
    print(f"\n| mean regret's rank of {len(present)} over {len(tables)} tables | mean | " + " | ".join(tables) + " |")
    print("|---" * (2 + len(tables)) + "|")
    for name, row in zip(present, ranks, strict=True):
        print(f"| {name} | {row.mean():.2f} | " + " | ".join(map(str, row)) + " |")


def plot(results: dict, path: Path) -> None:
    """Median regret against trials, a panel a problem."""
    from matplotlib import pyplot

    labels = [label for label in FIVE if label in results]
    figure, axes = pyplot.subplots(1, len(labels), figsize=(4 * len(labels), 3.6), layout="constrained")
    for axis, label in zip(np.atleast_1d(axes), labels, strict=True):
        for name in SEARCHERS:
            if name in results[label]:
                width = 2.5 if name in ("bayesian", "evolutionary") else 1.0
                axis.semilogy(np.maximum(medians(results[label][name]), 1e-8), label=name, linewidth=width)
        axis.set(title=label, xlabel="trials told")
    np.atleast_1d(axes)[0].set_ylabel("median simple regret")
    np.atleast_1d(axes)[-1].legend(fontsize=7)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
