from __future__ import annotations

import time

import pytest
from mpi4py import MPI

from mpi_opt.lifeline import Lifeline, TrialTimeout


@pytest.fixture
def lifeline():
    lifeline = Lifeline(None)
    lifeline.open()
    yield lifeline
    lifeline.close()


def test_code_that_takes_too_long_gets_an_exception(lifeline):
    lifeline.guard(MPI.COMM_SELF, 0.1)
    began = time.monotonic()
    with pytest.raises(TrialTimeout, match=r"longer than trial\.timeout, 0\.1 s"):
        time.sleep(30)
    lifeline.rest()
    assert time.monotonic() - began < 5


def test_code_that_is_over_in_time_gets_none(lifeline):
    lifeline.guard(MPI.COMM_SELF, 0.3)
    lifeline.rest()
    time.sleep(1.2)


def test_the_next_guard_knows_nothing_of_the_last_one(lifeline):
    for _ in range(2):
        lifeline.guard(MPI.COMM_SELF, 0.1)
        with pytest.raises(TrialTimeout):
            time.sleep(30)
        lifeline.rest()
        lifeline.rest()
    lifeline.guard(MPI.COMM_SELF, 60)
    time.sleep(1.2)
    lifeline.rest()
