"""Times the Allreduce of the three networks' gradients; run by ``measure.py`` with ``mpirun``.

Rank 0 prints the median seconds for each number of bytes in ``sys.argv`` as one line of JSON.
"""

import json
import statistics
import sys
import time

import numpy as np
from mpi4py import MPI

REPEATS = 15
world = MPI.COMM_WORLD
found = {}
for n_bytes in map(int, sys.argv[1:]):
    vector = np.ones(n_bytes // 4, np.float32)
    times = []
    for _ in range(REPEATS + 2):  # the first two open connections and widen TCP's windows
        world.Barrier()
        began = time.perf_counter()
        world.Allreduce(MPI.IN_PLACE, vector)
        times.append(world.allreduce(time.perf_counter() - began, MPI.MAX))
    found[n_bytes] = statistics.median(times[2:])
if world.rank == 0:
    print(json.dumps(found))
