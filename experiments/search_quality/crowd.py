"""Searches with 8, 64 and 1,000 trials in flight, in virtual time; of other programs, too (`searchers.SEARCHERS`).

    python crowd.py --in-flight 64 --trials 640 --strategies "auto;evolutionary;random;Optuna TPE" --problems powell8

The durations of trials are lognormal with the mean `--duration`. By default proposals take no time, and one is made
whenever a trial ends. With `--charge`, the CPU time of each `ask` and `tell` passes on the virtual clock, one `ask` is
for all blocks that are idle, and the search has the budget for waiting of the real coordinator. Each search is a line
of ``crowd.jsonl``; those that the file has are not run again. ``--readme`` writes the tables to README.md.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from coco import CHOSEN, coco
from crowd_tables import tables
from functions import ackley, cube, functions, of_reals, rastrigin
from problems import Problem
from searchers import Peer
from tables import steps
from unseen import unseen

from mpi_opt.coordinator.trials.waiting_budget import WaitingBudget
from mpi_opt.core.search_space.space import Categorical, Integer, Parameters, Real
from mpi_opt.core.trial import Proposal
from mpi_opt.strategies.make_strategy import STRATEGIES, make_strategy

HERE = Path(__file__).resolve().parent
RESULTS, README = HERE / "crowd.jsonl", HERE / "README.md"
BEGIN, END = "<!-- crowd: written by crowd.py --readme -->", "<!-- end of crowd -->"


def rates(parameters: Parameters) -> float:
    """A bowl in the logarithms of five hyperparameters, of which neighbours matter together; 0 at its centre."""
    x = np.log10(np.array(list(parameters.values()))) + np.array([2.0, 3.3, 1.2, 4.1, 2.6])
    return float(np.sum(x**2) + np.sum((x[1:] - 0.5 * x[:-1]) ** 2))


_TURN = np.linalg.qr(np.random.default_rng(11).standard_normal((5, 5)))[0]
_AXES = 10.0 ** np.linspace(0, 4, 5)


def ellipsoid(x: np.ndarray) -> float:
    """A rotated ellipsoid with a condition number of 10,000; 0 at its centre."""
    turned = _TURN @ (x - 0.3 * np.arange(-2, 3))
    return float(np.sum(_AXES * turned**2))


_CHOICES = {"solver": ("a", "b", "c", "d"), "form": ("p", "q", "r"), "norm": ("none", "batch", "layer")}


def decisive(parameters: Parameters) -> float:
    """Three categories decide: one combination is the best, but only near its optimum; 0 there."""
    solver, form, norm = (parameters[name] for name in _CHOICES)
    rate, units, drop = math.log10(parameters["rate"]), math.log2(parameters["units"]), parameters["drop"]
    if solver == "c":
        error = 0.015 * (rate + 4.2) ** 2 + 0.006 * (units - 8) ** 2 + 0.4 * (drop - 0.2) ** 2
        return error + 0.05 * (form != "q") + 0.06 * (norm != "layer")
    error = 0.103 + {"a": 0.0, "b": 0.009, "d": 0.05}[solver]
    error += 0.004 * (rate + 2.0) ** 2 + 0.002 * (units - 6) ** 2 + 0.05 * (drop - 0.4) ** 2
    return error + 0.01 * (form == "q") + 0.01 * (norm == "layer")


def problem_named(name: str) -> Problem:
    """A problem of this module, of COCO, or a function."""
    known = {one.name: one for one in [*functions(), *unseen()]} | problems()
    return coco(name) if name in CHOSEN else known[name]


def problems() -> dict[str, Problem]:
    """Those of this module, by name."""
    mixed = {name: Categorical(values) for name, values in _CHOICES.items()} | {
        "rate": Real(1e-6, 1, prior="log-uniform"),
        "units": Integer(8, 1024, prior="log-uniform"),
        "drop": Real(0, 0.8),
    }
    logarithmic = {f"x{index}": Real(1e-7, 10.0, prior="log-uniform") for index in range(5)}
    found = [
        Problem("rates5", logarithmic, rates, rates),
        of_reals("ellipsoid5", cube(5, -5, 5), ellipsoid, 0.0),
        of_reals("rastrigin6", cube(6, -4, 5), rastrigin, 0.0),
        Problem("decisive6", mixed, decisive, decisive),
        of_reals("ackley10", cube(10, -32.768, 32.768), ackley, 0.0),
    ]
    return {problem.name: problem for problem in found}


@dataclass(frozen=True)
class Search:
    """One search. Times are in seconds.

    Attributes:
        problem: The name of the problem.
        strategy: The name of the strategy.
        seed: Of the strategy and of the durations.
        in_flight: Number of blocks.
        trials: Number of trials.
        duration_s: Mean duration of a trial.
        charge: Whether the CPU time of the strategy passes on the virtual clock.
        limit_s: Virtual time at which the search ends.
    """

    problem: str
    strategy: str
    seed: int
    in_flight: int
    trials: int
    duration_s: float
    charge: bool
    limit_s: float


class Blocks:
    """Blocks in virtual time.

    Attributes:
        n_idle: Number of idle blocks.
        clock_s: The virtual time.
        worked_s: Block time in which trials have run, or will run.
        running: End, number and proposal of each running trial, as a heap.
    """

    def __init__(self, search: Search) -> None:
        self._search, self._rng = search, np.random.default_rng([search.seed, 77])
        self.n_idle, self.clock_s, self.worked_s = search.in_flight, 0.0, 0.0
        self.running: list[tuple[float, int, Proposal]] = []

    def start(self, proposals: list[Proposal]) -> None:
        """Starts trials on idle blocks."""
        for proposal in proposals:
            duration_s = self._search.duration_s * self._rng.lognormal(-0.125, 0.5)
            self.worked_s += duration_s
            heapq.heappush(self.running, (self.clock_s + duration_s, proposal.number, proposal))
        self.n_idle -= len(proposals)

    def ended(self, *, several: bool) -> list[Proposal]:
        """The next trial that ends; with `several` all that have ended by then. Time passes until there is one."""
        self.clock_s = max(self.clock_s, self.running[0][0])
        found = [heapq.heappop(self.running)[2]]
        while several and self.running and self.running[0][0] <= self.clock_s:
            found.append(heapq.heappop(self.running)[2])
        self.n_idle += len(found)
        return found

    @property
    def used(self) -> float:
        """The part of the blocks' time so far in which trials have run."""
        later_s = sum(end_s - self.clock_s for end_s, _, _ in self.running)
        return (self.worked_s - later_s) / (self._search.in_flight * self.clock_s)


