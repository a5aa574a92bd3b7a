"""Trials that continue on another number of ranks: what rank 0 hears of them, and what they have reported before."""

from __future__ import annotations

import math

import pytest
from mpi4py import MPI

from mpi_opt.coordinator.blocks.block_membership import BlockMembership
from mpi_opt.coordinator.blocks.block_pool import BlockPool
from mpi_opt.coordinator.pruning.median_rule import MedianRule
from mpi_opt.coordinator.recovery import Recovery
from mpi_opt.coordinator.retrying_store import RetryingStore
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.coordinator.study_state import StudyState
from mpi_opt.coordinator.trials.trial_queue import TrialQueue
from mpi_opt.coordinator.widths import Widths
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.block_layout import BlockLayout
from mpi_opt.core.limits import MAX_FIRST_FAILURES, SearchLimits
from mpi_opt.core.trial import Proposal, Reporter, Trial, TrialRecord
from mpi_opt.messages.messages import Leave, Report, TrialProgress
from mpi_opt.objectives.function_objective import FunctionObjective
from mpi_opt.store.errors import StoreConflictError
from mpi_opt.store.records import AttemptRecord
from mpi_opt.strategies.strategy import Decision
from mpi_opt.study.reading import EXTERNAL_RANKS
from tests.mpi_opt.fakes import ListedStore, ListedStrategy, ScriptedLink
from tests.mpi_opt.outcomes import an_outcome


class Recorder(Reporter):
    """Asks the trial to leave after its third epoch."""

    def __init__(self) -> None:
        self.reported = []

    def report(self, number, fold, step, value):
        self.reported.append((step, value))

    def progress(self, number, done, total, most_ranks, elapsed_s):
        self.done = done

    def must_leave(self, number):
        return self.done == 3

    def is_stopped(self, number):
        return False


def counted(trial):
    for epoch in range(trial.state or 0, 5):
        trial.report(epoch, float(epoch))
        trial.resize(epoch + 1, 5, lambda epoch=epoch: epoch + 1)
    return 1.0


def test_a_function_that_continues_keeps_what_it_has_reported():
    objective, recorder = FunctionObjective(counted, is_elastic=True), Recorder()
    for has_left in (True, False):
        trial = Trial(Proposal(0, {}), comm=MPI.COMM_SELF, study_seed=0, reporter=recorder)
        objective(trial)
        assert trial.has_left == has_left
    assert trial.reported == {epoch: float(epoch) for epoch in range(5)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("one", 3), "for done, a real number is needed, not 'one'"),
        ((1, None), "for total, a real number is needed, not None"),
        ((1, math.nan), "total must be a finite number, not nan"),
        ((1, 3, lambda: 1, math.inf), "most_ranks must be a finite number, not inf"),
    ],
)
def test_wrong_arguments_of_resize_are_the_error_of_the_trial(arguments, message):
    trial = Trial(Proposal(0, {}), comm=MPI.COMM_SELF, study_seed=0, reporter=Recorder())
    trial.is_elastic = True
    with pytest.raises((TypeError, ValueError), match=message):
        trial.resize(*arguments, *([lambda: 1] if len(arguments) == 2 else []))


