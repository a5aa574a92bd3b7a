"""How the blocks of a search are formed and disbanded."""

from __future__ import annotations

import time

import pytest

from mpi_learn.settings.user_files import SourceCode
from mpi_opt.coordinator.blocks.block_membership import BlockMembership
from mpi_opt.coordinator.blocks.block_pool import BlockPool
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.block_layout import BlockLayout
from mpi_opt.core.objective import Choice
from mpi_opt.core.trial import Proposal
from mpi_opt.messages.messages import Broken, Join, Ready
from tests.mpi_opt.fakes import ScriptedLink
from tests.mpi_opt.outcomes import an_outcome


@pytest.fixture
def pool() -> BlockPool:
    """Block 0: ranks 1 and 2; block 1: ranks 3 and 4."""
    link = ScriptedLink(lambda assignment: an_outcome(assignment.number, "complete", 0.0))
    link.leave_s = 0.0
    return BlockPool(link, BlockMembership.of(BlockLayout(5, 2)))


def test_the_block_that_has_waited_longest_is_the_first_idle_one(pool):
    assert all(pool.mark_ready(Ready(block, "host")) for block in (1, 0))
    assert pool.idle == [1, 0]


def test_a_block_that_was_disbanded_before_it_was_ready_is_not_idle(pool):
    pool.disband(0)
    assert not pool.mark_ready(Ready(0, "host"))
    assert pool.idle == []


def test_an_idle_block_that_is_disbanded_is_not_idle(pool):
    pool.mark_ready(Ready(0, "host"))
    pool.disband(0)
    assert pool.idle == []
    assert pool.link.called == [(1, "Disband"), (2, "Disband")]


@pytest.mark.parametrize(("order", "disbanded", "idle"), [((0, 1), 0, [1]), ((0, 1), 1, [0]), ((1, 0), 0, [1])])
def test_of_several_idle_blocks_the_one_that_is_disbanded_is_no_longer_idle(pool, order, disbanded, idle):
    for block in order:
        pool.mark_ready(Ready(block, "host"))
    pool.disband(disbanded)
    assert pool.idle == idle


@pytest.mark.parametrize(("events", "is_retired"), [("bbb", True), ("bbrb", False), ("rbbb", True)])
def test_ranks_are_retired_after_three_consecutive_blocks_that_could_not_be_formed(pool, events, is_retired):
    """b: the block is broken; r: it is ready."""
    block, ranks = 0, (1, 2)
    pool.assemble()
    for event in events:
        pool.mark_ready(Ready(block, "host")) if event == "r" else pool.mark_broken(Broken(block, "MPI_ERR_OTHER"))
        pool.disband(block)
        for rank in ranks:
            pool.mark_left(rank)
        block = next((number for number, members in pool.membership.blocks.items() if members == ranks), None)
    assert pool.membership.retired == (set(ranks) if is_retired else set())


def test_ranks_that_do_not_leave_their_block_in_time_are_given_up(pool):
    pool.disband(0)
    pool.mark_left(1)
    assert pool.give_up_unresponsive() == {2}
    assert pool.link.called[2:] == [(2, "EndProcess")]
    assert pool.not_yet_lost(frozenset({1, 2})) == [1]


@pytest.mark.parametrize("is_protected", [True, False])
def test_a_rank_that_was_given_up_joins_a_block_again_only_if_its_process_continues(pool, is_protected):
    """With protection it has been told to end its process, although its message that it has left is on its way."""
    pool.link.is_protected = is_protected
    pool.disband(0)
    pool.mark_left(1)
    assert pool.give_up_unresponsive() == {2}
    pool.mark_left(2)
    assert (1, 2) not in pool.membership.blocks.values() if is_protected else pool.membership.block_of(2) is not None
    assert (2 in pool.membership.lost) == is_protected


def test_ranks_have_time_to_leave_their_block(pool):
    pool.link.leave_s = 60.0
    pool.disband(0)
    assert pool.give_up_unresponsive() == set()
    assert pool.membership.leaving == {1, 2}


