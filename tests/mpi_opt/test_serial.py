"""Searches of one process: the same rules as over MPI, in the main thread and in others."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

import mpi_opt
from mpi_opt.errors import ConfigurationError, SearchFailed
from mpi_opt.messages.links import SerialCoordinatorLink, SerialWorkerLink
from mpi_opt.messages.messages import STOP, Dismissal, Join, Ready, Report
from mpi_opt.strategies.designs.random_search import RandomSearch
from mpi_opt.strategies.strategy import Decision
from tests.mpirun import patient_s

SETTINGS = {"space": {"x": mpi_opt.Real(0, 1)}, "strategy": "random", "store": "sqlite://", "seed": 1}


def in_a_thread(call):
    """Returns or raises the result of `call` in a thread of this process."""
    found = []

    def run():
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001 - raised again below
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert found, "the search did not end"
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def here(call):
    return call()


def quick_trials_s() -> float:
    """A limit that trials of no work do not reach: 0.5 s on a quiet machine, in whole tenths of a second."""
    return round(patient_s(0.25), 1)


def loops_in_trial_1(trial) -> float:
    until = time.monotonic() + 30
    while trial.number == 1 and time.monotonic() < until:
        pass
    return trial.parameters["x"]


@pytest.mark.parametrize("where", [here, in_a_thread])
def test_a_trial_that_takes_too_long_fails_and_the_search_continues(where):
    limit_s = quick_trials_s()
    study = where(lambda: mpi_opt.search(loops_in_trial_1, trials=3, timeout=limit_s, **SETTINGS))
    assert [trial.state for trial in study.trials] == ["complete", "failed", "complete"]
    assert f"TrialTimeout: the trial took longer than trial.timeout, {limit_s:g} s" in study.trials[1].error


def test_in_a_thread_a_trial_that_no_exception_can_interrupt_fails_when_it_returns(monkeypatch):
    limit_s = quick_trials_s()

    def sleeps_in_trial_1(trial) -> float:
        time.sleep((limit_s + 2.3) * (trial.number == 1))
        return trial.parameters["x"]

    monkeypatch.setattr("mpi_opt.worker.watchdog.GRACE_S", 0.1)  # after which the process would be ended
    study = in_a_thread(lambda: mpi_opt.search(sleeps_in_trial_1, trials=3, timeout=limit_s, **SETTINGS))
    assert [trial.state for trial in study.trials] == ["complete", "failed", "complete"]


UNINTERRUPTIBLE = """
import faulthandler, hashlib
import mpi_opt, mpi_opt.worker.watchdog
mpi_opt.worker.watchdog.GRACE_S = 0.1
faulthandler.dump_traceback_later = lambda *a, **k: None  # for code that blocks Python, which this code does not
def works(trial):
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # minutes in C
mpi_opt.search(works, space={"x": mpi_opt.Real(0, 1)}, strategy="random", timeout=0.5)
"""


def test_a_process_that_ends_with_a_trial_it_cannot_interrupt_is_unfinished(tmp_path):
    ended = subprocess.run([sys.executable, "-c", UNINTERRUPTIBLE], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 75, ended.stderr
    assert "rank ends: the trial took too long and could not be interrupted" in ended.stderr


def test_a_trial_that_catches_its_timeout_has_failed():
    def catches(trial) -> float:
        with suppress(Exception):
            time.sleep(30)
        return 1.0

    with pytest.raises(SearchFailed, match=r"longer than trial\.timeout, 0\.5 s"):
        mpi_opt.search(catches, trials=1, timeout=0.5, **SETTINGS)


@pytest.mark.parametrize("objective", [None, 0.5])
def test_an_objective_that_cannot_be_called_is_refused(objective):
    with pytest.raises(ConfigurationError, match=r"expected a function, found .*\n  → write search\(objective"):
        mpi_opt.search(objective, **SETTINGS)


def test_in_a_notebook_the_process_is_never_ended(monkeypatch):
    monkeypatch.setattr("sys.ps1", "In : ", raising=False)
    monkeypatch.setattr("mpi_opt.worker.watchdog.GRACE_S", 0.1)
    limit_s = quick_trials_s()

    def stubborn(trial) -> float:
        until = time.monotonic() + limit_s + 1.8
        while trial.number == 1 and time.monotonic() < until:
            with suppress(Exception):  # user code that catches everything
                time.sleep(0.1)
        return trial.parameters["x"]

    study = mpi_opt.search(stubborn, trials=3, timeout=limit_s, **SETTINGS)
    assert len(study.trials) == 3


@pytest.mark.parametrize("before", [signal.SIG_DFL, lambda number, frame: None])
def test_a_search_leaves_the_handlers_of_signals_as_they_were(before):
    names = ["SIGUSR2", "SIGUSR1", "SIGTERM", "SIGINT", "SIGALRM"]
    kept = {name: signal.signal(getattr(signal, name), before) for name in names}
    try:
        mpi_opt.search(lambda trial: 1.0, trials=2, timeout=60, **SETTINGS)
        assert {signal.getsignal(getattr(signal, name)) for name in names} == {before}
    finally:
        for name, handler in kept.items():
            signal.signal(getattr(signal, name), handler)


@pytest.mark.parametrize(("name", "expected"), [("SIGINT", KeyboardInterrupt), ("SIGTERM", SystemExit)])
def test_a_request_to_end_is_for_the_whole_program(name, expected, tmp_path):
    store = f"sqlite:///{tmp_path}/a.db"

    def objective(trial):
        if trial.number == 2:
            os.kill(os.getpid(), getattr(signal, name))
            time.sleep(patient_s(20))
        return 1.0

    with pytest.raises(expected) as raised:
        mpi_opt.search(objective, trials=5, **SETTINGS | {"store": store, "study": "a"})
    assert raised.type is KeyboardInterrupt or raised.value.code == 75
    study = mpi_opt.Study.open(store, "a")
    assert [trial.state for trial in study.trials] == ["complete", "complete", "queued"]
    assert not study.is_finished


class RaisingInReport(RandomSearch):
    def report(self, proposal, step, value):
        raise ZeroDivisionError("a fault of the strategy")


class StoppingOdd(RandomSearch):
    def report(self, proposal, step, value):
        return Decision.STOP if proposal.number % 2 else Decision.CONTINUE


def reporting(trial) -> float:
    for step in range(100):
        trial.report(step, step)
        if trial.should_stop():
            break
    return float(step)


def test_an_error_of_the_strategy_is_reported_and_is_not_the_trials(tmp_path):
    changed = {"strategy": f"{__file__}:RaisingInReport", "store": f"sqlite:///{tmp_path}/a.db"}
    study = mpi_opt.search(reporting, trials=3, **SETTINGS | changed)
    assert [(trial.state, trial.figure_of_merit) for trial in study.trials] == [("complete", 99.0)] * 3
    (problem,) = [event.detail for event in study.events() if event.kind == "strategy_failed"]
    assert "RaisingInReport: report raised ZeroDivisionError: a fault of the strategy (test_serial.py:" in problem


def test_pruning_does_not_depend_on_timing():
    study = mpi_opt.search(reporting, trials=4, **SETTINGS | {"strategy": f"{__file__}:StoppingOdd"})
    assert [(trial.state, trial.figure_of_merit) for trial in study.trials] == [
        ("complete", 99.0),
        ("pruned", 0.0),
    ] * 2


def test_a_search_whose_trials_all_fail_says_why():
    def failing(trial):
        raise ValueError("no")

    with pytest.raises(SearchFailed, match="ValueError: no"):
        mpi_opt.search(failing, trials=3, **SETTINGS)


def test_messages_arrive_in_order_and_wake_the_coordinator():
    coordinator = SerialCoordinatorLink()
    worker = SerialWorkerLink(coordinator, None)
    messages = [Ready(0, "here"), Report(0, 0, 0, 1.0), Report(0, 0, 1, 2.0)]
    threading.Timer(0.1, lambda: [worker.send(message) for message in messages]).start()
    began, found = time.monotonic(), []
    while len(found) < 3:
        found += coordinator.receive(30.0, lambda: False)
    assert time.monotonic() - began < 10
    assert found == [(0, message) for message in messages]


def test_a_worker_whose_coordinator_has_ended_is_dismissed():
    coordinator = SerialCoordinatorLink()
    worker = SerialWorkerLink(coordinator, None)
    coordinator.send(0, Join(0, (0,)))
    worker.send(Report(0, 0, 0, 1.0))  # never handled
    coordinator.close()
    assert worker.poll(STOP) is None
    assert worker.receive(lambda: None) == Join(0, (0,))
    assert worker.receive(lambda: None) == Dismissal()


def test_an_error_of_this_program_in_the_worker_ends_the_search(monkeypatch):
    monkeypatch.setattr("mpi_opt.worker.worker.Worker._lead", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        mpi_opt.search(lambda trial: 1.0, trials=2, **SETTINGS)


def test_folds_that_take_too_long_together_fail_their_trial():
    def slow(trial) -> float:
        until = time.monotonic() + 0.8
        while trial.number == 1 and time.monotonic() < until:
            pass
        return trial.parameters["x"]

    study = mpi_opt.search(slow, trials=3, timeout=1.2, **SETTINGS | {"folds": 4})
    assert [trial.state for trial in study.trials] == ["complete", "failed", "complete"]
    assert "the trial took longer than trial.timeout, 1.2 s" in study.trials[1].error


NOTEBOOK = """
import os, signal, sys, time
from mpi_opt import Real, Study, search

