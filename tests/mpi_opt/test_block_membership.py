"""Which ranks form which blocks."""

from __future__ import annotations

from mpi_opt.coordinator.block_membership import BlockMembership
from mpi_opt.core.block_layout import BlockLayout


def two_blocks() -> BlockMembership:
    """Block 0: ranks 1 and 2; block 1: ranks 3 and 4."""
    return BlockMembership.of(BlockLayout(5, 2))


def test_only_the_live_ranks_of_a_disbanded_block_must_leave_it():
    membership = two_blocks()
    assert membership.lose([2]) == [0]
    assert membership.disband(0) == [1]
    assert membership.leaving == {1}


def test_a_block_is_formed_of_live_spare_ranks_only():
    membership = BlockMembership.of(BlockLayout(6, 2, spares=1))  # rank 5 is spare
    assert membership.lose([5, 1]) == [0]
    membership.disband(0)
    membership.leave(2)
    assert membership.form() == []
    assert membership.spare == {2}


def test_a_rank_that_died_after_it_left_its_block_joins_no_other():
    membership = two_blocks()
    membership.disband(0)
    membership.lose([1])
    for rank in (1, 2):
        membership.leave(rank)
    assert membership.spare == {2}
    assert membership.form() == []


def test_a_rank_that_was_given_up_is_spare_again_when_it_leaves_its_block():
    membership = two_blocks()
    membership.disband(0)
    membership.leave(1)
    membership.give_up({2}, may_return=True)
    assert membership.form() == []
    membership.leave(2)
    assert membership.form() == [2]
    assert membership.blocks[2] == (1, 2)


def test_a_rank_that_was_given_up_and_must_end_joins_no_block_when_its_last_message_arrives():
    membership = two_blocks()
    membership.disband(0)
    membership.give_up({2}, may_return=False)
    membership.leave(2)
    assert membership.spare == set()
    assert membership.lost == {2}


def test_a_rank_that_was_given_up_and_died_is_not_spare_when_its_last_message_arrives():
    membership = two_blocks()
    membership.disband(0)
    membership.give_up({2}, may_return=True)
    assert membership.lose([2]) == []
    membership.leave(2)
    assert membership.spare == set()
    assert membership.lost == {2}


def test_a_smaller_block_is_formed_only_if_no_other_ranks_can_run_trials():
    membership = two_blocks()
    membership.lose([1, 3])
    assert membership.disband(0) == [2]
    membership.leave(2)
    assert membership.form() == []  # block 1 is left
    assert membership.disband(1) == [4]
    assert membership.form() == []  # rank 4 is leaving
    membership.lose([4])
    assert membership.form() == [2]
    assert membership.blocks == {2: (2,)}
