"""When a search ends before its trials are done."""

from __future__ import annotations

import threading
import time

import pytest

from mpi_learn.job.stop_request import StopRequest
from mpi_opt.coordinator.stop_condition import COPY_S, StopCondition
from tests.mpirun import patient_s


def asked(*signals: str) -> StopRequest:
    request = StopRequest()
    for name in signals:
        request.ask(name)
    return request


def test_a_request_ends_the_search_whatever_its_limit():
    condition = StopCondition(request := StopRequest(), time_limit_s=3600.0)
    assert condition.reason is None
    request.ask("SIGTERM")
    assert condition.is_due()
    assert condition.reason == "got SIGTERM"


def test_the_time_limit_ends_the_search():
    condition = StopCondition(time_limit_s=0.01)
    time.sleep(0.02)
    assert condition.reason == "the time limit is reached"
    assert not condition.has_time_for_one()


@pytest.mark.parametrize(
    ("limit_s", "left_s", "expected_s"),
    [(None, 120.0, 108.0), (60.0, 120.0, 60.0), (None, 7200.0, 7170.0), (9000.0, 7200.0, 7170.0), (None, 3.0, 1.0)],
)
def test_the_end_of_the_batch_job_is_a_time_limit(limit_s, left_s, expected_s):
    condition = StopCondition(None, limit_s, time.time() + left_s)
    condition.add_duration(0.0)
    assert condition._limit_s == pytest.approx(expected_s, abs=0.5)


@pytest.mark.parametrize(("elapsed_s", "may_begin"), [(90.5, True), (91.5, False)])
def test_a_trial_begins_if_nine_of_ten_would_end_in_time(elapsed_s, may_begin):
    condition = StopCondition(time_limit_s=100.0)
    condition._began_s -= elapsed_s
    for duration_s in (4, 10, 1, 7, 2, 9, 3, 8, 5, 6):
        condition.add_duration(float(duration_s))
    assert condition.has_time_for_one() is may_begin


def test_no_trial_fits_that_would_end_after_the_batch_job():
    condition = StopCondition(None, None, time.time() + 100.0)
    assert condition.has_time_for_one()
    condition.add_duration(95.0)
    assert not condition.has_time_for_one()
    assert condition.reason is None  # those that run may end


@pytest.mark.parametrize(
    ("signals", "launcher", "all_live", "may_be"),
    [
        (["SIGTERM"], "mpirun", False, True),
        (["SIGTERM"], "mpiexec", False, True),
        (["SIGTERM"], "srun", False, False),  # from scancel, which may end ranks on other nodes first
        (["SIGTERM", "SIGTERM"], "mpirun", False, False),  # mpirun's, and the batch system's
        (["SIGTERM"], "mpirun", True, False),
        (["SIGINT"], "mpirun", False, False),
        (["SIGUSR1"], "mpirun", False, False),
    ],
)
def test_a_lone_sigterm_may_come_from_a_death_unless_all_ranks_live(signals, launcher, all_live, may_be, monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.stop_condition.is_started_by_srun", lambda: launcher == "srun")
    monkeypatch.setattr("mpi_opt.coordinator.stop_condition.all_ranks_live", lambda: all_live)
    assert StopCondition(asked(*signals)).may_be_death_of_a_rank() is may_be


def test_the_wait_for_a_copy_ends_when_it_arrives(monkeypatch):
    request = asked("SIGTERM")
    monkeypatch.setattr("mpi_opt.coordinator.stop_condition.COPY_S", 60.0)
    threading.Timer(0.05, request.ask, ["SIGTERM"]).start()
    began = time.monotonic()
    StopCondition(request).await_copy()
    assert request.has_copies
    assert time.monotonic() - began < 30.0


def test_the_wait_for_a_copy_that_never_comes_is_short():
    """``mpirun`` kills its ranks after 0.25 s."""
    assert COPY_S < 0.25
    began = time.monotonic()
    StopCondition(asked("SIGTERM")).await_copy()
    assert COPY_S <= time.monotonic() - began < patient_s(2.0)
