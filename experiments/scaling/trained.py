"""Trains the lines of a file one after the other; run by ``measure.py`` with ``mpirun`` on hosts of a slow network.

Rank 0 prints the samples per second of each epoch but the first as one line of JSON for each training. The first epoch
opens the connections and widens TCP's windows.
"""

import json
import sys
from pathlib import Path

from mpi_learn import train
from mpi_learn.mpi.library import MPI
from mpi_learn.training.state import EpochReport


def main() -> None:
    for line in Path(sys.argv[1]).read_text().splitlines():
        epochs: list[EpochReport] = []
        train(json.loads(line), MPI.COMM_WORLD, progress=epochs.append)
        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps({"samples_per_second": [epoch.samples_per_second for epoch in epochs[1:]]}), flush=True)


main()
