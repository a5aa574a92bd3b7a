"""Compares strategies of MPI Opt with other programs.

    python compare.py --problems branin,digits --searchers bayesian,random --seeds 10

Results are stored in a file, by default ``results.json`` beside this one. Searches that the file has are not run again.
``--readme`` writes the tables of ``results.json`` to README.md and draws the figure, ``--print`` prints the tables of
any file, and ``--smoke`` is a short form that only prints.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import functions
import numpy as np
import problems
import unseen
from protocol import regrets
from searchers import SEARCHERS
from tables import FIVE, N_TRIALS, Results, steps, tables, write_readme

RESULTS = Path(__file__).resolve().with_name("results.json")
SMOKE_TRIALS = 12


class Search(NamedTuple):
    """One search; the noise is relative, as a standard deviation."""

    problem: str
    searcher: str
    seed: int
    noise: float = 0.0

    @property
    def label(self) -> str:
        """The name of the problem in the results."""
        return self.problem + (f" noise {self.noise:g}" if self.noise else "")


def main() -> None:
    """Reads the command line and runs, prints or plots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=",".join(FIVE), help="names, or `tables` for all tables")
    parser.add_argument("--searchers", default=",".join(SEARCHERS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--noise", type=float, default=0.0, help="relative standard deviation of the noise")
    parser.add_argument("--jobs", type=int, default=1, help="searches that run at the same time")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of results; default: results.json")
    parser.add_argument("--readme", action="store_true", help="only write the tables and draw the figure")
    parser.add_argument("--print", action="store_true", help="only print the tables of the file of results")
    parser.add_argument("--smoke", action="store_true", help="two short searches; prints their table")
    given = parser.parse_args()
    if given.readme and given.results.resolve() != RESULTS:
        parser.error("--readme is for results.json only; --print prints the tables of another file")
    results = json.loads(given.results.read_text()) if given.results.is_file() and not given.smoke else {}
    if given.smoke:
        names = ("bayesian", "random")
        results["branin"] = {name: {"0": steps(searched(Search("branin", name, 0), SMOKE_TRIALS))} for name in names}
        print(tables(results))
    elif given.print:
        print(tables(results))
    elif given.readme:
        write_readme(results)
    else:
        run(asked(given), results, given.results, given.jobs)


def asked(given: argparse.Namespace) -> list[Search]:
    """The searches of the command line, all problems with one seed after the other."""
    names = [problem.name for problem in problems.tables()] if given.problems == "tables" else given.problems.split(",")
    everything = itertools.product(range(given.seeds), names, given.searchers.split(","))
    return [Search(name, searcher, seed, given.noise) for seed, name, searcher in everything]


def run(searches: list[Search], results: Results, file: Path, jobs: int) -> None:
    """Runs the searches that `results` lacks, and writes all results to `file` whenever one ends."""
    missing = [one for one in searches if str(one.seed) not in results.get(one.label, {}).get(one.searcher, {})]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        futures = {pool.submit(searched, one): one for one in missing}
        for future in as_completed(futures):
            one, curve = futures[future], future.result()
            results.setdefault(one.label, {}).setdefault(one.searcher, {})[str(one.seed)] = steps(curve)
            print(f"{one.label} {one.searcher} {one.seed}: {curve[-1]:.3g}", flush=True)
            written = file.with_suffix(".tmp")
            written.write_text(json.dumps(results, separators=(",", ":")))
            written.replace(file)


def searched(search: Search, n_trials: int = N_TRIALS) -> np.ndarray:
    """Shape (n_trials,): the regret of the incumbent after each reported trial of one search."""
    everything = [*functions.functions(), *unseen.unseen(), *problems.tables(), problems.digits()]
    (problem,) = [one for one in everything if one.name == search.problem]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return regrets(problem, SEARCHERS[search.searcher], search.seed, n_trials, search.noise)


if __name__ == "__main__":
    main()
