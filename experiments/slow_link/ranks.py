"""Runs on every rank of `slow_link.py`: trains with each line of a file. Rank 0 prints a line for each training."""

import json
import sys
from pathlib import Path

from mpi4py import MPI

from mpi_learn import train

world = MPI.COMM_WORLD
for line in Path(sys.argv[1]).read_text().splitlines():
    result = train(json.loads(line), world)
    if world.rank == 0:
        print(json.dumps({"samples_per_second": result.samples_per_second, "history": result.history}), flush=True)
