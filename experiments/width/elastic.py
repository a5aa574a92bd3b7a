"""Searches of 20 trials of unequal length on 16 blocks, with and without `blocks.elastic`. Prints a table.

Run it in the project's folder: python experiments/width/elastic.py [--pairs 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from timed_search import timed_search

OBJECTIVE = Path(__file__).with_name("elastic_objective.py")
BLOCKS, TRIALS = 16, 20


def one_search(folder: Path, seed: int, *, is_elastic: bool, blocks: int, trials: int) -> tuple[float, list[float]]:
    """Seconds of the trials, and the figures of merit."""
    content = {
        "objective": f"{OBJECTIVE.resolve()}:paused",
        "space": {"epochs": {"type": "integer", "low": 4, "high": 40}},
        "search": {"strategy": "random", "trials": trials, "seed": seed},
        "blocks": {"size": 1, "elastic": is_elastic},
    }
    return timed_search(folder, content, blocks + 1)


def main() -> None:
    """Runs pairs of searches with the same seed, alternating, and prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="one pair of small searches")
    options = parser.parse_args()
    size = {"blocks": 2, "trials": 2} if options.smoke else {"blocks": BLOCKS, "trials": TRIALS}
    sooner, same = [], 0
    with tempfile.TemporaryDirectory() as name:
        for seed in range(1 if options.smoke else options.pairs):
            plain_s, plain = one_search(Path(name, f"plain-{seed}"), seed, is_elastic=False, **size)
            elastic_s, elastic = one_search(Path(name, f"elastic-{seed}"), seed, is_elastic=True, **size)
            sooner.append(1 - elastic_s / plain_s)
            same += plain == elastic
            print(f"| {seed} | {plain_s:.1f} | {elastic_s:.1f} | {sooner[-1]:.0%} | {plain == elastic} |", flush=True)
    print(f"median {statistics.median(sooner):.0%} sooner; all values equal in {same} of {len(sooner)} pairs")


if __name__ == "__main__":
    main()
