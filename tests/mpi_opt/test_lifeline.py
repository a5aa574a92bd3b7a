from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from mpi4py import MPI

from mpi_opt.worker.watchdog import Lifeline, TrialGivenUp, TrialTimeout


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


def test_a_process_ends_also_where_nothing_can_be_written():
    program = "from mpi_opt.worker.watchdog import end_process; end_process('x')"
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=full, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


def test_the_trial_of_a_search_of_one_process_is_ended_when_the_search_is_to_end(lifeline, monkeypatch):
    monkeypatch.setattr("mpi_opt.worker.watchdog.HALT_S", 0.1)
    lifeline.must_end = lambda: True
    lifeline.guard(MPI.COMM_SELF, None)
    with pytest.raises(TrialGivenUp):
        time.sleep(30)
    lifeline.rest()
    assert lifeline.has_given_up
