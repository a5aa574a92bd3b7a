"""The main loop of a rank, with the messages of a coordinator that has sent them all before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque

import pytest
from mpi4py import MPI

from mpi_learn.mpi import messaging
from mpi_opt.core.objective import TrialSettings
from mpi_opt.core.trial import Outcome, Proposal, Trial
from mpi_opt.messages.messages import (
    STOP,
    TO_RANK,
    Assignment,
    Broken,
    Dismissal,
    Join,
    Leave,
    LeftBlock,
    Ready,
    Stop,
    WorkerLink,
)
from mpi_opt.worker.watchdog import Disbanded, Watchdog
from mpi_opt.worker.worker import LinkReporter, Worker


class FilledLink(WorkerLink):
    """A link with messages that have already arrived: `to_rank` in order, and a `Stop` for each number in `stops`."""

    rank, has_thread = 1, True

    def __init__(self, *to_rank, stops=()) -> None:
        self.arrived = {TO_RANK: deque(to_rank), STOP: deque(map(Stop, stops))}
        self.sent, self.broken = [], False

    def send(self, message) -> None:
        self.sent.append(message)

    def poll(self, tag):
        return self.arrived[tag].popleft() if self.arrived.get(tag) else None

    def receive(self, meanwhile):
        return self.arrived[TO_RANK].popleft()

    def form_block(self, join, meanwhile):
        if self.broken:
            raise messaging.RankLost("rank 2")
        return MPI.COMM_SELF


class Steps:
    """Reports ten steps."""

    notes, choice = (), None

    def prepare(self, comm, parameters) -> None:
        pass

    def __call__(self, trial):
        for step in range(10):
            trial.report(step, 1.0)
            if trial.should_stop():
                break
        return float(step), None


def test_a_stop_message_of_an_earlier_block_does_not_stop_the_next_attempt_of_the_trial():
    link = FilledLink(Join(1, (1,)), Assignment(Proposal(5, {})), Dismissal(), stops=[5])
    Worker(link, Watchdog(link, may_end_process=False), Steps(), TrialSettings(0)).serve()
    (outcome,) = (message for message in link.sent if isinstance(message, Outcome))
    assert (outcome.state, outcome.figure_of_merit) == ("complete", 9.0)


def test_a_trial_that_was_stopped_remains_stopped():
    """The message of the coordinator arrives once, but an objective may ask again."""
    link = FilledLink(stops=[4])
    trial = Trial(Proposal(5, {}), comm=MPI.COMM_SELF, study_seed=0, reporter=LinkReporter(link))
    assert not trial.should_stop()  # the message was for another trial
    link.arrived[STOP].append(Stop(5))
    assert [trial.should_stop() for _ in range(3)] == [True, True, True]


def test_stops_of_several_trials_are_read_at_once():
    """A stop of another trial that arrived before delays the stop of this one by no report."""
    reporter = LinkReporter(FilledLink(stops=[3, 4, 5, 6]))
    assert reporter.is_stopped(5)
    assert not reporter.is_stopped(6), "all of them are read"


def test_a_trial_that_was_asked_to_leave_its_block_leaves_it_once():
    """It may come back to the same block."""
    link = FilledLink()
    link.arrived[STOP] += [Leave(4), Leave(5), Stop(6)]
    reporter = LinkReporter(link)
    assert not reporter.is_stopped(5), "messages for other trials are read"
    assert [reporter.must_leave(5) for _ in range(2)] == [True, False]


def test_a_request_to_leave_does_not_reach_the_next_attempt_but_a_stop_does():
    """After a fault of its host, a trial runs again in the same block. A stop may be that of the next attempt."""
    link, asked = FilledLink(Join(1, (1,)), *[Assignment(Proposal(5, {}))] * 2, Dismissal()), []

    class Trials(Steps):
        def __call__(self, trial):
            asked.append((trial.must_leave(1, 9, 9), trial.should_stop()))
            link.arrived[STOP] += [Leave(5), Stop(5)]  # too late
            return 0.0, None

    Worker(link, Watchdog(link, may_end_process=False), Trials(), TrialSettings(0)).serve()
    assert asked == [(False, False), (False, True)]


def test_only_the_trial_after_a_failed_one_gets_a_new_communicator_of_its_folds(monkeypatch):
    seen = []

    def run(block, assignment):
        seen.append((assignment.number, assignment.renew))
        return Outcome(assignment.number, "failed" if assignment.number in (1, 2) else "complete")

    monkeypatch.setattr("mpi_opt.worker.block.Block.run", run)
    trials = [Assignment(Proposal(number, {})) for number in range(5)]
    served(FilledLink(Join(1, (1,)), *trials, Dismissal()))
    assert seen == [(0, False), (1, False), (2, True), (3, True), (4, False)]


def served(link: FilledLink) -> list[type]:
    """The types of the messages that a rank sends until `serve` returns; it fails if the rank waits for another one."""
    Worker(link, Watchdog(link, may_end_process=False), Steps(), TrialSettings(0)).serve()
    assert not link.arrived[TO_RANK], "messages are left"
    return [type(message) for message in link.sent if type(message) in (Ready, Outcome, Broken, LeftBlock)]


def test_a_dismissal_ends_a_rank_wherever_it_waits():
    """Before its first block, as the leader of one, and in a block that could not be formed."""
    join, trial, end = Join(1, (1,)), Assignment(Proposal(5, {})), Dismissal()
    assert served(FilledLink(end)) == []
    assert served(FilledLink(join, end)) == [Ready]
    assert served(FilledLink(join, trial, trial, end)) == [Ready, Outcome, Outcome]
    broken = FilledLink(join, end)
    broken.broken = True
    assert served(broken) == [Broken]


def test_a_rank_whose_block_was_disbanded_serves_in_the_next_one(monkeypatch):
    link = FilledLink(
        Join(1, (1,)), Assignment(Proposal(5, {})), Join(2, (1,)), Assignment(Proposal(5, {})), Dismissal()
    )
    checks = iter([None, Disbanded("block 1 is disbanded")])

    def receive(meanwhile):
        meanwhile()
        return link.arrived[TO_RANK].popleft()

    def check(watchdog, block):
        if block == 1 and (error := next(checks, None)):
            raise error

    link.receive = receive
    monkeypatch.setattr(Watchdog, "check", check)
    assert served(link) == [Ready, LeftBlock, Ready, Outcome]


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit", 0, ""),
        ("raise ValueError('boom')", 1, "ValueError: boom"),
        ("raise SystemExit('text')", 1, "text"),
    ],
)
def test_a_process_that_user_code_forks_ends_with_the_function_and_its_output(ending, status, said):
    """It runs nothing of the search, and no exit handlers of this process."""
    program = f"""
import atexit, os
from mpi_opt.worker.block import ending_forked_children
atexit.register(print, "handler of", os.getpid())
with ending_forked_children():
    child = os.fork()
    if child == 0:
        print("child")
        {ending}
if os.getpid() == child or child == 0:
    print("the search twice")
print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=buffered, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[:2] == ["child", f"status {status}"]
    assert len(done.stdout.splitlines()) == 3, done.stdout
    assert said in done.stderr and ("Traceback" in done.stderr) is bool(said)
