"""The same trainings on the first ranks of the world.

Arguments: framework, folder for files, numbers of ranks, names of trainings; the last two with commas in between.
"""

import json
import sys
from pathlib import Path

import h5py
import numpy as np
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.mpi.messaging import await_all
from tests.mpi_learn.models_for_tests import digits

FRAMEWORK, FOLDER = sys.argv[1], Path(sys.argv[2])
WIDTHS, NAMES = [int(n) for n in sys.argv[3].split(",")], sys.argv[4].split(",")
TESTS = Path(__file__).parents[1]
MODULE = {"keras": "models_for_tests.py", "torch": "torch_models_for_tests.py"}[FRAMEWORK]
LOSS = {"keras": "sparse_categorical_crossentropy", "torch": "cross_entropy"}[FRAMEWORK]
N = 450
"""Samples to train on: the fifth step of 96 samples has 66."""
SCHEDULE = {"name": "plateau", "metric": "loss", "patience": 1, "min_delta": 0.2, "factor": 0.5, "warmup_epochs": 1}
RANDOM = {"dropout": 0.3, "norm": True}
SHARDS = {"total": 96, "shards": 12}
STREAMED = {"memory": "stream", "window_bytes": 100 * (64 * 4 + 8 + 4)}
world = MPI.COMM_WORLD


def write() -> None:
    """Digits in an order of their own, with weights from 0.5 to 1.5."""
    samples = digits().training.take(np.random.default_rng(3).permutation(1797)[: N + 150])
    weights = np.random.default_rng(4).uniform(0.5, 1.5, len(samples)).astype(np.float32)
    for name, part in (("train", slice(0, N)), ("validation", slice(N, None))):
        with h5py.File(FOLDER / f"{name}.h5", "w") as file:
            file.create_dataset("X", data=samples.x[0][part], chunks=(25, 64))
            file["y"], file["w"] = samples.y[0][part], weights[part]


def configured(batch_size, parameters=None, data=None, **others):
    files = {"train": str(FOLDER / "train.h5"), "validation": str(FOLDER / "validation.h5")}
    return {
        "model": f"{TESTS / MODULE}:build_classes" if FRAMEWORK == "torch" else f"{TESTS / MODULE}:build_model",
        "parameters": parameters or {},
        "data": files | {"features": "X", "labels": "y"} | (data or {}),
        "loss": LOSS,
        "metrics": ["accuracy"],
        "batch_size": batch_size,
        "epochs": 3,
        "optimizer": {"name": "adam", "learning_rate": 0.01, "clip_norm": 0.5, "schedule": SCHEDULE},
        "seed": 5,
    } | others


CASES = {
    "shards": configured(SHARDS, RANDOM),
    "total": configured({"total": 96}, data={"weights": "w"}),
    "per rank": configured(96),
    "weighted shards": configured(SHARDS, RANDOM, {"weights": "w"}),
    "streamed shards": configured(SHARDS, RANDOM, STREAMED),
    "streamed total": configured({"total": 96}, None, STREAMED | {"drop_last": True}),
    "accumulated": configured({"total": 32}, algorithm={"name": "allreduce", "accumulate": 2}),
    "random total": configured({"total": 96}, RANDOM),
}


def found(configuration, n):
    """History, weights and notes of a training on the first `n` ranks; None on the others."""
    part, notes = world.Split(0 if world.rank < n else MPI.UNDEFINED), []
    if world.rank < n:
        result = train(configuration, part, on_note=notes.append)
        model = result.model
        arrays = (
            model.get_weights() if FRAMEWORK == "keras" else [one.numpy() for one in model.state_dict().values()]
        )  # batch statistics included
        part.Free()
    await_all(world)
    if world.rank:
        return None
    weights = np.concatenate([np.ravel(one) for one in arrays]).astype(float)
    return {"history": result.history, "weights": weights.tolist(), "notes": notes}


if world.rank == 0:
    write()
await_all(world)
seen = {name: [found(CASES[name], n) for n in WIDTHS] for name in NAMES}
if world.rank == 0:
    print(json.dumps(seen))