def test_a_rank_that_does_not_leave_its_block_is_given_up_although_others_are_disbanded_later(pool, monkeypatch):
    pool.link.leave_s = 30.0
    now_s = 0.0
    monkeypatch.setattr(type(pool), "now_s", property(lambda self: now_s))
    pool.disband(0)
    now_s = 20.0
    pool.disband(1)
    assert pool.give_up_unresponsive() == set()
    now_s = 31.0
    assert pool.give_up_unresponsive() == {1, 2}
    assert pool.membership.leaving == {3, 4}


def test_a_rank_that_dies_while_it_leaves_its_block_does_not_keep_the_last_spare_rank_waiting(pool):
    pool.disband(0)
    pool.mark_left(1)
    pool.disband(1)
    assert pool.lose(frozenset({2, 3})) == []
    assert len(pool) == 0
    assert pool.lose(frozenset({4})) == []
    assert [pool.ranks(block) for block in pool.membership.blocks] == [(1,)]


def test_without_protection_the_ranks_of_a_retired_block_wait_for_the_end_of_the_search(pool):
    """The death of a process would end the job, and a rank that gets neither message would wait forever."""
    pool.link.is_protected = False
    pool.retire(0)
    for rank, _ in pool.receive(0.0):
        pool.mark_left(rank)
    assert list(pool.membership.blocks) == [1]
    assert "EndProcess" not in [name for _, name in pool.link.called]
    pool.dismiss()
    assert pool.link.dismissed == {1, 2, 3, 4}


def test_the_processes_of_busy_ranks_end_with_the_search_and_the_others_are_dismissed(pool):
    pool.dismiss(busy=[1])
    pool.dismiss(busy=[0])
    assert pool.link.called == [(3, "EndProcess"), (4, "EndProcess")]
    assert pool.link.dismissed == {1, 2}


