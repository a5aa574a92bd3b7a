"""How long the coordinator waits for messages, over MPI and in one process."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from mpi4py import MPI

from mpi_opt.messages.mpi_link import MPICoordinatorLink
from mpi_opt.messages.serial_link import SerialCoordinatorLink
from tests.mpirun import patient_s


@pytest.fixture(params=["MPI", "one process"])
def link(request):
    """A coordinator's link over which no message arrives."""
    return MPICoordinatorLink(MPI.COMM_SELF) if request.param == "MPI" else SerialCoordinatorLink()


def test_the_coordinator_waits_asleep_and_no_longer_than_it_wants(link):
    began_s, used_s = time.monotonic(), time.thread_time()
    assert link.receive(0.5, lambda: False) == []
    assert 0.5 <= time.monotonic() - began_s < patient_s(5)
    assert time.thread_time() - used_s < 0.15


def test_an_interruption_ends_the_wait(link):
    until_s = time.monotonic() + 0.2
    assert link.receive(60.0, lambda: time.monotonic() >= until_s) == []
    assert 0.2 <= time.monotonic() + 0.2 - until_s < patient_s(10)


@pytest.mark.timing
def test_a_waiting_coordinator_asks_often_whether_it_is_interrupted(link):
    def longest_gap_s():
        asked_s: list[float] = []
        link.receive(1.5, lambda: bool(asked_s.append(time.monotonic())))
        return max(after - before for before, after in pairwise(asked_s))

    assert any(longest_gap_s() < 0.05 for _ in range(5))  # several attempts: a loaded machine pauses processes
