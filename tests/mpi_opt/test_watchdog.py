from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from mpi4py import MPI

from mpi_learn.mpi import communicators, messaging
from mpi_learn.mpi.messaging import RankLost
from mpi_opt.messages.links import SerialCoordinatorLink, SerialWorkerLink
from mpi_opt.messages.messages import TO_WATCHDOG, Disband, EndProcess, Join, WorkerLink
from mpi_opt.worker import watchdog as watchdog_module
from mpi_opt.worker.watchdog import Disbanded, TrialGivenUp, TrialTimeout, Watchdog


@pytest.fixture
def coordinator():
    return SerialCoordinatorLink()


@pytest.fixture
def watchdog(coordinator):
    watchdog = Watchdog(SerialWorkerLink(coordinator, MPI.COMM_SELF), may_end_process=True)
    watchdog.open()
    yield watchdog
    watchdog.close()


def test_code_that_takes_too_long_gets_an_exception(watchdog):
    watchdog.guard(MPI.COMM_SELF, 0.1)
    began = time.monotonic()
    with pytest.raises(TrialTimeout, match=r"longer than trial\.timeout, 0\.1 s"):
        time.sleep(30)
    watchdog.stop_guarding()
    assert time.monotonic() - began < 5


def test_timeout_is_the_cause_of_an_error_of_the_communicator_that_it_has_revoked(watchdog, monkeypatch):
    """The signal of the timeout arrives after the error of the communicator has ended the code."""
    has_revoked = threading.Event()
    monkeypatch.setattr(messaging, "revoke_if_protected", lambda comm: has_revoked.set())
    monkeypatch.setattr(signal, "pthread_kill", lambda thread, number: None)
    revoked, mistake = RankLost("MPI_ERR_REVOKED"), ValueError("a mistake of the user")
    assert watchdog.cause(revoked) is revoked
    watchdog.guard(MPI.COMM_SELF, 0.1)
    assert has_revoked.wait(10)
    watchdog.stop_guarding()
    with pytest.raises(TrialTimeout, match=r"longer than trial\.timeout, 0\.1 s"):
        watchdog.raise_late()
    cause = watchdog.cause(revoked)
    assert isinstance(cause, TrialTimeout)
    assert "longer than trial.timeout, 0.1 s" in str(cause)
    assert cause.__cause__ is revoked
    assert watchdog.cause(mistake) is mistake
    wrapped = ValueError("cannot add")
    wrapped.__context__ = revoked
    assert isinstance(watchdog.cause(wrapped), TrialTimeout)
    watchdog.guard(MPI.COMM_SELF, 60)
    watchdog.stop_guarding()
    watchdog.raise_late()
    assert watchdog.cause(revoked) is revoked


def test_code_is_interrupted_after_numba_has_compiled_a_function_and_not_meanwhile(watchdog):
    """The interrupted numba could load no other function: "generator raised StopIteration"."""
    numba = {"__name__": "numba.core.dispatcher", "time": time}
    exec("def compile(): time.sleep(1.5)", numba)
    began = time.monotonic()
    watchdog.guard(MPI.COMM_SELF, 0.1)
    with pytest.raises(TrialTimeout):
        numba["compile"]()
        compiled_s = time.monotonic() - began
        time.sleep(30)
    watchdog.stop_guarding()
    assert compiled_s >= 1.5
    assert time.monotonic() - began < 10


def test_code_that_is_over_in_time_gets_none(watchdog):
    watchdog.guard(MPI.COMM_SELF, 0.3)
    watchdog.stop_guarding()
    time.sleep(1.2)


def test_the_next_guard_knows_nothing_of_the_last_one(watchdog):
    for _ in range(2):
        watchdog.guard(MPI.COMM_SELF, 0.1)
        with pytest.raises(TrialTimeout):
            time.sleep(30)
        watchdog.stop_guarding()
        watchdog.stop_guarding()
    watchdog.guard(MPI.COMM_SELF, 60)
    time.sleep(1.2)
    watchdog.stop_guarding()


