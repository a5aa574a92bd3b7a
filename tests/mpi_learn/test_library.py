"""The settings of the MPI library."""

from __future__ import annotations

import pytest

from tests.mpirun import OPEN_MPI, PROTECTED, mpirun, patient_s

IS_SENT_AT_ONCE = """
import sys, time
import numpy as np
from mpi_learn.mpi.library import MPI

world, vector = MPI.COMM_WORLD, np.ones(2**20, np.uint8)
if world.rank == 0:
    sending, end = world.Isend(vector, dest=1, tag=1), time.monotonic() + float(sys.argv[1])
    while not (is_sent := sending.Test()) and time.monotonic() < end:
        time.sleep(1e-3)
    world.send(None, dest=1, tag=2)
    sending.Wait()
    print("sent at once:", is_sent)
else:
    while not world.iprobe(tag=2):  # lets MPI progress, and does not receive the vector yet
        time.sleep(1e-3)
    world.Recv(vector, tag=1)
    world.recv(tag=2)
"""


@pytest.mark.mpi
@pytest.mark.skipif(not OPEN_MPI, reason="the setting is one of Open MPI")
@pytest.mark.parametrize(("flags", "is_sent"), [([], True), (["--mca", "btl_tcp_eager_limit", "65536"], False)])
def test_a_vector_over_tcp_does_not_wait_for_its_receiver_unless_the_user_limits_it(flags, is_sent):
    over_tcp = [*PROTECTED, "--mca", "btl", "self,tcp", *flags]
    limit_s = patient_s(15) if is_sent else 2
    assert f"sent at once: {is_sent}" in mpirun(2, "-c", IS_SENT_AT_ONCE, str(limit_s), mpirun_flags=over_tcp).stdout