sys.ps1 = "In : "
CELLS = [
    "sent = []\\ndef objective(trial):\\n    if trial.number == 2 and not sent:\\n        sent.append(1)\\n"
    "        os.kill(os.getpid(), signal.SIGINT)\\n    time.sleep(0.1)\\n    return trial.parameters['x']",
    "search(objective, trials=100, **options)",
    "found = Study.open('nb.db', 'nb'); print(found.is_finished, 0 < len(found.trials) < 100)",
    "print(search(objective, trials=len(found.trials) + 2, **options).is_finished)",
]
names = globals() | {"options": {"space": {"x": Real(0, 1)}, "strategy": "random", "study": "nb", "store": "nb.db"}}
for number, cell in enumerate(CELLS):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as the kernel of IPython does for each cell
    try:
        exec(compile(cell, f"<ipython-input-{number}>", "exec"), names)
    except KeyboardInterrupt:
        print("prompt", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    signal.signal(signal.SIGINT, before)
"""


def test_interrupting_a_cell_of_a_notebook_ends_the_cell_alone_and_the_study_continues(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", NOTEBOOK]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines() == ["prompt True", "False True", "True"], done.stderr
    assert done.returncode == 0 and "Traceback" not in done.stderr


@pytest.mark.parametrize(("has_framework", "calls"), [(False, ["freeze", "unfreeze"]), (True, [])])
def test_a_search_leaves_garbage_collection_as_a_framework_has_set_it(has_framework, calls, monkeypatch):
    for name in ("tensorflow", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    if has_framework:
        monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    called = []
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda name=name: called.append(name))
    mpi_opt.search(lambda trial: 1.0, trials=1, **SETTINGS)
    assert called == calls


def test_rank_0_keeps_little_of_a_trial_that_has_ended(tmp_path):
    """Half of the trials fail with a long message, as of a traceback, which the store keeps."""
    sizes = {}

    def objective(trial):
        if trial.number in (320, 620):  # sets of numbers grow after 307 entries, and then after 1,228
            gc.collect()
            sizes[trial.number] = tracemalloc.get_traced_memory()[0]
        if trial.number % 2:
            raise ValueError("no\n" + "long " * 1000)
        return trial.parameters["x"]

    settings = SETTINGS | {"store": f"sqlite:///{tmp_path / 'kept.db'}"}
    tracemalloc.start()
    try:
        mpi_opt.search(objective, **settings, trials=630)
    finally:
        tracemalloc.stop()
    assert (sizes[620] - sizes[320]) / 300 < 800, "bytes per trial"
