"""Compares learning rates for CIFAR-10, for each algorithm and number of workers; writes `cifar10_rates.json`.

    python experiments/mpi_learn/cifar10_rates.py [--from FOLDER] [--only "gem 2" "gem 4"]

A fifth of the training images is held out, and the accuracy on them after the last epoch is compared, with one seed.
The test images are not used. Each row starts with the same three rates. As long as the best one is the smallest or
largest of the row, the next one is added. Rows that the file already has are not repeated.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from cifar10 import ALGORITHMS, N_EPOCHS, RATES_FILE, WORKERS, content, n_ranks
from training_runs import run

from mpi_learn.known_data import prepare

RATES = (1e-05, 3e-05, 0.0001, 0.0003, 0.001, 0.003, 0.01)
FIRST = (0.0003, 0.001, 0.003)
ROWS = [f"{algorithm} {n_workers}" for n_workers in WORKERS for algorithm in ALGORITHMS]


def compare(row: str, data: dict, work: Path) -> dict[float, float]:
    """Accuracy on the held-out images by learning rate, in the order of the rates."""
    algorithm, n_workers = row.split()
    accuracies: dict[float, float] = {}
    rates = FIRST
    while rates:
        asked = [content(algorithm, data, 0, N_EPOCHS, rate) for rate in rates]
        runs = run(asked, n_ranks(algorithm, int(n_workers)), work, warm_up=False)
        accuracies |= {
            rate: round(one["history"]["val_accuracy"][-1], 4) for rate, one in zip(rates, runs, strict=True)
        }
        best = RATES.index(max(accuracies, key=accuracies.__getitem__))
        rates = [rate for rate in RATES[max(best - 1, 0) : best + 2] if rate not in accuracies]
    return dict(sorted(accuracies.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="source", type=Path, help="folder with CIFAR-10; default: it is downloaded")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=ROWS, metavar="ROW", help='for example "gem 2"')
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        prepare("cifar10", work / "cifar10.h5", arguments.source)
        data = {"train": [str(work / "cifar10.h5")], "validation_fraction": 0.2}
        for row in arguments.only:
            if row in _read():
                continue
            accuracies = compare(row, data, work)
            print(row, accuracies, flush=True)
            found = {**_read(), row: accuracies}  # read again: other rows may be compared at the same time
            RATES_FILE.write_text(json.dumps({name: found[name] for name in ROWS if name in found}, indent=1) + "\n")


def _read() -> dict:
    return json.loads(RATES_FILE.read_text()) if RATES_FILE.exists() else {}


if __name__ == "__main__":
    main()
