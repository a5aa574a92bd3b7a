"""Rank 0 dies while the other ranks gather objects from all ranks."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
from mpi4py import MPI

from mpi_learn.mpi.communicators import split
from mpi_learn.mpi.messaging import ERROR_CLASSES, revoke_if_protected

comm = split(MPI.COMM_WORLD, 0)
comm.allgather("the connections are open")
if comm.rank == 0:
    signal.alarm(1)  # ends this rank in the next call if the others do not begin with the same one
    # the part of mpi4py's allgather that exchanges the lengths of the objects
    comm.Allgather(np.array([len(MPI.pickle.dumps(0))]), np.empty(comm.size, int))
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0.2)
try:
    print("gathered", comm.allgather(0), flush=True)
except MPI.Exception as error:
    print(
        "the death is reported" if error.Get_error_class() in ERROR_CLASSES else f"another error: {error}", flush=True
    )
revoke_if_protected(comm)
time.sleep(0.5)  # until the other ranks have received the release
os._exit(0)
