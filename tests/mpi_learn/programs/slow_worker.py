"""Run under mpirun: one worker takes four times as long for each batch; rank 0 prints how long an epoch takes."""

import json
import time

import numpy as np
from mpi4py import MPI

import mpi_learn.training.loop
from mpi_learn import read_configuration, train
from mpi_learn.data import Dataset, Samples
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.weights_only import WeightsOnly

world = MPI.COMM_WORLD
STEP_S = 0.02
SLOWER = 4


class Sleeper(WeightsOnly):
    """A model whose gradient is nothing but time."""

    def __init__(self):
        super().__init__(FlatLayout(((10,),)), 4, 0, 0, build=None)
        self.weights[:] = 0

    def gradient(self, x, y):
        time.sleep(STEP_S * (SLOWER if world.rank == world.size - 1 else 1))
        step = np.zeros(14, np.float32)
        step[10:12] = len(x[0]), float(x[0].sum())
        return step

    def finish(self):
        return None

    def metrics(self, sums):
        return {"loss": float(sums[1]), "samples": float(sums[0])}


def spent(share):
    n = 8 * 120
    samples = Samples((np.arange(n, dtype=np.float32)[:, None],), (np.zeros(n, np.float32),))
    data = {"train": ["nothing.h5"], "features": "X", "labels": "y", "share": share}
    content = {"model": "m.py:f", "loss": "mse", "data": data, "batch_size": 8, "algorithm": "downpour", "epochs": 2}
    mpi_learn.training.loop.build_model = lambda *arguments: Sleeper()
    empty = Samples((np.zeros((0, 1), np.float32),), (np.zeros(0, np.float32),))
    reports = []
    result = train(read_configuration(content), world, data=Dataset(samples, empty), progress=reports.append)
    return {"seconds": min(report.seconds for report in reports) if reports else 0, "history": result.history}


seen = {share: spent(share) for share in ("static", "dynamic")}
if world.rank == 0:
    speed = world.size - 2 + 1 / SLOWER
    print(json.dumps(seen | {"ideal": 120 * STEP_S / speed}))
