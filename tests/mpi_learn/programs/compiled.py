"""Run under mpirun: timings of XLA that differ from rank to rank; rank 0 prints what each rank chose and learned."""

import json
from pathlib import Path

from mpi4py import MPI

from mpi_learn import train
from mpi_learn.models.keras_.model import KerasModel
from mpi_learn.training.timing import timed_choices
from tests.mpi_learn.models_for_tests import digits

COMMON = {
    "model": f"{Path(__file__).parents[1] / 'models_for_tests.py'}:build_model",
    "loss": "sparse_categorical_crossentropy",
    "batch_size": 64,
}
TIMES = {0: (1.0, 1.5), 1: (3.0, 1.0), 2: (1.0, 1.2)}
"""By rank: seconds without and with XLA. Over all, and without rank 0, XLA wins, though on most ranks it loses."""


def main() -> None:
    world = MPI.COMM_WORLD
    timed_choices.WORTH_S, timed_choices.WORTH_STEPS = 0.0, 1
    timed_choices.both_seconds = lambda *arguments: TIMES[world.rank]
    chosen = []
    KerasModel.compile_step = lambda self, by_xla: chosen.append(by_xla)
    seen = {}
    for name in ("allreduce", "downpour"):
        chosen.clear()
        result = train(COMMON | {"algorithm": name}, world, data=digits())
        seen[name] = world.gather({"chosen": list(chosen), "loss": result.history["val_loss"]})
    if world.rank == 0:
        print(json.dumps(seen))


main()
