"""Run under mpirun: trains PyTorch models with the gradient summed as a whole and in buckets; prints the histories."""

import json
from pathlib import Path

from mpi4py import MPI

import mpi_learn.training.loop
from mpi_learn import train
from mpi_learn.algorithms.buckets import Buckets
from mpi_learn.errors import MPILearnError
from tests.mpi_learn.models_for_tests import digits

HERE = Path(__file__).parents[1]
world = MPI.COMM_WORLD
COMMON = {
    "model": f"{HERE / 'torch_models_for_tests.py'}:build_classes",
    "parameters": {"units": 40, "norm": True},
    "loss": "cross_entropy",
    "metrics": ["accuracy"],
    "epochs": 2,
    "batch_size": 61,  # the last batches are smaller, and not the same on all ranks
    "seed": 11,
}
CASES = {
    "plain": {},
    "clipped": {"optimizer": {"name": "adam", "clip_norm": 0.05}},
    "accumulated": {"algorithm": {"accumulate": 3}},
}
BUCKET_BYTES = 1000
begun = []
begin = Buckets.begin


def counted(self, vector, part):
    begun.append(part)
    begin(self, vector, part)


class Raising:
    """Raises on the last rank in the middle of a back-propagation, after some buckets are begun."""

    def __init__(self, model):
        self.announce, self.calls = model.announce, 0

    def __call__(self, ready):
        def raising(step, array):
            ready(step, array)
            self.calls += 1
            if world.rank == world.size - 1 and self.calls > 20:
                raise RuntimeError("boom")

        self.announce(raising)


def trained(changes, **algorithm):
    changes = {**changes, "algorithm": {"name": "allreduce"} | changes.get("algorithm", {}) | algorithm}
    try:
        return train(COMMON | changes, world, data=digits()).history
    except MPILearnError as error:
        return f"{type(error).__name__}: {error.reason}"


Buckets.begin = counted
seen = {}
for name, changes in CASES.items():
    whole = trained(changes)
    begun.clear()
    seen[name] = world.gather({"whole": whole, "buckets": trained(changes, bucket_bytes=BUCKET_BYTES)})
seen["begun"] = world.gather(len(begun))
built = mpi_learn.training.loop.built_model


def failing(*arguments):
    model = built(*arguments)
    model.announce = Raising(model)
    return model


mpi_learn.training.loop.built_model = failing
seen["raising"] = world.gather(trained({}, bucket_bytes=BUCKET_BYTES))
if world.rank == 0:
    print(json.dumps(seen))
