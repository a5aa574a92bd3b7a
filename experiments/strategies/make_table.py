"""Trains the tagger with every configuration of the grid; writes `table.npz`, which `compare.py` searches.

    python experiments/strategies/make_table.py [--work FOLDER]

An interrupted run continues. The data are 10,000 simulated jets, 4,000 for training, 6,000 for validation.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from grid import AXES, N_EPOCHS, SHAPE, TABLE
from mpi4py import MPI
from tagger import inputs

from mpi_learn import train
from mpi_learn.known_data import prepare

N_TRAINING, N_VALIDATION = 4000, 6000
BATCH_SIZE = 64


def prepare_data(work: Path, n_training: int, n_validation: int) -> None:
    """Writes train.npz and validation.npz."""
    prepare("jets", work / "jets.h5", simulate=n_training + n_validation, particles=10, seed=3)
    x, y = inputs(str(work / "jets.h5"))
    np.savez(work / "train.npz", X=x[:n_training], y=y[:n_training])
    np.savez(work / "validation.npz", X=x[n_training:], y=y[n_training:])


def validation_losses(work: Path, parameters: dict, n_epochs: int = N_EPOCHS) -> list[float]:
    """The validation loss after each epoch of a training with this configuration."""
    content = {
        "model": f"{Path(__file__).resolve().parent}/tagger.py:build",
        "parameters": {key: value for key, value in parameters.items() if key != "learning_rate"},
        "data": {
            "train": [str(work / "train.npz")],
            "validation": [str(work / "validation.npz")],
            "features": "X",
            "labels": "y",
        },
        "loss": "cross_entropy",
        "optimizer": {"name": "adam", "learning_rate": parameters["learning_rate"]},
        "batch_size": BATCH_SIZE,
        "epochs": n_epochs,
        "seed": 1,
    }
    return train(content, MPI.COMM_SELF).history["val_loss"]


def save(losses: np.ndarray, seconds: float, file: Path) -> None:
    """Writes the table whole or not at all; `seconds` is the time that its trainings took so far."""
    written = file.with_suffix(".part.npz")
    np.savez_compressed(written, val_loss=losses, seconds=seconds)
    written.replace(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, help="folder for the data; default: a temporary one")
    arguments = parser.parse_args()
    losses, before = np.full((*SHAPE, N_EPOCHS), np.nan, np.float32), 0.0
    if TABLE.exists():
        with np.load(TABLE) as table:
            losses, before = table["val_loss"], float(table["seconds"])
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        work.mkdir(exist_ok=True, parents=True)
        prepare_data(work, N_TRAINING, N_VALIDATION)
        for i, place in enumerate(itertools.product(*map(range, SHAPE))):
            if np.isnan(losses[place]).all():
                parameters = {name: values[k] for (name, values), k in zip(AXES.items(), place, strict=True)}
                losses[place] = validation_losses(work, parameters)
            if i % 20 == 19:
                save(losses, before + time.monotonic() - started, TABLE)
                print(f"{i + 1} of {np.prod(SHAPE)} configurations", flush=True)
    save(losses, before + time.monotonic() - started, TABLE)


if __name__ == "__main__":
    main()
