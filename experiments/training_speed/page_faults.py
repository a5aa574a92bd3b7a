"""Steps of the CNN in PyTorch with and without `mpi_learn.environment.reuse_freed_memory`, in processes that alternate.

    python experiments/training_speed/page_faults.py --data mnist.h5 [--starts 10]

Each process trains six epochs of 40 steps on one rank and one thread. The first epoch does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

HERE = Path(__file__).resolve().parent
N_SAMPLES, BATCH, EPOCHS = 5120, 128, 6


def train_once(data: str, *, reuses: bool) -> None:
    """Prints median samples/s and page faults per step as JSON."""
    from mpi4py import MPI

    from mpi_learn import train
    from mpi_learn.data.samples.batches import Dataset
    from mpi_learn.data.samples.stored_samples import Samples
    from mpi_learn.models.building import frameworks

    if not reuses:
        frameworks.reuse_freed_memory = lambda: None
    with h5py.File(data) as file:
        x = np.asarray(file["X"][:N_SAMPLES], np.float32).reshape(-1, 28, 28) / 255
        y = np.asarray(file["y"][:N_SAMPLES], np.int64)
    speeds, faults = [], []
    train(
        {
            "model": f"{HERE}/torch_models.py:cnn",
            "loss": "sparse_categorical_crossentropy",
            "batch_size": BATCH,
            "epochs": EPOCHS,
        },
        MPI.COMM_WORLD,
        data=Dataset(Samples((x,), (y,)), Samples((x[:200],), (y[:200],))),
        progress=lambda report: speeds.append(report.samples_per_second),
        on_epoch=lambda *_: faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt),
    )
    per_step = (faults[-1] - faults[0]) / (EPOCHS - 1) / (N_SAMPLES // BATCH)
    print(json.dumps([statistics.median(speeds[1:]), per_step]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="file that `mpi-learn prepare mnist --to FILE` wrote")
    parser.add_argument("--starts", type=int, default=10, help="processes of each kind")
    parser.add_argument("--train", choices=["default", "reused"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train_once(options.data, reuses=options.train == "reused")
        return
    found: dict[str, list[list[float]]] = {"default": [], "reused": []}
    for _ in range(options.starts):
        for kind, results in found.items():
            command = [sys.executable, __file__, "--data", options.data, "--train", kind]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            results.append(json.loads(subprocess.check_output(command, env=environment).splitlines()[-1]))
    print("| memory | processes | samples/s, median | slowest and fastest | page faults per step, median | most |")
    print("|---|---|---|---|---|---|")
    for kind, results in found.items():
        speeds, faults = zip(*results, strict=True)
        cells = [f"{statistics.median(speeds):,.0f}", f"{min(speeds):,.0f} to {max(speeds):,.0f}"]
        cells += [f"{statistics.median(faults):,.0f}", f"{max(faults):,.0f}"]
        print(f"| {kind} | {len(results)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
