"""Times the Allreduce of the three networks' gradients; run by ``measure.py`` with ``mpirun``.

As in a training, no barrier synchronises the ranks before an Allreduce. Rank 0 prints the median seconds for each
number of bytes in ``sys.argv`` as one line of JSON.
"""

import json
import statistics
import sys
import time

import numpy as np

from mpi_learn.mpi.library import MPI

REPEATS = 24
world = MPI.COMM_WORLD
found = {}
for n_bytes in map(int, sys.argv[1:]):
    vector = np.ones(n_bytes // 4, np.float32)
    ends = []
    for _ in range(REPEATS + 3):  # the first ones open connections and widen TCP's windows
        world.Allreduce(MPI.IN_PLACE, vector)
        ends.append(time.perf_counter())
    found[n_bytes] = statistics.median(np.diff(ends[2:]))
if world.rank == 0:
    print(json.dumps(found))
