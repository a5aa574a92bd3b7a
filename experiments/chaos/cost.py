"""Measures the cost of the protection against lost ranks when no rank is lost: the same search with and without it.

Run it on an otherwise quiet machine, in the project's folder: python experiments/chaos/cost.py [--pairs 8]
The two searches alternate. New pairs are appended to the results file. Prints the rows of this experiment in README.md.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from pathlib import Path

from launched import Launched, end_in_order, query
from storm import space

from mpi_learn.job.launch import find_mpirun, launch_flags
from mpi_learn.known_data import prepare

HERE = Path(__file__).parent
LIMIT_S = 120.0


def flags(is_protected: bool) -> list[str]:
    """The arguments of ``mpirun``."""
    found = launch_flags(find_mpirun())
    if is_protected:
        return found
    first = found.index("--with-ft")
    return found[:first] + found[first + 2 :]


def trials_per_second(is_protected: bool, trials: int = 12_000) -> float:
    """Trials per second without work, on one block of one rank, from the first to the last result."""
    content = {
        "study": "cost",
        "store": "sqlite:///cost.db",
        "objective": f"{HERE.parent / 'dispatch' / 'objectives.py'}:nothing",
        "space": {"a": {"type": "real", "low": 0.0, "high": 1.0}},
        "search": {"strategy": "random", "trials": trials, "seed": 1},
    }
    sql = "SELECT count(*) / (86400 * (julianday(max(finished_at)) - julianday(min(finished_at)))) FROM trials"
    return _measured(content, is_protected, sql, 2)


def samples_per_second(is_protected: bool, data: Path) -> float:
    """Samples per second of one long training of the network of `storm.py`, on one block of two ranks."""
    content = space(data, 2, 1)
    content["search"]["trials"] = 1
    content["training"]["epochs"] = 60
    return _measured(content, is_protected, "SELECT 60 * 1437 / duration_s FROM trials", 3)


def _measured(content: dict, is_protected: bool, sql: str, ranks: int) -> float:
    with tempfile.TemporaryDirectory() as name, Launched(Path(name), ranks, content, flags(is_protected)) as search:
        status = search.wait(LIMIT_S)
        assert status == 0, (Path(name) / "out.txt").read_text()
        return query(Path(name) / f"{content['study']}.db", sql)[0][0]


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The median of the ratios, and its 95 % confidence interval (bootstrap)."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return statistics.median(ratios), medians[50], medians[1949]


def main() -> None:
    """Measures further pairs and prints the rows."""
    end_in_order()
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--results", type=Path, default=Path("cost.json"))
    options = parser.parse_args()
    known = json.loads(options.results.read_text()) if options.results.exists() else {"trials/s": [], "samples/s": []}
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "digits.h5"
        prepare("digits", data)
        measures = {"trials/s": trials_per_second, "samples/s": lambda protected: samples_per_second(protected, data)}
        for n in range(options.pairs):
            for what, measure in measures.items():
                order = (True, False) if n % 2 else (False, True)
                pair = {protected: measure(protected) for protected in order}
                known[what].append([pair[True], pair[False]])
            options.results.write_text(json.dumps(known))
    for what, pairs in known.items():
        cost, low, high = (100 * (1 - value) for value in interval([with_it / without for with_it, without in pairs]))
        medians = [statistics.median(values) for values in zip(*pairs, strict=True)]
        print(
            f"| {what} with and without, medians of {len(pairs)} pairs | {medians[0]:,.0f}, {medians[1]:,.0f}: "
            f"costs {cost:.1f} % (95 %: {high:.1f} … {low:.1f} %) |"
        )


if __name__ == "__main__":
    main()
