"""Run under mpirun: one rank raises at the place of the first argument; all ranks must raise the same error."""

import json
import sys
from pathlib import Path

from mpi4py import MPI

import mpi_learn.training.train
from mpi_learn import train
from mpi_learn.data.samples.batches import Batches
from mpi_learn.errors import MPILearnError
from tests.mpi_learn.models_for_tests import digits

world = MPI.COMM_WORLD
LAST = world.size - 1
CONFIGURATION = {
    "model": f"{Path(__file__).parents[1] / 'torch_models_for_tests.py'}:build_classes",
    "loss": "cross_entropy",
    "epochs": 3,
    "batch_size": 100,
}


def boom(*arguments):
    raise RuntimeError("boom")


def left(*arguments):
    sys.exit("boom")


class FailingBatches(Batches):
    def epoch(self, epoch):
        for step, batch in enumerate(super().epoch(epoch)):
            if world.rank == LAST and epoch == 1 and step == 2:
                boom()
            yield batch


class FailingGradient:
    """Wraps a model's gradient and raises at the third call."""

    def __init__(self, model):
        self.gradient, self.calls = model.gradient, 0

    def __call__(self, x, y, weights=()):
        self.calls += 1
        return boom() if self.calls == 3 else self.gradient(x, y, weights)


def attempt(where: str) -> str:
    batches, built = mpi_learn.training.setup.make_batches, mpi_learn.training.train.build_model
    on_epoch = progress = None
    changes = {}
    if where == "progress":
        progress = boom
    if where == "data":
        mpi_learn.training.setup.make_batches = FailingBatches
    if where == "callback" and world.rank == LAST:
        on_epoch = boom
    if where == "accumulated":  # others average moving means at the step at which this one fails
        changes = {"algorithm": {"name": "allreduce", "accumulate": 2}, "sync_batchnorm": True}
        changes["parameters"] = {"norm": True}
    if where == "exit" and world.rank == LAST:
        on_epoch = left
    if where == "build":  # on one rank only, as if its host lacked a package
        changes = {"model": CONFIGURATION["model"].replace("build_classes", "build_or_leave")}
    if where in ("gradient", "accumulated"):

        def failing(*arguments):
            model = built(*arguments)
            if world.rank == LAST:
                model.gradient = FailingGradient(model)
            return model

        mpi_learn.training.train.build_model = failing
    if where == "validation":

        def failing(*arguments):
            model = built(*arguments)
            if world.rank == LAST:
                model.evaluate = boom
            return model

        mpi_learn.training.train.build_model = failing
    try:
        train(CONFIGURATION | changes, world, data=digits(), on_epoch=on_epoch, progress=progress)
    except MPILearnError as error:
        return f"{type(error).__name__} of rank {getattr(error, 'rank', LAST)}: {getattr(error, 'reason', error)}"
    finally:
        mpi_learn.training.setup.make_batches, mpi_learn.training.train.build_model = batches, built
    return "no error"


seen = {where: world.gather(attempt(where)) for where in (*sys.argv[1:], "nowhere")}
if world.rank == 0:
    print(json.dumps(seen))
