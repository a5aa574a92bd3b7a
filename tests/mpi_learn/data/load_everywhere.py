"""Run by every rank of a test: loads a file and prints the result."""

import sys

from mpi4py import MPI

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.loading import load
from mpi_learn.errors import DataError

world = MPI.COMM_WORLD
configuration = DataConfiguration(train=sys.argv[1], features=sys.argv[2], labels="y")
try:
    dataset = load(configuration, world, seed=1)
except DataError as error:
    print(error, flush=True)
else:
    x = dataset.training.x[0]
    total = float(x.sum())
    world.Barrier()
    if world.rank == 0:
        x[0, 0] = -1
    world.Barrier()
    print(f"samples {len(dataset.training)} sum {total} seen by all {x[0, 0] == -1}", flush=True)
