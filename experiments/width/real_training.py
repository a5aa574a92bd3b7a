"""Searches of two trainings of unequal length on two ranks, with and without ``blocks.elastic``. Prints a table.

    python experiments/width/real_training.py [--pairs 5] [--folds 2]

When the short training has ended, its rank joins the long one; two folds then run at the same time instead of one after
the other. The network is computed on two cores, so that the machine must be free of other load.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from timed_search import timed_search

from mpi_learn.known_data import prepare

NETWORKS = Path(__file__).with_name("networks.py").resolve()
SHORT, LONG = 5, 50


def one_search(
    folder: Path, data: Path, epochs: tuple[int, int], folds: int, *, is_elastic: bool
) -> tuple[float, list[float]]:
    """Seconds of the trials, and the figures of merit."""
    section: dict[str, Any] = {"train": [str(data)], "features": "X", "labels": "y"}
    content = {
        "figure_of_merit": "val_loss",
        "space": {"epochs": {"type": "categorical", "categories": list(epochs)}},
        "search": {"strategy": "grid", "trials": 2},
        "blocks": {"size": 1, "elastic": is_elastic},
        "folds": folds,
        "training": {
            "model": f"{NETWORKS}:build_wide",
            "data": section if folds > 1 else section | {"validation_fraction": 0.2},
            "loss": "cross_entropy",
            "optimizer": {"name": "adam", "learning_rate": 0.0005},
            "batch_size": {"total": 240},
            "epochs": "$epochs",
        },
    }
    return timed_search(folder, content, 3)


def main() -> None:
    """Runs pairs of searches, alternating, and prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--folds", type=int, default=1, help="of each trial, which then has fewer epochs")
    parser.add_argument("--smoke", action="store_true", help="one pair of short searches")
    options = parser.parse_args()
    epochs = (1, 4) if options.smoke else (SHORT // options.folds, LONG // options.folds)
    sooner, differences = [], []
    print("| pair | without, s | elastic, s | sooner | largest difference |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        prepare("digits", data := Path(name, "digits.h5"))
        for pair in range(1 if options.smoke else options.pairs):
            plain_s, plain = one_search(Path(name, f"plain-{pair}"), data, epochs, options.folds, is_elastic=False)
            elastic_s, elastic = one_search(Path(name, f"elastic-{pair}"), data, epochs, options.folds, is_elastic=True)
            sooner.append(1 - elastic_s / plain_s)
            differences.append(max(abs(a - b) for a, b in zip(plain, elastic, strict=True)))
            numbers = f"{plain_s:.1f} | {elastic_s:.1f} | {sooner[-1]:.0%} | {differences[-1]:.1e}"
            print(f"| {pair} | {numbers} |", flush=True)
    print(f"median {statistics.median(sooner):.0%} sooner; values equal to {max(differences):.1e}")


if __name__ == "__main__":
    main()
