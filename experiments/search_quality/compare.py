"""Compares strategies of MPI Opt with other programs.

    python compare.py --problems branin,digits --searchers bayesian,random --seeds 10

Results are stored in ``results.json`` beside this file, one curve for each problem, searcher and seed, so that an
interrupted run continues. ``--print`` prints the tables; ``--readme`` writes them to README.md and draws the figure.
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
import problems
import unseen
from protocol import regrets
from searchers import SEARCHERS
from tables import FIVE, tables, write_readme

N_TRIALS = 100
RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    """Reads the command line and runs, prints or plots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=",".join(FIVE), help="names, or `tables` for all tables")
    parser.add_argument("--searchers", default=",".join(SEARCHERS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--noise", type=float, default=0.0, help="relative standard deviation of the noise")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("--readme", action="store_true")
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    if given.print:
        print(tables(results))
    elif given.readme:
        write_readme(results)
    else:
        run(given, results)


def run(given: argparse.Namespace, results: dict) -> None:
    everything = [*functions.functions(), *unseen.unseen(), *problems.tables(), problems.digits()]
    known = {problem.name: problem for problem in everything}
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


if __name__ == "__main__":
    main()
