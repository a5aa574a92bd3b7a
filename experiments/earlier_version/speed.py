"""Compares the cost of short commands with that at an earlier commit; status 1 if one costs over 5 % more.

    make speed BEFORE=COMMIT    # default: the last tag

The two versions take turns, in changing order. The cost of a command is its number of instructions where ``perf`` can
count them, otherwise its CPU time. Each turn gives a ratio; the table has their median and its interval.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1.05

SEARCH = """
import sys
from mpi_opt import Real, search
search(lambda trial: trial.parameters["x"], space={"x": Real(0, 1)}, trials=600, strategy="random", seed=1,
       study="speed", store="sqlite:///" + sys.argv[1], progress=False)
"""
STRATEGY = """
from mpi_opt import Real
from mpi_opt.strategies import make_strategy
strategy = make_strategy("bayesian", {f"x{i}": Real(0, 1) for i in range(5)}, seed=1)
for _ in range(40):
    for proposal in strategy.ask(1):
        strategy.tell(proposal, sum(proposal.parameters.values()))
"""
OPTIMIZER = """
import numpy as np
from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.optimizers.configuration import Adam
try:
    from mpi_learn.optimizers.optimizer import make_optimizer
except ImportError:  # where earlier commits have it
    from mpi_learn.optimizers.make_optimizer import make_optimizer
weights, gradient = aligned_empty(10**6), aligned_empty(10**6)
weights[:], gradient[:] = 0, 1
optimizer = make_optimizer(Adam(), FlatLayout(((10**6,),)))
for _ in range(500):
    optimizer.update(weights, gradient)
"""
COMMANDS = {
    "600 trials in one process": ["-c", SEARCH, "{new}"],
    "40 proposals of bayesian": ["-c", STRATEGY],
    "500 updates of Adam": ["-c", OPTIMIZER],
    "mpi-opt --help": ["-m", "mpi_opt", "--help"],
    "mpi-opt results": ["-m", "mpi_opt", "results", "--store", "sqlite:///{store}", "--study", "speed"],
}


def cost(checkout: Path, arguments: list[str], store: Path) -> float:
    """Instructions or CPU seconds of one run."""
    with tempfile.TemporaryDirectory() as folder:
        words = [word.format(new=f"{folder}/new.db", store=store) if "{" in word[:12] else word for word in arguments]
        environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        command, output = [sys.executable, *words], Path(folder, "instructions")
        if can_count():
            command = ["perf", "stat", "-x,", "-e", "instructions:u", "-o", str(output), *command]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if output.exists():
            return float(output.read_text().splitlines()[-1].split(",")[0])
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@cache
def can_count() -> bool:
    """Whether instructions can be counted: virtual machines often cannot."""
    if not shutil.which("perf"):
        return False
    done = subprocess.run(["perf", "stat", "-x,", "-e", "instructions:u", "true"], capture_output=True, text=True)
    return done.returncode == 0 and done.stderr[:1].isdigit()


def ratios(before: Path, now: Path, arguments: list[str], store: Path, n_turns: int) -> list[float]:
    """Cost now over cost before, in each turn, ascending; not that of the first turn, which writes compiled modules."""
    found = []
    for turn in range(n_turns + 1):
        order = (before, now) if turn % 2 else (now, before)
        costs = {checkout: cost(checkout, arguments, store) for checkout in order}
        found.append(costs[now] / costs[before])
    return sorted(found[1:])


def interval(found: list[float]) -> tuple[float, float]:
    """The values around the median that contain it with a probability of about 95 % (binomial, normal for many)."""
    n = len(found)
    skipped = max(int(n / 2 - 0.98 * n**0.5), 0)
    return found[skipped], found[n - 1 - skipped]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="", help="commit; default: the last tag")
    parser.add_argument("--now", type=Path, default=ROOT, help="folder of the version to test")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--only", default="", help="a word in the names of the commands to run")
    options = parser.parse_args()
    git = ["git", "-C", str(ROOT)]
    tag = (
        options.before
        or subprocess.run([*git, "describe", "--tags", "--abbrev=0"], capture_output=True, text=True).stdout
    )
    if not tag:
        print("there is no tag: name a commit, make speed BEFORE=COMMIT", file=sys.stderr)
        return 2
    is_slower = False
    with tempfile.TemporaryDirectory() as folder:
        before, store = Path(folder, "before"), Path(folder, "store.db")
        before.mkdir()
        content = subprocess.run([*git, "archive", tag], check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", str(before)], input=content, check=True)
        cost(before, ["-c", SEARCH, str(store)], store)  # both versions can read what the earlier one has written
        print(f"{'now : ' + tag:28} median   interval")
        for name, arguments in COMMANDS.items():
            if options.only in name:
                found = ratios(before, options.now.resolve(), arguments, store, options.turns)
                median, (low, high) = statistics.median(found), interval(found)
                is_slower |= median > LIMIT
                verdict = "  slower" if median > LIMIT else ""
                print(f"{name:28} {median:.3f}    {low:.3f} to {high:.3f}{verdict}", flush=True)
    return int(is_slower)


if __name__ == "__main__":
    sys.exit(main())
