"""Simulated events of the ATLAS Higgs machine-learning challenge of 2014."""

from __future__ import annotations

import numpy as np

from mpi_learn.known_data.data_set import (
    DataSet,
    FileArray,
    NamedArrays,
    Origin,
    Original,
    csv_columns,
    hdf5_arrays,
    standardised,
)

PUBLISHED = "atlas-higgs-challenge-2014-v2.csv.gz"
EXCERPT, EXCERPT_CSV = "atlas_higgs_10k.h5", "atlas_higgs_10k.csv.gz"
UNDEFINED = -999.0
DERIVED = (
    "mass_MMC", "mass_transverse_met_lep", "mass_vis", "pt_h", "deltaeta_jet_jet", "mass_jet_jet", "prodeta_jet_jet",
    "deltar_tau_lep", "pt_tot", "sum_pt", "pt_ratio_lep_tau", "met_phi_centrality", "lep_eta_centrality",
)  # fmt: skip
PRIMITIVE = (
    "tau_pt", "tau_eta", "tau_phi", "lep_pt", "lep_eta", "lep_phi", "met", "met_phi", "met_sumet", "jet_num",
    "jet_leading_pt", "jet_leading_eta", "jet_leading_phi", "jet_subleading_pt", "jet_subleading_eta",
    "jet_subleading_phi", "jet_all_pt",
)  # fmt: skip
COLUMNS = (*(f"DER_{name}" for name in DERIVED), *(f"PRI_{name}" for name in PRIMITIVE))


def _read(origin: Origin) -> dict[str, NamedArrays]:
    where, content = origin.read(PUBLISHED, EXCERPT, EXCERPT_CSV)
    found = _of_excerpt(content, where) if where.endswith(".h5") else _of_csv(content, where)
    return {"": {"X": standardised(found["features"], UNDEFINED)} | found}


def _of_excerpt(content: bytes, where: str) -> NamedArrays:
    found = hdf5_arrays(content, where, "features", "label", "weight", "event_id")
    return {name: found[name] for name in ("features", "weight", "event_id")} | {"y": found["label"]}


def _of_csv(content: bytes, where: str) -> NamedArrays:
    types = dict.fromkeys((*COLUMNS, "KaggleWeight"), "float") | {"EventId": "int64", "Label": "string"}
    found = csv_columns(content, where, types)
    return {
        "features": np.column_stack([found[name] for name in COLUMNS]),
        "weight": found["KaggleWeight"],
        "event_id": found["EventId"],
        "y": (found["Label"] == "s").astype(np.uint8),
    }


HIGGS = DataSet(
    name="higgs",
    summary="ATLAS events, Higgs to tau tau against background, 30 features",
    source="ATLAS collaboration, CERN Open Data record 328, DOI 10.7483/OPENDATA.ATLAS.ZBP2.M5T8 (818,238 events)",
    simulated_by="ATLAS, full detector simulation",
    licence="CC0 (CERN Open Data); the excerpt of 9,998 events: GPL-3.0 (adrianbevan/ATLAS-UK-ML)",
    arrays=(
        FileArray("X", "(n, 30)", "float32", "1", "the features standardised, 0 where one is not defined", COLUMNS),
        FileArray("features", "(n, 30)", "float32", "GeV, rad", "as published; -999 where one is not defined", COLUMNS),
        FileArray("y", "(n,)", "uint8", "class 0 or 1", "1 is signal"),
        FileArray("weight", "(n,)", "float32", "1", "KaggleWeight; never train on it: it reveals the class"),
        FileArray("event_id", "(n,)", "int64", "1", "EventId"),
    ),
    training="{{train: [{file}], validation_fraction: 0.2, features: X, labels: y}}",
    read=_read,
    originals=(
        Original(PUBLISHED, (f"https://opendata.cern.ch/record/328/files/{PUBLISHED}",)),
        Original(EXCERPT),
        Original(EXCERPT_CSV),
    ),
    folder="hep",
)
