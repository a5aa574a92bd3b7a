"""Run under mpirun: trains the digits in several ways; rank 0 prints one JSON line of what every rank saw."""

import json
from pathlib import Path

from mpi4py import MPI

from mpi_learn import train
from tests.mpi_learn.models_for_tests import digits

COMMON = {
    "model": f"{Path(__file__).parents[1] / 'models_for_tests.py'}:build_model",
    "loss": "sparse_categorical_crossentropy",
    "metrics": ["accuracy"],
    "epochs": 3,
    "seed": 11,
}
GLOBAL_BATCH = 120
CLIPPED = {"name": "sgd", "momentum": 0.9, "learning_rate": 0.05, "clip_norm": 0.5}
NORMALISED = {"parameters": {"norm": True}, "validation": {"mode": "master"}}
STOPPED = {"epochs": 30, "target": {"metric": "val_accuracy", "above": 0.6}, "early_stopping": {"patience": 9}}
CASES = {
    "plain": ((1, 3), {}),
    "penalised and clipped": ((1, 3), {"parameters": {"penalty": 0.01}, "optimizer": CLIPPED}),
    "normalised": ((1, 2), NORMALISED),
    "synchronised": ((2,), NORMALISED | {"sync_batchnorm": True}),
    "stopped": ((3,), STOPPED),
}
"""Name -> the numbers of ranks on which it is trained, and what it changes."""


def main() -> None:
    world = MPI.COMM_WORLD
    seen = {}
    for name, (sizes, changes) in CASES.items():
        if world.size not in sizes:
            continue
        result = train(COMMON | changes | {"batch_size": GLOBAL_BATCH // world.size}, world, data=digits())
        checksum = [float(abs(weights).sum()) for weights in result.model.get_weights()]
        seen[name] = world.gather({"history": result.history, "weights": checksum})
    if world.size == 3:  # a training of some of the ranks, after one of all
        half = world.Split(world.rank % 2, world.rank)
        result = train(COMMON | {"batch_size": GLOBAL_BATCH // half.size}, half, data=digits())
        seen["half"] = world.gather({"history": result.history, "weights": []})
    if world.rank == 0:
        print(json.dumps(seen))


main()
