"""Trains on all ranks with each setting, and compares generated showers with simulated test showers.

``mpirun -np 2 python final_training.py runs.json found.json`` is started by `compare.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import h5py
import numpy as np
from figures_of_merit import (
    energy_response_distance,
    generate,
    lateral_distance,
    longitudinal_distance,
    mean_profile,
)
from mpi4py import MPI

from mpi_learn import train


def distances(real: np.ndarray, generated: np.ndarray, energy: np.ndarray) -> dict[str, float]:
    """Both figures of merit; showers in GeV, and their energies (n,) in GeV."""
    profiles = longitudinal_distance(real, generated) + lateral_distance(real, generated)
    return {"profile_distance": profiles, "response_distance": energy_response_distance(real, generated, energy)}


def profiles(showers: np.ndarray) -> dict[str, list[float]]:
    """The mean shares of energy in depth, and across."""
    return {"depth": mean_profile(showers, (2, 3, 4)).tolist(), "across": mean_profile(showers, (1, 3, 4)).tolist()}


def floor(real: np.ndarray, energy: np.ndarray) -> dict[str, float]:
    """The distances between two halves of the test showers, which are purely statistical.

    The halves have different energies, so the response is divided by them first.
    """
    response = real / energy[:, None, None, None, None]
    even, odd = response[::2], response[1::2]
    return distances(even, odd[: len(even)], np.ones(len(even)))


def main(runs_file: str, found_file: str) -> None:
    request = json.loads(Path(runs_file).read_text())
    with h5py.File(request["test"]) as file:
        real, energy = file["X"][:].astype(float), file["energy"][:].astype(np.float32)
    found = {"floor": floor(real, energy[:, 0]), "real": profiles(real), "runs": []}
    for kind, content in request["runs"]:
        result = train(content, MPI.COMM_WORLD)
        if MPI.COMM_WORLD.rank == 0:
            generated = generate(result.model["generator"], energy)
            measured = distances(real, generated, energy[:, 0]) | profiles(generated)
            found["runs"].append({"kind": kind, "seed": content["seed"], "seconds": result.seconds} | measured)
            Path(found_file).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