class Strict(ListedStrategy):
    """Stops the trial at step 2."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = []

    def report(self, proposal, step, value):
        self.heard.append(step)
        return Decision.STOP if step == 2 else Decision.CONTINUE


@pytest.fixture
def widths():
    """Those of a search with a block that runs trial 0, and an idle one, both of one rank."""
    pool = BlockPool(ScriptedLink(lambda assignment: None), BlockMembership.of(BlockLayout(3, 1)))
    queue, settings = TrialQueue(3), SearchSettings(SearchLimits(3), is_elastic=True)
    store = RetryingStore(ListedStore(), 1, settings.progress, lambda: False)
    queue.mark_running([Attempt(Proposal(0, {}), block=0)])
    pool.rest(1)
    return Widths(pool, queue, StudyState(store, Strict(), queue, settings), settings)


def test_work_that_has_not_grown_does_not_count(widths):
    for done in (1, 1, 2, 2, 1, 3):
        widths.hear(1, TrialProgress(0, done, 100, 6, 10.0 * done))
    assert widths._trials[0].epoch_s == {1: 10.0}


def test_a_search_is_not_hopeless_while_a_trial_moves_to_another_block(widths):
    for number in range(1, 1 + MAX_FIRST_FAILURES):
        widths.state.tell(Proposal(number, {}), an_outcome(number, "failed", error="ValueError: no"))
    assert not widths.state.is_hopeless
    widths.leave(widths.queue.running[0])
    assert not widths.queue.running
    assert not widths.state.is_hopeless
    assert not widths.state.may_start_another(1.0)


def test_a_trial_that_continues_is_judged_once_for_each_step_and_is_still_stopped(widths):
    state, strategy = widths.state, widths.state._strategy
    first = widths.queue.running[0]
    assert not state.prunes(first, Report(0, 0, 1, 1.0), 1)
    assert state.prunes(first, Report(0, 0, 2, 1.0), 1)
    widths.leave(first)
    (second,) = widths.queue.waiting
    assert [state.prunes(second, Report(0, 0, step, 1.0), 1) for step in (1, 2, 3)] == [True, True, True]
    assert strategy.heard == [1, 2, 3]
    assert not state.has_repeated_step


def test_the_median_rule_compares_all_values_of_a_trial_that_continues():
    rule = MedianRule("report", 1.0)
    for number in range(1, 6):
        for step in range(3):
            rule.prunes(Proposal(number, {}), 1, step, 1.0)
        rule.end(Proposal(number, {}), 1, 1.0)
    assert not rule.prunes(Proposal(0, {}), 1, 0, 0.5)
    rule.carry((0, 1), (0, 2))
    assert not rule.prunes(Proposal(0, {}), 2, 1, 2.0)
    assert not rule.prunes(Proposal(0, {}), 2, 2, 2.0), "its best value is better than the median"


def test_an_idle_block_joins_a_long_trial_after_its_next_epoch_but_no_short_one(widths):
    pool, link = widths.pool, widths.pool.link
    sent = []
    link.send = lambda rank, message: sent.append((rank, message))
    for total, is_asked in ((12, False), (100, True)):  # a change costs 50 s
        for done in (1, 2):
            widths.hear(1, TrialProgress(0, done, total, 6, 50.0 + 10.0 * done))
            widths.change()
        assert ((1, Leave(0)) in sent) == is_asked
        widths.forget(0)
    for done in (1, 2):
        widths.hear(1, TrialProgress(0, done, 100, 6, 10.0 * done))
    widths.change()
    widths.leave(widths.queue.running[0])
    for rank in (1, 2):
        pool.mark_left(rank)
    assert list(pool.membership.blocks.values()) == [(1, 2)]


def test_a_wide_block_is_divided_when_its_trial_leaves_it_for_others_and_the_time_of_the_trial_counts_on(widths):
    pool, queue = widths.pool, widths.queue
    pool.regroup([0, 1])
    for rank in (1, 2):
        pool.mark_left(rank)
    ((block, ranks),) = pool.membership.blocks.items()
    assert ranks == (1, 2)
    running = queue.running[0]
    running.block, running.started_at_s = block, -30.0
    widths._lacks_ranks = True
    widths.leave(running)
    for rank in ranks:
        pool.mark_left(rank)
    assert sorted(pool.membership.blocks.values()) == [(1,), (2,)]
    assert queue.waiting[0].before_s >= 30.0


def test_the_time_of_an_attempt_counts_when_a_rank_is_lost_and_others_continue(widths):
    (running,) = widths.queue.running.values()
    running.started_at_s, running.before_s = -30.0, 20.0
    recovery = Recovery(widths.pool, widths.queue, widths.state, widths.settings)
    recovery.requeue(running, "a rank of its block was lost", holders=[2])
    assert 50.0 <= widths.queue.waiting[0].before_s < 60.0


class TakenStore(ListedStore):
    """A workload system has taken trial 0, and trial 1 is queued."""

    def start(self, study_id, starts):
        self.records = [TrialRecord(0, "running", {}, attempts=2), TrialRecord(1, "queued", {}, attempts=1)]
        self.attempted = [AttemptRecord(0, 2, 0, EXTERNAL_RANKS, "", "", "", "running", "")]
        raise StoreConflictError("another process has started this trial")


def test_a_moving_trial_is_not_begun_again_when_another_one_is_taken():
    settings = SearchSettings(SearchLimits(3), new_strategy=Strict)
    queue = TrialQueue(3, waiting=[Attempt(Proposal(number, {}), 2, holders=(number + 1,)) for number in (0, 1)])
    state = StudyState(RetryingStore(TakenStore(), 1, settings.progress, lambda: False), Strict(), queue, settings)
    assert state.record([], queue.take_continuing(2, lambda _: True)) == []
    assert [(one.number, one.attempt, one.holders) for one in queue.waiting] == [(1, 2, (2,))]


@pytest.mark.parametrize("has_finished_an_epoch", [True, False])
def test_the_time_of_an_attempt_counts_only_if_it_has_finished_an_epoch(widths, has_finished_an_epoch):
    (running,) = widths.queue.running.values()
    running.started_at_s = -30.0
    if has_finished_an_epoch:
        widths.state.prunes(running, Report(0, 0, 0, 1.0), 1)
    recovery = Recovery(widths.pool, widths.queue, widths.state, widths.settings)
    recovery.requeue(running, "a rank of its block was lost", holders=[2])
    (again,) = widths.queue.waiting
    assert (again.before_s >= 30.0, again.holders) == (has_finished_an_epoch, (2,))


def asked(widths, trials):
    """The idle blocks that will join each of these running trials: block -> (epoch_s, total, value)."""
    for block, (epoch_s, total, value) in trials.items():
        running = Attempt(Proposal(block, {}), block=block)
        widths.queue.mark_running([running])
        leader = widths.pool.ranks(block)[0]
        for done in (1, 2):
            widths.hear(leader, TrialProgress(block, done, total, 6, epoch_s * done))
            widths.note_value(running, value)
    widths.change()
    return {number: trial.joining for number, trial in widths._trials.items() if trial.joining}


def searching(n_blocks, n_idle, **changes):
    """The widths of a search whose last blocks are idle."""
    pool = BlockPool(ScriptedLink(lambda assignment: None), BlockMembership.of(BlockLayout(n_blocks + 1, 1)))
    queue, settings = TrialQueue(3), SearchSettings(SearchLimits(3), is_elastic=True, **changes)
    store = RetryingStore(ListedStore(), 1, settings.progress, lambda: False)
    for block in range(n_blocks - n_idle, n_blocks):
        pool.rest(block)
    return Widths(pool, queue, StudyState(store, Strict(), queue, settings), settings)


@pytest.mark.parametrize(("is_by_merit", "number"), [(False, 0), (True, 1)])
def test_idle_ranks_join_the_trial_that_ends_last_or_by_merit_the_best_one(is_by_merit, number):
    """Trial 0 has more left; trial 1 is better."""
    widths = searching(3, 1, is_by_merit=is_by_merit)
    assert asked(widths, {0: (10.0, 200, 0.5), 1: (10.0, 100, 0.1)}) == {number: [2]}


def test_parallel_folds_get_no_ranks_that_would_leave_one_of_them_as_slow_as_before():
    """Three folds on three ranks need three more to be faster, and all of their leaders are asked to leave."""
    sent = []
    widths = searching(5, 2, n_folds=3)
    widths.pool.regroup([0, 1, 2])
    for rank in (1, 2, 3):
        widths.pool.mark_left(rank)
    widths.pool.link.send = lambda rank, message: sent.append((rank, message))
    (block,) = (block for block, ranks in widths.pool.membership.blocks.items() if len(ranks) == 3)
    assert asked(widths, {block: (10.0, 100, 0.1)}) == {}
    widths._ask(widths.queue.running[block], [])
    assert sent == [(rank, Leave(block)) for rank in (1, 2, 3)]


def test_folds_in_turn_do_not_hide_the_time_of_a_start():
    """The first epoch of a fold ends 2 s later than the others; that of the trial has four such epochs."""
    widths = searching(1, 0, n_folds=4)
    widths.queue.mark_running([Attempt(Proposal(0, {}), block=0)])
    for done, elapsed_s in ((0.25, 3.0), (0.5, 4.0)):
        widths.hear(1, TrialProgress(0, done, 10, 6, elapsed_s))
    assert widths._cost_s == pytest.approx(2.0)
    assert widths._trials[0].epoch_s == {1: pytest.approx(4.0)}


@pytest.mark.parametrize(("done", "joining"), [(20.0, [1]), (60.0, [])])
def test_the_last_fold_gets_no_rank_that_would_only_repeat_complete_ones(done, joining):
    """Two folds of 100 epochs in turn: the first one runs, or the second one."""
    widths = searching(2, 1, n_folds=2)
    widths.queue.mark_running([Attempt(Proposal(0, {}), block=0)])
    for step in (0, 1):
        widths.hear(1, TrialProgress(0, done + step / 2, 100, 6, 10.0 * (step + 1)))
    widths.change()
    assert widths._trials[0].joining == joining
