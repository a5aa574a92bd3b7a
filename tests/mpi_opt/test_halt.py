from __future__ import annotations

import os
import signal

from mpi_opt.coordinator.halt import Halt, slurm_time_left_s


def test_slurms_end_of_the_job_is_a_time_limit():
    assert slurm_time_left_s({"SLURM_JOB_END_TIME": "10000"}, now_s=6000.0) == 4000 - 60
    assert slurm_time_left_s({"SLURM_JOB_END_TIME": "10000"}, now_s=9990.0) == 1.0
    assert slurm_time_left_s({}, now_s=0.0) is None


def test_a_signal_is_a_wish_to_end_and_its_handler_is_put_back():
    before = signal.getsignal(signal.SIGTERM)
    halt = Halt()
    with halt.listening():
        assert halt.reason is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert halt.reason == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) == before
