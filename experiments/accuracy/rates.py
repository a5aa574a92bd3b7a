"""Compares learning rates of one and of four ranks on 10,000 images that are left out of the training set.

    python experiments/accuracy/rates.py --data mnist.h5 [--seeds 2]

Four ranks with 64 samples each make the same steps as one rank with 256 samples, which is what this script trains.
Prints the accuracy on the left-out images after five epochs: the mean over the seeds, and each seed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import h5py
import numpy as np
from accuracy import EPOCHS, SCALED, training

from mpi_learn import train
from mpi_learn.mpi.library import MPI

N_LEFT_OUT = 10_000
RATES = {1: (0.0005, 0.001, 0.002), 4: (0.002, 0.003, 0.004)}
"""Ranks -> learning rates, after scaling."""


def split(images: Path, folder: Path) -> dict[str, object]:
    """Divides a file at random; returns the section ``data`` of a training.yaml."""
    with h5py.File(images) as file:
        order = np.random.default_rng(0).permutation(len(file["X"]))
        parts = {"train": np.sort(order[N_LEFT_OUT:]), "validation": np.sort(order[:N_LEFT_OUT])}
        for name, rows in parts.items():
            with h5py.File(folder / f"{name}.h5", "w") as written:
                written["X"], written["y"] = file["X"][:][rows], file["y"][:][rows]
    return {name: [str(folder / f"{name}.h5")] for name in parts} | {"features": "X", "labels": "y"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="file that `mpi-learn prepare mnist --to FILE` wrote")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each rate")
    arguments = parser.parse_args()
    print("| ranks | learning rate | seeds | accuracy | each seed |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        data = split(arguments.data, Path(folder))
        for ranks, rates in RATES.items():
            for rate in rates:
                found = []
                for seed in range(arguments.seeds):
                    optimizer = SCALED | {"learning_rate": rate}
                    settings = {"data": data, "batch_size": 64 * ranks, "optimizer": optimizer, "epochs": EPOCHS}
                    result = train(training("allreduce 1", seed) | settings, MPI.COMM_SELF)
                    found.append(100 * result.history["val_accuracy"][-1])
                each = ", ".join(f"{value:.2f}" for value in found)
                print(f"| {ranks} | {rate} | {len(found)} | {statistics.mean(found):.2f} % | {each} |", flush=True)


if __name__ == "__main__":
    main()
