from __future__ import annotations

import pytest

from mpi_learn.cli.launch import find_mpirun, launch_flags
from tests.mpirun import mpirun


@pytest.mark.mpi
@pytest.mark.skipif("ulfm" not in launch_flags(find_mpirun()), reason="this MPI does not survive lost ranks")
def test_who_waits_in_a_part_of_a_communicator_is_freed_with_it():
    done = mpirun(3, "-m", "tests.mpi_learn.programs.revoking", timeout=30)
    assert done.returncode == 0, done.stderr
    assert "all are freed" in done.stdout
