"""When a training ends before its last epoch: on request, or because its batch job ends."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import pytest

from mpi_learn import read_configuration
from mpi_learn.cli import error_report
from mpi_learn.cli.error_report import Interruption
from mpi_learn.job.stop_request import StopRequest
from mpi_learn.testing.thread_ranks import run_ranks

JOB_S = 3600.0


class Clock:
    """The time of a job in seconds since its start."""

    def __init__(self):
        self.now_s = 0.0

    def time(self):
        return self.now_s

    monotonic = time


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(error_report, "time", clock)
    monkeypatch.setattr(error_report, "job_end_s", lambda: JOB_S)
    return clock


def configured(every=1, **changes):
    checkpoint = {"checkpoint": {"path": "unused", "every": every}}
    return read_configuration({"model": "m.py:f", "loss": "mse", "data": None} | checkpoint | changes)


WORLD = SimpleNamespace(rank=0, size=1, bcast=lambda value, root=0: value)


def test_the_reason_to_end_remains_while_the_epoch_trained_in_the_meantime_is_reported(clock):
    """Validation in a thread reports two epochs in succession."""
    ends = Interruption(StopRequest(), WORLD, configured(every=5, validation={"mode": "thread"}))
    ends.before_first_epoch()
    clock.now_s = 2000.0
    assert ends.after_epoch(0, {})
    assert ends.after_epoch(1, {})
    assert ends.reason == "the batch job is about to end"


@pytest.mark.parametrize(
    ("changes", "began_s", "reports_s", "ends_s"),
    [
        ({}, 0, [1000, 2000, 3000], 3000),
        ({}, 1500, [1800, 2100, 2400, 2700, 3000, 3300], 3300),
        ({}, 0, [1500, 1800, 2100, 2400, 2700, 3000, 3300], 3300),
        ({"validation": {"every": 3}}, 500, [600, 700, 1300, 1400, 1500, 2100, 2200, 2300, 2900, 3000], 3000),
        ({"validation": {"mode": "thread"}, "every": 3}, 0, [1000, 1500, 1500, 2500, 3000], 3000),
    ],
    ids=["equal epochs", "slow start", "slow first epoch", "some with validation", "two reported in succession"],
)
def test_a_training_ends_before_an_epoch_that_its_job_would_cut_off(clock, changes, began_s, reports_s, ends_s):
    """The job ends after 3600 s, the training at least 30 s before."""
    ends = Interruption(StopRequest(), WORLD, configured(**changes))
    clock.now_s = began_s
    ends.before_first_epoch()
    for epoch, clock.now_s in enumerate(reports_s):
        if ends.after_epoch(epoch, {}):
            break
    assert ends.reason == "the batch job is about to end"
    assert (clock.now_s, epoch) == (ends_s, len(reports_s) - 1)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_the_warning_of_a_batch_system_ends_no_training_that_knows_the_end_of_its_job(monkeypatch, has_checkpoint):
    """Only rank 0 asks Slurm, and the signal reaches all ranks."""
    monkeypatch.setattr(os, "_exit", lambda status: pytest.fail("a rank ended"))
    asked = []
    monkeypatch.setattr(error_report, "job_end_s", lambda: asked.append(1) or time.time() + 100)
    changes = {} if has_checkpoint else {"checkpoint": None}

    def run(comm):
        request = StopRequest()
        ends = Interruption(request, comm, configured(**changes))
        request.ask("SIGUSR1")
        return ends.after_epoch(0, {})

    assert run_ranks(3, run) == [False] * 3
    assert len(asked) == 1


def test_a_request_without_checkpoints_ends_all_ranks_at_once(monkeypatch):
    monkeypatch.setattr(os, "_exit", lambda status: ended.append(status))
    monkeypatch.setattr(error_report, "job_end_s", lambda: None)
    ended = []

    def run(comm):
        request = StopRequest()
        Interruption(request, comm, configured(checkpoint=None))
        request.ask("SIGUSR1")

    run_ranks(3, run)
    assert ended == [75] * 3