def searched(search: Search) -> dict:
    """One search, as a line of the results."""
    warnings.simplefilter("ignore")
    problem, blocks, budget = problem_named(search.problem), Blocks(search), WaitingBudget()
    make = make_strategy if search.strategy in STRATEGIES else Peer
    strategy = make(search.strategy, problem.space, seed=search.seed)
    curve, n_told, n_asked, n_models, cpu_s, longest_s = list[float](), 0, 0, 0, 0.0, 0.0

    def timed(call, *arguments):
        nonlocal cpu_s, longest_s
        began_s = time.process_time()
        result = call(*arguments)
        taken_s = time.process_time() - began_s
        cpu_s, longest_s = cpu_s + taken_s, max(longest_s, taken_s)
        blocks.clock_s += taken_s * search.charge
        return result, taken_s

    while n_told < search.trials and blocks.clock_s < search.limit_s:
        while (wanted := min(blocks.n_idle, search.trials - n_asked)) > 0:
            n_running = len(blocks.running)
            n_affordable = budget.n_models(wanted, n_running) if search.charge else wanted
            strategy.afford(n_affordable)
            proposals, taken_s = timed(strategy.ask, wanted if search.charge else 1)
            budget.pay(taken_s, n_affordable, wanted, n_running)
            blocks.start(proposals)
            n_asked, n_models = n_asked + len(proposals), n_models + n_affordable
        for proposal in blocks.ended(several=search.charge):
            curve.append(min([problem.regret(proposal.parameters), *curve[-1:]]))
            timed(strategy.tell, proposal, problem.measure(proposal.parameters))
            budget.earn(search.duration_s)
            n_told += 1
    return (
        asdict(search)
        | {
            "ended": n_told,
            "regret": float(f"{curve[-1]:.4g}"),
            "cpu_ms": round(1e3 * cpu_s / n_told, 2),
            "longest_ms": round(1e3 * longest_s),
            "used": round(blocks.used, 3),
            "choice": strategy.choice,
        }
        | ({} if search.charge else {"steps": steps(np.array(curve))})
    )


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default="rates5,ellipsoid5,rastrigin6,decisive6")
    parser.add_argument(
        "--strategies", default="auto;bayesian;evolutionary", help="names, or other programs, separated by ;"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--duration", type=float, default=4.0, help="mean duration of a trial in seconds")
    parser.add_argument("--limit", type=float, default=math.inf, help="virtual seconds")
    parser.add_argument("--charge", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--readme", action="store_true", help="only write the tables")
    parser.add_argument("--smoke", action="store_true", help="two short searches; prints their table")
    given = parser.parse_args()
    known = [json.loads(line) for line in given.results.open()] if given.results.is_file() else []
    if given.smoke:
        searches = [Search("rates5", name, 0, 20, 40, 0.01, True, math.inf) for name in ("auto", "evolutionary")]
        print(tables([searched(search) for search in searches]))
        return
    if given.readme:
        before, _, rest = README.read_text().partition(BEGIN)
        README.write_text(f"{before}{BEGIN}\n\n{tables(known)}\n\n{END}{rest.partition(END)[2]}")
        return
    searches = [
        Search(problem, name, seed, given.in_flight, given.trials, given.duration, given.charge, given.limit)
        for seed in range(given.seeds)
        for problem in given.problems.split(",")
        for name in given.strategies.split(";")
    ]
    missing = [one for one in searches if not any(asdict(one).items() <= line.items() for line in known)]
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool, given.results.open("a") as file:
        for future in as_completed([pool.submit(searched, one) for one in missing]):
            known.append(future.result())
            file.write(json.dumps(known[-1]) + "\n")
            file.flush()
    print(tables([line for line in known if any(asdict(one).items() <= line.items() for one in searches)]))


if __name__ == "__main__":
    main()