def test_the_processes_of_ranks_that_are_still_preparing_end_with_the_search(pool, monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.blocks.block_pool.PARTING_S", 0.0)
    pool.assemble()
    pool.mark_ready(Ready(0, "host"))
    pool.dismiss()
    assert pool.link.called == [(3, "EndProcess"), (4, "EndProcess")]
    assert pool.link.dismissed == {1, 2}


def test_a_program_that_continues_after_the_search_keeps_the_ranks_that_are_still_preparing(pool, monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.blocks.block_pool.PARTING_S", 0.0)
    pool.link.processes_continue = True
    pool.assemble()
    pool.dismiss()
    assert pool.link.called == []
    assert pool.link.dismissed == {1, 2, 3, 4}


def test_the_end_of_a_search_waits_shortly_for_ranks_that_do_not_answer(pool, monkeypatch):
    waits = []

    def receive(timeout_s, is_interrupted):
        waits.append(timeout_s)
        time.sleep(0.01)
        return []

    monkeypatch.setattr("mpi_opt.coordinator.blocks.block_pool.PARTING_S", 0.04)
    monkeypatch.setattr(pool.link, "receive", receive)
    pool.disband(0)
    pool.dismiss()
    assert 1 < len(waits) < 6 and max(waits) <= 0.1


def test_ranks_that_have_prepared_while_the_search_ends_are_dismissed(pool):
    pool.assemble()  # ScriptedLink answers `Join` with `Ready`
    pool.dismiss()
    assert pool.link.called == []
    assert pool.link.dismissed == {1, 2, 3, 4}


def test_the_processes_of_ranks_that_are_leaving_end_with_the_search(pool, monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.blocks.block_pool.PARTING_S", 0.0)
    pool.disband(0)
    pool.dismiss()
    assert pool.link.called[2:] == [(1, "EndProcess"), (2, "EndProcess")]
    assert pool.link.dismissed == {3, 4}


def test_ranks_that_leave_their_block_while_the_search_ends_are_dismissed(pool):
    pool.disband(0)
    pool.dismiss()  # ScriptedLink answers `Disband` with `LeftBlock`
    assert pool.link.called[2:] == []
    assert pool.link.dismissed == {1, 2, 3, 4}


def test_a_trial_continues_on_the_block_with_ranks_that_keep_its_last_epoch(pool):
    for block in (1, 0):
        pool.mark_ready(Ready(block, "host"))
    attempt = Attempt(Proposal(5, {}), 2, holders=(2,), before_s=60.0)
    pool.assign(attempt, None)
    assert (attempt.block, pool.idle, attempt.before_s) == (0, [1], 60.0)
    other = Attempt(Proposal(6, {}), 2, holders=(2,), before_s=60.0)  # they have another trial now: it begins again
    pool.assign(other, 100.0)
    assert (other.block, other.before_s) == (1, 0.0)
    assert other.due_s >= other.started_at_s + 100.0


def test_ranks_are_awaited_from_the_end_of_their_block_until_the_next_one_is_ready():
    link = ScriptedLink(lambda assignment: an_outcome(assignment.number, "complete", 0.0))
    pool = BlockPool(link, BlockMembership.of(BlockLayout(5, 2), may_shrink=True))
    assert not pool.are_moving([1, 2])
    pool.lose(frozenset({1}))
    assert pool.disband(0) == [2]
    assert pool.are_moving([2])
    assert not pool.are_moving([3, 4])
    pool.mark_left(2)
    assert pool.membership.blocks[2] == (2,)
    assert pool.are_moving([2])
    pool.mark_ready(Ready(2, "host"))
    assert not pool.are_moving([2])
    assert not pool.are_moving([])


def test_a_block_rests_as_long_as_it_is_asked_to(pool, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(BlockPool, "now_s", property(lambda pool: now_s[0]))
    for block in (0, 1):
        pool.mark_ready(Ready(block, "host"))
        pool.idle.remove(block)
    pool.rest(0)
    pool.rest(1, 3.0)
    assert pool.idle == [0]
    for now_s[0], idle in ((102.9, [0]), (103.0, [0, 1]), (110.0, [0, 1])):
        pool.wake()
        assert pool.idle == idle


def test_a_rank_is_described_by_its_block_and_the_host_of_it(pool):
    pool.mark_ready(Ready(1, "host7"))
    assert [pool.describe(rank) for rank in (1, 3, 4)] == ["of block 0 on its host", *["of block 1 on host7"] * 2]
    pool.disband(0)
    assert pool.describe(2) == "a spare rank"


def test_the_blocks_are_formed_once_with_the_code_and_the_choice_of_the_search(pool, monkeypatch):
    joins, code, choice = [], SourceCode({}), Choice({"batch_size": 8})
    monkeypatch.setattr(pool.link, "send", lambda rank, message: joins.append((rank, message)))
    pool.choose(choice)
    for _ in range(2):
        pool.assemble(code)
    blocks = {1: (0, (1, 2)), 2: (0, (1, 2)), 3: (1, (3, 4)), 4: (1, (3, 4))}
    assert joins == [(rank, Join(*block, code, choice)) for rank, block in blocks.items()]


def test_the_reason_without_any_rank_is_what_happened_last(pool):
    """Ranks that were lost before a block was ready, ranks that could form none, and ranks that were only silent."""
    assert pool.why_empty.startswith("every rank was lost before its first trial")
    pool.lose_silent({4})
    assert pool.why_empty == "every rank that could run a trial was lost"
    assert pool.may_work_later
    pool.assemble()
    for _ in range(3):
        block = next(number for number, ranks in pool.membership.blocks.items() if 1 in ranks)
        pool.mark_broken(Broken(block, "MPI_ERR_OTHER"))
        pool.disband(block)
        for rank in (1, 2):
            pool.mark_left(rank)
    assert pool.why_empty == "no block of ranks could be formed; MPI says: MPI_ERR_OTHER"
