from __future__ import annotations

import pytest

from tests.mpirun import SURVIVES_LOST_RANKS, mpirun


@pytest.mark.mpi
@pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks")
def test_ranks_that_wait_in_a_derived_communicator_are_freed_with_it():
    done = mpirun(3, "-m", "tests.mpi_learn.programs.revoking", timeout=30)
    assert done.returncode == 0, done.stderr
    assert "all are freed" in done.stdout


@pytest.mark.mpi
@pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks")
def test_a_death_during_an_allgather_of_objects_is_reported_on_every_rank():
    """``MPI_Allgatherv`` of Open MPI 5 ignores an error of its broadcast and leaves the buffer as it was."""
    done = mpirun(6, "-m", "tests.mpi_learn.programs.death_in_allgather", timeout=30)
    assert done.stdout.splitlines() == ["the death is reported"] * 5, done.stdout + done.stderr
