from __future__ import annotations

import pytest

from tests.mpirun import SURVIVES_LOST_RANKS, mpirun


@pytest.mark.mpi
@pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks")
def test_ranks_that_wait_in_a_derived_communicator_are_freed_with_it():
    done = mpirun(3, "-m", "tests.mpi_learn.programs.revoking", timeout=30)
    assert done.returncode == 0, done.stderr
    assert "all are freed" in done.stdout
