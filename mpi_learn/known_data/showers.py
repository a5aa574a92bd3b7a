"""Showers in a calorimeter as images of voxels: twenty of a full simulation, or any number of parametrised ones."""

from __future__ import annotations

import numpy as np

from mpi_learn.known_data.data_set import DataSet, FileArray, NamedArrays, Origin, Original, Simulation, hdf5_arrays
from mpi_learn.known_data.simulation.calorimeter import simulate_showers

VOXELS = "odd_voxels.h5"
PARTICLES = ("gamma", "pion")
ENERGY_GEV = 10.0


def _read(origin: Origin) -> dict[str, NamedArrays]:
    where, content = origin.read(VOXELS)
    found = hdf5_arrays(content, where, *PARTICLES)
    images = np.concatenate([found[name] for name in PARTICLES]).astype(np.float32)
    y = np.repeat(np.arange(len(PARTICLES), dtype=np.uint8), [len(found[name]) for name in PARTICLES])
    energy = np.full((len(y), 1), ENERGY_GEV, np.float32)
    return {"": {"X": images[..., np.newaxis], "energy": energy, "y": y}}


ENERGY = FileArray("energy", "(n, 1)", "float32", "GeV", "energy of the particle")
TRAINING = "{{train: [{file}], validation_fraction: 0.2, features: X, labels: energy}}"

SIMULATION = Simulation(
    summary="simulated electron showers of 25×25×25 voxels, at any energy from 1 to 1000 GeV",
    method="gamma profile in depth (Longo & Sestili 1975), core and tail across, and their fluctuations as in "
    "Grindhammer & Peters (arXiv:hep-ex/0001020) for tungsten; see the page Data sets. Not a full simulation",
    arrays=(
        FileArray(
            "X", "(n, 25, 25, 25, 1)", "float32", "GeV", "energy in voxels of 1 X₀ × 0.25 R_M × 0.25 R_M; depth first"
        ),
        ENERGY,
    ),
    training=TRAINING,
    run=simulate_showers,
    options=("energy",),
    program="MPI Learn, a parametrisation",
)

SHOWERS = DataSet(
    name="showers",
    summary="voxel images of 10 photon and 10 pion showers of 10 GeV in the Open Data Detector (Geant4)",
    source="github.com/fast-sim/step2point, its simulation steps binned into voxels",
    simulated_by="Geant4, full simulation",
    licence="Apache-2.0",
    arrays=(
        FileArray("X", "(n, 24, 24, 24, 1)", "float32", "GeV",
                  "energy in voxels; depth first. Windows: 240 × 120 × 120 mm (photons), 1920 × 960 × 960 mm (pions)"),
        ENERGY,
        FileArray("y", "(n,)", "uint8", "class 0 or 1", "0 is photon, 1 is pion"),
    ),
    training=TRAINING,
    read=_read,
    originals=(Original(VOXELS),),
    folder="calo",
    simulation=SIMULATION,
)  # fmt: skip