def test_a_process_ends_even_if_it_cannot_write_a_message():
    program = "from mpi_opt.worker.watchdog import end_process; end_process('x')"
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=full, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("end", "status"), [("end_process", -signal.SIGKILL), ("end_unfinished", 75)])
def test_a_process_ends_at_once_whatever_its_user_code_catches_or_still_runs(end, status):
    """Also from another thread, and although a thread of the user never ends."""
    program = f"""
import threading, time
from mpi_opt.worker.watchdog import {end}
threading.Thread(target=time.sleep, args=(60,)).start()
try:
    {end}("rank 0 was lost")
except BaseException as error:
    print("caught", repr(error))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "rank ends: rank 0 was lost\n")


@pytest.mark.parametrize("message", [Disband(3), EndProcess()])
def test_a_trial_whose_block_is_given_up_is_ended(message, watchdog, coordinator):
    coordinator.send(0, Join(3, (0,)))
    watchdog.check(3)
    watchdog.guard(MPI.COMM_SELF, None)
    coordinator.send(0, message)
    with pytest.raises(TrialGivenUp):
        time.sleep(30)
    watchdog.stop_guarding()
    with pytest.raises(Disbanded):
        watchdog.check(3)
    watchdog.check(4)


class OneThreadLink(WorkerLink):
    """A link that other threads must not use, as MPI without `MPI_THREAD_MULTIPLE`."""

    rank = 1
    has_thread = False

    def __init__(self) -> None:
        self.messages, self.thread = [], threading.get_ident()

    def poll(self, tag):
        assert (tag, threading.get_ident()) == (TO_WATCHDOG, self.thread)
        return self.messages.pop() if self.messages else None

    send = receive = form_block = None


def test_without_thread_support_the_coordinator_is_heard_by_the_rank_itself():
    watchdog = Watchdog(link := OneThreadLink(), may_end_process=False)
    watchdog.open()
    try:
        link.messages = [Disband(3)]
        time.sleep(1.2)  # the listening thread has polled twice
        assert link.messages
        with pytest.raises(Disbanded):
            watchdog.check(3)
        watchdog.guard(MPI.COMM_SELF, 0.1)
        with pytest.raises(TrialTimeout):
            time.sleep(30)
        watchdog.stop_guarding()
    finally:
        watchdog.close()


class Creation:
    """The creation of a communicator; counts the messages that the thread polls for meanwhile, and at other times."""

    def __init__(self, monkeypatch) -> None:
        self.is_under_way, self.n_polls = False, {True: 0, False: 0}
        monkeypatch.setattr(watchdog_module, "LISTEN_S", 0.01)
        monkeypatch.setattr(communicators, "_created", lambda comm, group, name: self._created())
        link = SimpleNamespace(has_thread=True, poll=self._poll)
        watchdog = Watchdog(link, may_end_process=False)
        watchdog.open()
        try:
            world = SimpleNamespace(Get_group=lambda: SimpleNamespace(Incl=lambda ranks: None))
            communicators.from_ranks(world, [0, 1], "of two ranks").Free()
            time.sleep(0.2)
        finally:
            watchdog.close()

    def _poll(self, tag):
        self.n_polls[self.is_under_way] += 1

    def _created(self):
        self.is_under_way = True
        time.sleep(0.5)
        self.is_under_way = False
        return MPI.COMM_SELF.Dup()


def test_the_thread_does_not_call_mpi_while_a_communicator_is_created(monkeypatch):
    """In Open MPI 5, the first messages over the new communicator would be lost now and then."""
    creation = Creation(monkeypatch)
    assert creation.n_polls[True] == 0
    assert creation.n_polls[False] > 0


def test_the_thread_can_end_a_process_that_hangs_in_the_creation_of_a_communicator(monkeypatch):
    monkeypatch.setattr(communicators, "CREATION_S", 0.1)
    assert Creation(monkeypatch).n_polls[True] > 0
