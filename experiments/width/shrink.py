"""A trial on four ranks loses one or two of them at a random moment. Prints the rows of the README.

Run it in the project's folder: python experiments/width/shrink.py [--runs 20] [--results shrink.json]
Runs that are already in the results file are not repeated.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from settings import SHARDS, training

from mpi_learn.known_data import prepare

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "chaos"))
SIZE, EPOCHS, PAUSE_S, LIMIT_S = 4, 10, 0.00125, 300.0
TOLERANCE = 1e-5


def space(data: Path) -> dict[str, Any]:
    """The ``space.yaml``: one trial on one block."""
    changes = {"epochs": EPOCHS, "parameters": {"pause_s": PAUSE_S}}
    section = training("torch", data, **changes)
    section["optimizer"] |= {"learning_rate": "$rate"}
    return {
        "study": "shrink",
        "store": "sqlite:///shrink.db",
        "figure_of_merit": "val_loss",
        "space": {"rate": {"type": "real", "low": 0.009, "high": 0.011}},
        "search": {"strategy": "random", "trials": 1, "seed": 5},
        "blocks": {"size": SIZE},
        "trial": {"retries": 4},
        "training": section,
    }


def one_run(data: Path, folder: Path, victims: list[int], delays_s: list[float]) -> dict[str, Any]:
    """Runs the search, and kills `victims`, each a time after the start of the trial or after the kill before."""
    from launched import Launched, query

    database = folder / "shrink.db"
    with Launched(folder, 1 + SIZE, space(data)) as search:
        killed = []
        while victims and not query(database, "SELECT 1 FROM attempts"):
            time.sleep(0.02)
        for victim, delay_s in zip(victims, delays_s, strict=True):
            time.sleep(delay_s)
            if search.kill(victim) is not None:
                killed.append(victim)
        status = search.wait(LIMIT_S)
    ((value, state, error, seconds),) = query(
        database,
        "SELECT figure_of_merit, state, t.error, (julianday(t.finished_at) - julianday(min(a.started_at))) * 86400 "
        "FROM trials t JOIN attempts a ON a.trial_id = t.id",
    )
    attempts = query(database, "SELECT ranks, (julianday(finished_at) - julianday(started_at)) * 86400 FROM attempts")
    lost = query(database, "SELECT count(*) FROM events WHERE kind = 'rank_lost'")[0][0]
    return {
        "killed": killed,
        "lost": lost,
        "status": status,
        "state": state,
        "error": error,
        "value": value,
        "seconds": seconds,
        "attempts": attempts,
    }


def drawn(seed: int, calm_s: float) -> tuple[list[int], list[float]]:
    """One or two ranks of the block, rank 1 being its leader, and the times of the kills."""
    draw = random.Random(seed)
    victims = draw.sample(range(1, SIZE + 1), draw.choice((1, 1, 2)))
    return victims, [draw.uniform(0, calm_s), draw.choice((0.0, draw.uniform(0, 3)))][: len(victims)]


def overhead_s(run: dict[str, Any], calm_s: float) -> float:
    """Seconds beyond those of the same shards on the ranks that were there, and of one epoch for each attempt.

    An epoch takes as long as the rank with the most shards needs.
    """
    left, expected_s = 1.0, 0.0  # the fraction of the training that is left
    for ranks, seconds in run["attempts"]:
        slowness = -(-SHARDS // len(ranks.split(","))) / (SHARDS / SIZE)
        is_last = [ranks, seconds] == list(run["attempts"][-1])
        took_s = left * calm_s * slowness if is_last else seconds
        expected_s += took_s + (0 if is_last else calm_s / EPOCHS * slowness)
        left -= took_s / (calm_s * slowness)
    return float(run["seconds"] - expected_s)


def summary(runs: list[dict[str, Any]], calm: dict[str, Any]) -> dict[str, str]:
    """The rows for all runs in which a rank was killed before the end of the trial."""
    hit = [run for run in runs if run["lost"] and len(run["attempts"]) > 1]
    complete = [run for run in hit if run["state"] == "complete"]
    same = [run for run in complete if abs(run["value"] - calm["value"]) < TOLERANCE]
    return {
        "runs with a lost rank that end with the undisturbed figure of merit to 1e-5": f"{len(same)} of {len(hit)}",
        "largest difference": f"{max(abs(run['value'] - calm['value']) for run in complete):.1e}",
        "killed ranks; leaders of the block among them": f"{sum(run['lost'] for run in hit)}; "
        f"{sum(1 in run['killed'] for run in hit)}",
    }


def timed_pairs(data: Path, folder: Path, n_pairs: int) -> str:
    """Runs undisturbed trials and trials that lose a rank after half of their time, in turns."""
    overheads = []
    for pair in range(n_pairs):
        calm = one_run(data, folder / f"calm-{pair}", [], [])
        run = one_run(data, folder / f"lost-{pair}", [1 + pair % SIZE], [calm["seconds"] / 2])
        overheads.append(overhead_s(run, calm["seconds"]))
        print(f"undisturbed {calm['seconds']:.1f} s, {run['attempts']}, beyond {overheads[-1]:.1f} s", flush=True)
    return f"{statistics.median(overheads):.1f} s; {min(overheads):.1f} to {max(overheads):.1f} s"


def main() -> None:
    """Runs what is not yet in the results file, and prints the rows."""
    from launched import end_in_order

    end_in_order()
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--results", type=Path, default=Path("shrink.json"))
    parser.add_argument("--pairs", type=int, default=0, help="measure the time of this number of pairs instead")
    parser.add_argument("--smoke", action="store_true", help="one run; stores no results")
    options = parser.parse_args()
    n_runs = 1 if options.smoke else options.runs
    has_results = options.results.exists() and not options.smoke
    done: dict[str, Any] = json.loads(options.results.read_text()) if has_results else {}
    with tempfile.TemporaryDirectory() as name:
        data = Path(name, "digits.h5")
        prepare("digits", data)
        if options.pairs:
            spent = timed_pairs(data, Path(name), options.pairs)
            print(f"| time beyond the lost share of the work: median, range of {options.pairs} pairs | {spent} |")
            return
        if "calm" not in done:
            done["calm"] = one_run(data, Path(name, "calm"), [], [])
        for seed in range(n_runs):
            if str(seed) not in done:
                victims, delays_s = drawn(seed, done["calm"]["seconds"])
                run = done[str(seed)] = one_run(data, Path(name, str(seed)), victims, delays_s)
                print(seed, victims, [round(one, 1) for one in delays_s], run, flush=True)
                if not options.smoke:
                    options.results.write_text(json.dumps(done))
    runs = [run for key, run in done.items() if key != "calm"]
    for quantity, value in summary(runs, done["calm"]).items():
        print(f"| {quantity} | {value} |")


if __name__ == "__main__":
    main()
