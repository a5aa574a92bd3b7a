"""Which trials start next."""

from __future__ import annotations

import math

from mpi_opt.coordinator.trials.trial_queue import TrialQueue
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.trial import Outcome, Proposal, TrialRecord
from mpi_opt.study.reading import PastTrials
from tests.mpi_opt.fakes import ListedStrategy


def test_waiting_trials_come_before_new_ones():
    queue = TrialQueue(9, waiting=[Attempt(Proposal(7, {}), 2)])
    taken = queue.take(3, ListedStrategy().ask)
    assert [(one.number, one.attempt) for one in taken] == [(7, 2), (0, 1), (1, 1)]
    assert not queue.waiting


def test_no_more_waiting_trials_are_taken_than_there_are_blocks():
    """Neither of those that begin anew, nor of those that continue on ranks; the first ones are taken first."""
    waiting = [Attempt(Proposal(number, {}), 2, holders=(1,) * (number > 4)) for number in (4, 5, 3, 6, 2, 7)]
    queue, strategy = TrialQueue(20, waiting=list(waiting)), ListedStrategy()
    assert queue.take(2, strategy.ask) == [waiting[0], waiting[2]]
    assert queue.take_continuing(2, lambda _: True) == [waiting[1], waiting[3]]
    assert (queue.waiting, queue.n_begun) == ([waiting[4], waiting[5]], 4)
    assert [one.number for one in queue.take(2, strategy.ask)] == [2, 0]
    assert queue.take_continuing(0, lambda _: True) == queue.take(0, strategy.ask) == []


def test_no_more_trials_begin_than_the_study_has():
    queue = TrialQueue(5, waiting=[Attempt(Proposal(7, {}), 2)], n_begun=2)
    assert len(queue.take(9, ListedStrategy().ask)) == 3
    assert queue.has_begun_all
    assert not queue.take(9, ListedStrategy().ask)


def test_a_trial_is_among_those_that_have_ended_until_its_outcome_is_committed():
    queue = TrialQueue(2)
    queue.mark_running(running := queue.take(2, ListedStrategy().ask))
    for attempt in running:
        queue.end(attempt, Outcome(attempt.number, "failed"))
    assert not queue.running
    queue.forget_committed(running[:1])
    assert queue.ended == running[1:]


def test_a_trial_that_waits_for_its_ranks_takes_the_place_of_no_other_and_is_not_replaced():
    queue = TrialQueue(4, waiting=[Attempt(Proposal(7, {}), 2, holders=(1, 2))], n_begun=2)
    assert [one.number for one in queue.take(3, ListedStrategy().ask)] == [0]
    assert not queue.take_continuing(3, lambda attempt: attempt.number != 7)
    assert [one.number for one in queue.waiting] == [7]
    assert not queue.has_begun_all
    assert [one.number for one in queue.take_continuing(3, lambda _: True)] == [7]
    assert queue.has_begun_all


def test_a_trial_that_is_put_back_knows_the_ranks_that_keep_its_last_epoch():
    queue = TrialQueue(1)
    queue.mark_running(queue.take(1, ListedStrategy().ask))
    assert not queue.continuing
    queue.put_back(queue.running[0], holders=[2, 3])
    assert [one.number for one in queue.continuing] == [0]
    (again,) = queue.take_continuing(1, lambda _: True)
    assert (again.attempt, again.holders) == (2, (2, 3))


def test_trials_are_overdue_after_their_time_or_soon_after_a_rank_has_failed():
    queue = TrialQueue(3)
    running = queue.take(3, ListedStrategy().ask)
    for attempt, due_s in zip(running, (50.0, 30.0, math.inf), strict=True):
        attempt.block, attempt.due_s = attempt.number, due_s
    queue.mark_running(running[:1])
    assert not queue.overdue(49.0)
    queue.mark_running(running[1:])
    assert queue.overdue(49.0) == running[1:2]
    queue.put_back(running[1])
    assert not queue.overdue(49.0)
    queue.expect_end_soon(2, 2, "MemoryError", 30.0)
    assert [queue.overdue(now_s) for now_s in (39.0, 41.0, 51.0)] == [[], running[2:], [running[0], running[2]]]
    queue.put_back(running[0])
    assert queue.overdue(60.0) == queue.overdue(61.0) == running[2:]  # it is still there


def test_moving_trials_keep_their_last_epoch_when_a_workload_system_takes_one():
    """Trials 0 to 2 have left their blocks. Trial 1 was to start when trial 0 turned out to be taken."""
    moving = [Attempt(Proposal(number, {}), 2, holders=(number,), before_s=5.0) for number in range(3)]
    queue = TrialQueue(4, waiting=list(moving))
    started = queue.take_continuing(2, lambda _: True)
    records = [TrialRecord(number, "queued", {}, attempts=1) for number in (1, 2)]
    records += [TrialRecord(0, "running", {}, attempts=2), TrialRecord(3, "queued", {}, attempts=1)]
    queue.resume(PastTrials([], records, FiguresOfMerit(), 1, external=frozenset({0})), started)
    assert queue.waiting[:2] == moving[1:]
    assert [(one.number, one.attempt, one.holders) for one in queue.waiting[2:]] == [(3, 2, ())]
    assert queue.n_begun == 1
