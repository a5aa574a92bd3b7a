"""Searches of two trainings of unequal length on two ranks, with and without ``blocks.elastic``. Prints a table.

    python experiments/width/real_training.py [--pairs 5]

When the short training has ended, its rank joins the long one. The network is computed on two cores, so that the
machine must be free of other load.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import yaml
from sklearn.datasets import load_digits

NETWORKS = Path(__file__).with_name("networks.py").resolve()
SHORT, LONG, LIMIT_S = 5, 60, 1800.0


def write_digits(path: Path) -> None:
    """Writes the digits, in random order."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    with h5py.File(path, "w") as file:
        file["X"], file["y"] = images[order].astype("float32") / 16, labels[order].astype("int64")


def one_search(folder: Path, data: Path, epochs: tuple[int, int], *, is_elastic: bool) -> tuple[float, list[float]]:
    """Seconds from the start of the first trial to the end of the last one, and the figures of merit."""
    folder.mkdir()
    content = {
        "study": "real",
        "store": "sqlite:///real.db",
        "figure_of_merit": "val_loss",
        "space": {"epochs": {"type": "categorical", "categories": list(epochs)}},
        "search": {"strategy": "grid", "trials": 2},
        "blocks": {"size": 1, "elastic": is_elastic},
        "training": {
            "model": f"{NETWORKS}:build_wide",
            "data": {"train": [str(data)], "features": "X", "labels": "y", "validation_fraction": 0.2},
            "loss": "cross_entropy",
            "optimizer": {"name": "adam", "learning_rate": 0.0005},
            "batch_size": {"total": 240},
            "epochs": "$epochs",
        },
    }
    path = folder / "space.yaml"
    path.write_text(yaml.safe_dump(content))
    command = [sys.executable, "-m", "mpi_opt", "search", path.name, "-n", "3"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=LIMIT_S)
    with closing(sqlite3.connect(folder / "real.db")) as database:
        ((seconds,),) = database.execute(
            "SELECT (julianday(max(finished_at)) - julianday(min(started_at))) * 86400 FROM attempts"
        )
        values = [value for (value,) in database.execute("SELECT figure_of_merit FROM trials ORDER BY number")]
    return seconds, values


def main() -> None:
    """Runs pairs of searches, alternating, and prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="one pair of short searches")
    options = parser.parse_args()
    epochs = (1, 4) if options.smoke else (SHORT, LONG)
    sooner, differences = [], []
    print("| pair | without, s | elastic, s | sooner | largest difference |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        write_digits(data := Path(name, "digits.h5"))
        for pair in range(1 if options.smoke else options.pairs):
            plain_s, plain = one_search(Path(name, f"plain-{pair}"), data, epochs, is_elastic=False)
            elastic_s, elastic = one_search(Path(name, f"elastic-{pair}"), data, epochs, is_elastic=True)
            sooner.append(1 - elastic_s / plain_s)
            differences.append(max(abs(a - b) for a, b in zip(plain, elastic, strict=True)))
            numbers = f"{plain_s:.1f} | {elastic_s:.1f} | {sooner[-1]:.0%} | {differences[-1]:.1e}"
            print(f"| {pair} | {numbers} |", flush=True)
    print(f"median {statistics.median(sooner):.0%} sooner; values equal to {max(differences):.1e}")


if __name__ == "__main__":
    main()
