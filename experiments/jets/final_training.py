"""Trains on all ranks with each setting, and writes the figures of merit on test jets.

``mpirun -np 2 python final_training.py runs.json found.json`` is started by `compare.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import h5py
import numpy as np
from figures_of_merit import area_under_curve, is_signal, n_classes, probabilities, rejection, signal_score
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.settings.user_code import load_function


def test_data(file: str, features) -> tuple[np.ndarray, np.ndarray]:
    """The test jets as the network takes them, and their classes."""
    with h5py.File(file) as jets:
        x, y = jets["X"][:], jets["y"][:]
    return (load_function(features["function"])(x) if isinstance(features, dict) else x), y


def main(runs_file: str, found_file: str) -> None:
    request = json.loads(Path(runs_file).read_text())
    found = []
    for kind, content in request["runs"]:
        result = train(content, MPI.COMM_WORLD)
        if MPI.COMM_WORLD.rank == 0:
            x, y = test_data(request["test"], content["data"]["features"])
            score = signal_score(probabilities(result.model, x))
            signal = is_signal(y, n_classes(y))
            weights = sum(int(np.prod(one.shape)) for one in _weights(result.model))
            measured = {"auc": area_under_curve(score, signal), "rejection": rejection(score, signal)}
            found.append({"kind": kind, "seed": content["seed"], "weights": weights} | measured)
            Path(found_file).write_text(json.dumps(found))


def _weights(model) -> list:
    return model.trainable_weights if hasattr(model, "trainable_weights") else list(model.parameters())


if __name__ == "__main__":
    main(*sys.argv[1:])
