"""Run under mpirun: one worker takes four times as long per batch; rank 0 prints how many batches each computes.

The arguments are values of ``data.share``, for each of which there is a training. Before it, every rank sends rank 0 a
message of its own; rank 0 receives them, with any tag, afterwards.
"""

import json
import sys
import time
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

import mpi_learn.training.train
from mpi_learn import read_configuration, train
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.weights_only import ModelSizes, WeightsOnly

world = MPI.COMM_WORLD
SLOW = world.size - 1
FAST = range(1, SLOW)
SLOWER = 4
IDLE_S = 1.0
"""The slow worker stops waiting when the fast ones have computed nothing for this long: they have no batches left."""

ticks = world.Dup()
counts = {"batches": 0, "ticks": 0}


class Counter(WeightsOnly):
    """A model without a gradient. Time is counted in batches of the fast workers, not in seconds.

    Each batch of a fast worker sends a message to the slow one, which takes as long for a batch as each fast one for
    `SLOWER` batches.
    """

    def __init__(self):
        super().__init__(ModelSizes(FlatLayout(((10,),)), "numpy", 5, 0, 0), build=None)
        self.weights[:] = 0
        self.are_others_busy = True

    def gradient(self, x, y, weights=()):
        counts["batches"] += 1
        if world.rank == SLOW:
            self.wait()
        else:
            ticks.send(None, dest=SLOW)
        step = np.zeros(15, np.float32)
        step[10:13] = len(x[0]), float(x[0].sum()), len(x[0])
        return step

    def wait(self):
        patience_s = IDLE_S if self.are_others_busy else 0.0
        heard = time.monotonic()
        while counts["ticks"] < SLOWER * len(FAST) * counts["batches"]:
            if ticks.Iprobe():
                ticks.recv()
                counts["ticks"], heard, patience_s = counts["ticks"] + 1, time.monotonic(), IDLE_S
            elif time.monotonic() >= heard + patience_s:
                patience_s = 0.0
                break
            time.sleep(1e-4)
        self.are_others_busy = patience_s > 0

    def finish(self):
        return None

    def metrics(self, sums):
        return {"loss": float(sums[1]), "samples": float(sums[0])}


def trained(share):
    n = 8 * 120
    samples = Samples((np.arange(n, dtype=np.float32)[:, None],), (np.zeros(n, np.float32),))
    data = {"train": ["nothing.h5"], "features": "X", "labels": "y", "share": share}
    content = {"model": "m.py:f", "loss": "mse", "data": data, "batch_size": 8, "algorithm": "downpour", "epochs": 2}
    empty = Samples((np.zeros((0, 1), np.float32),), (np.zeros(0, np.float32),))
    counts.update(batches=0, ticks=0)
    request = world.isend("the caller's", dest=0, tag=1)
    with patch.object(mpi_learn.training.train, "build_model", lambda *arguments: Counter()):
        result = train(read_configuration(content), world, data=Dataset(samples, empty))
    kept = [world.recv() for _ in range(world.size)] if world.rank == 0 else []
    request.wait()
    while world.rank == SLOW and ticks.Iprobe():
        ticks.recv()
    return {"kept": kept, "batches": world.allgather(counts["batches"])[1:], "history": result.history}


seen = {share: trained(share) for share in sys.argv[1:]}
if world.rank == 0:
    print(json.dumps(seen))
