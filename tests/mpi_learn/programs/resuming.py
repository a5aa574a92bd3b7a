"""Run under mpirun: trains by every algorithm with and without interruption; rank 0 prints both histories."""

import json
import sys
from pathlib import Path

from mpi4py import MPI

from mpi_learn import train
from mpi_learn.errors import TrainingError
from tests.mpi_learn.models_for_tests import digits

HERE = Path(__file__).parents[1]
SGD = {"name": "sgd", "learning_rate": 0.1, "momentum": 0.9}
COMMON = {
    "model": f"{HERE / 'torch_models_for_tests.py'}:build_classes",
    "loss": "cross_entropy",
    "epochs": 4,
    "batch_size": 128,
    "seed": 2,
    "optimizer": SGD,
}
# with one worker below a master the order of exchanges is always the same
CASES = {
    "top-k": {"name": "allreduce", "compression": "top-k", "fraction": 0.05},
    "power-sgd": {"name": "allreduce", "compression": "power-sgd", "matrix_rank": 2},
    "exact steps": {"name": "allreduce", "compression": "top-k", "fraction": 0.05, "exact_steps": 20},
    "downpour": {"name": "downpour", "sync_every": 3},
    "easgd": {"name": "easgd", "sync_every": 3},
    "gem": {"name": "gem", "sync_every": 2},
    "clusters": {"name": "clusters", "size": 2},
}


class InterruptionError(Exception):
    pass


def interrupted(epoch, metrics):
    if epoch == 2:
        raise InterruptionError
    return False


def main(folder: str) -> None:
    world = MPI.COMM_WORLD
    seen = {}
    for name, algorithm in CASES.items():
        training = COMMON | {"algorithm": algorithm}
        whole = train(training, world, data=digits())
        checkpointed = training | {"checkpoint": {"path": f"{folder}/{name}", "every": 2}}
        try:
            train(checkpointed, world, data=digits(), on_epoch=interrupted)
            raise AssertionError("it was not interrupted")
        except TrainingError:
            resumed = train(checkpointed, world, data=digits())
        seen[name] = [whole.history["loss"], resumed.history["loss"]]
    if world.rank == 0:
        print(json.dumps(seen))


main(sys.argv[1])
