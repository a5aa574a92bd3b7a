"""Requests to end: signals as a value."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from mpi_learn.job.stop_request import COPIES_S, SIGNALS, WARNING_S, StopRequest, ignored_requests


def handlers() -> list:
    return [signal.getsignal(getattr(signal, name)) for name in SIGNALS]


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 75), ("SIGUSR1", 75)])
def test_a_signal_is_a_request_and_handlers_are_restored(name, status):
    before = handlers()
    with StopRequest().listening() as request:
        assert request.signal_name is None
        os.kill(os.getpid(), getattr(signal, name))
        assert request.signal_name == name
        assert request.status == status
    assert handlers() == before


def test_copies_of_a_signal_are_one_request():
    request, calls = StopRequest(), []
    request.on_first, request.on_second = lambda: calls.append("first"), lambda: calls.append("second")
    for name in ("SIGTERM", "SIGTERM", "SIGINT", "SIGUSR1"):  # the batch system, mpirun, a terminal
        request.ask(name)
    assert calls == ["first"]
    assert request.signal_name == "SIGTERM"
    assert request.has_copies


def test_only_a_second_ctrl_c_ends_at_once():
    request, calls = StopRequest(), []
    request.on_second = lambda: calls.append("second")
    request.ask("SIGINT")
    time.sleep(COPIES_S + 0.05)
    for name in ("SIGTERM", "SIGUSR1"):
        request.ask(name)
    assert not calls
    request.ask("SIGINT")
    assert calls == ["second"]


@pytest.mark.parametrize(
    ("left_s", "heeds_warnings", "is_request"),
    [
        (None, True, True),
        (110.0, True, False),
        (110.0, False, True),  # mpi-opt search -n passes requests on as SIGUSR1
        (WARNING_S + 60.0, True, True),
        (-1.0, True, True),
    ],
)
def test_sigusr1_before_the_known_end_of_the_job_is_a_warning(left_s, heeds_warnings, is_request):
    request = StopRequest(heeds_warnings=heeds_warnings)
    request.job_end_s = None if left_s is None else time.time() + left_s
    request.ask("SIGUSR1")
    assert (request.signal_name is not None) is is_request


@pytest.mark.parametrize("listener", ["request.StopRequest().listening()", "request.ignored_requests()"])
def test_a_process_forked_meanwhile_reacts_to_sigterm_as_before(listener):
    program = (
        "import os, signal, time; from mpi_learn.job import stop_request as request\n"
        f"with {listener}:\n"
        "    child = os.fork()\n"
        "    if child == 0: time.sleep(30)\n"
        "    time.sleep(0.1); os.kill(child, signal.SIGTERM); os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print(os.WTERMSIG(os.waitpid(child, 0)[1]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout == f"{signal.SIGTERM.value}\n", done.stderr


def test_ranks_that_do_not_coordinate_ignore_requests():
    before = handlers()
    with ignored_requests():
        for name in SIGNALS:
            os.kill(os.getpid(), getattr(signal, name))
        for name in ("SIGINT", "SIGUSR1"):  # programs that user code starts inherit this
            assert signal.getsignal(getattr(signal, name)) is signal.SIG_IGN
    assert handlers() == before
