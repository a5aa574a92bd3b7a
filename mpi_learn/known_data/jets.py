"""Jets: tables of dijet events, or simulated jets as sequences of particles."""

from __future__ import annotations

import numpy as np

from mpi_learn.errors import DataError
from mpi_learn.known_data.data_set import (
    DataSet,
    FileArray,
    NamedArrays,
    Origin,
    Original,
    Simulation,
    hdf5_arrays,
    standardised,
)
from mpi_learn.known_data.simulation.pythia_jets import JET_FEATURES, simulate_jets

URL = "https://raw.githubusercontent.com/luclepot/SPS_ml_tutorial/2fcd48e4c0808bfcfb756477c94f4d81bb0e1860/data/jets.h5"
GLUON = 21
FLAVOR = "Flavor"
JET = ("Eta", "Phi", "Pt", "M", "ChargedFraction", "PTD", "Axis2", "Energy")
EVENT = ("MET", "METEta", "METPhi", "MT", "Mjj")
ENERGY_FLOW = tuple(f"EFP {i}" for i in range(13))


def _read(origin: Origin) -> dict[str, NamedArrays]:
    where, content = origin.read("dijet_jets.h5", "jets.h5")
    groups = ("jet_features", "event_features", "jet_eflow_variables")
    names = [f"{group}/{part}" for group in groups for part in ("data", "labels")]
    found = hdf5_arrays(content, where, *names)
    jets, events, flow = (found[f"{group}/data"] for group in groups)
    columns = [name.decode() for name in found["jet_features/labels"]]
    missing = {*JET, FLAVOR} - set(columns)
    if missing:
        raise DataError(f"there is no jet feature {min(missing)}", where=where, cure="use the published file")
    features = jets[..., [columns.index(name) for name in JET]].reshape(-1, len(JET))
    flavor = np.rint(jets[..., columns.index(FLAVOR)]).astype(np.int8).ravel()
    flow = flow.reshape(len(features), -1)
    per_event = jets.shape[1]
    return {
        "": {
            "X": standardised(np.concatenate([features, flow], 1)),
            "features": features.astype(np.float32),
            "energy_flow": flow.astype(np.float32),
            "event_features": np.repeat(events, per_event, axis=0).astype(np.float32),
            "y": (flavor != GLUON).astype(np.uint8),
            "flavor": flavor,
            "event": np.repeat(np.arange(len(jets), dtype=np.int32), per_event),
        }
    }


SIMULATION = Simulation(
    summary="jets of Pythia 8 as sequences of particles, in 2 or 5 classes",
    method="Pythia 8 (arXiv:2203.11601), proton-proton collisions at 13 TeV; anti-kt jets with R = 0.8 (FastJet, "
    "arXiv:1111.6097); no detector; see the page Data sets",
    arrays=(
        FileArray(
            "X", "(n, particles, 4)", "float32", "GeV, 1, rad, e",
            "the particles, ordered by pt and filled with zeros; delta_eta and delta_phi from the jet's axis",
            ("pt", "delta_eta", "delta_phi", "charge"),
        ),
        FileArray("mask", "(n, particles)", "uint8", "1", "1 for a particle, 0 for filling"),
        FileArray("jet", "(n, 6)", "float32", "GeV, GeV, 1, 1, 1, e", "features of all particles", JET_FEATURES),
        FileArray("y", "(n,)", "uint8", "class 0 to 4", "gluon, quark, W, Z, top"),
    ),
    training="{{train: [{file}], validation_fraction: 0.2, features: X, labels: y}}",
    run=simulate_jets,
    options=("classes", "particles", "energy"),
    program="Pythia 8, with the jet finder of FastJet",
    package="pythia8mc",
)  # fmt: skip

JETS = DataSet(
    name="jets",
    summary="14,812 jets of 7,406 simulated dijet events, with the flavour of the parton",
    source="SPS machine-learning tutorial, github.com/luclepot/SPS_ml_tutorial",
    simulated_by="an event generator that the source does not name",
    licence="free to use and redistribute, as its README says",
    arrays=(
        FileArray("X", "(n, 21)", "float32", "1", "features and energy_flow, standardised", (*JET, *ENERGY_FLOW)),
        FileArray("features", "(n, 8)", "float32", "GeV, rad", "of the jet", JET),
        FileArray("energy_flow", "(n, 13)", "float32", "1", "energy-flow variables of the jet", ENERGY_FLOW),
        FileArray("event_features", "(n, 5)", "float32", "GeV, rad", "of the event, the same for its two jets", EVENT),
        FileArray("y", "(n,)", "uint8", "class 0 or 1", "0 is gluon, 1 is quark"),
        FileArray("flavor", "(n,)", "int8", "PDG code", "of the parton: 1 to 5, or 21 for a gluon"),
        FileArray("event", "(n,)", "int32", "1", "number of the event"),
    ),
    training="{{train: [{file}], validation_fraction: 0.2, features: X, labels: y}}",
    read=_read,
    originals=(Original("dijet_jets.h5"), Original("jets.h5", (URL,), "e93a456850206a3e74275abb52056554")),
    folder="hep",
    simulation=SIMULATION,
)  # fmt: skip
