"""Runs on every rank of `slow_link.py`: trains with each line of a file. Rank 0 prints a line for each training.

MPI is imported as by ``mpi-learn train``, which raises Open MPI's limit for messages over TCP.
"""

import json
import sys
from pathlib import Path

from mpi_learn import train
from mpi_learn.mpi.library import MPI

world = MPI.COMM_WORLD
for line in Path(sys.argv[1]).read_text().splitlines():
    result = train(json.loads(line), world)
    if world.rank == 0:
        print(json.dumps({"samples_per_second": result.samples_per_second, "history": result.history}), flush=True)
