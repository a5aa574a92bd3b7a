"""Messages of arrays."""

from __future__ import annotations

import pytest
from mpi4py import MPI

from mpi_learn.mpi.communicators import n_bytes


@pytest.mark.parametrize("length", [0, 12, 2**31 - 4, 2**31, 2**33 + 64])
def test_the_length_of_a_message_may_exceed_two_gibibytes(length):
    status = MPI.Status()
    status.Set_elements(MPI.BYTE, length)
    assert n_bytes(status) == length
