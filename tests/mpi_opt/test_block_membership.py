"""Which ranks form which blocks."""

from __future__ import annotations

from mpi_opt.coordinator.blocks.block_membership import BlockMembership
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


def shrinking(n_ranks: int, block_size: int, spares: int = 0) -> BlockMembership:
    return BlockMembership.of(BlockLayout(n_ranks, block_size, spares=spares), may_shrink=True)


def test_ranks_that_continue_a_trial_form_a_smaller_block_when_all_of_them_have_left_theirs():
    membership = shrinking(7, 3)  # blocks of ranks 1 to 3 and 4 to 6
    membership.lose([2])
    membership.disband(0)
    membership.leave(3)
    assert membership.form() == []
    assert membership.is_moving(1)
    assert membership.is_moving(3)
    membership.leave(1)
    assert membership.form() == [2]
    assert membership.blocks[2] == (1, 3)
    assert not membership.is_moving(1)


def test_the_ranks_of_two_blocks_that_lose_some_at_once_stay_apart():
    membership = shrinking(7, 3)
    membership.lose([2, 4, 5])
    for block in (0, 1):
        membership.disband(block)
    for rank in (6, 1, 3):
        membership.leave(rank)
    assert membership.form() == [2, 3]
    assert [membership.blocks[2], membership.blocks[3]] == [(1, 3), (6,)]


def test_spare_ranks_take_the_place_of_lost_ones_beside_those_that_continue():
    membership = shrinking(6, 3, spares=2)  # ranks 4 and 5 are spare
    membership.lose([1])
    membership.disband(0)
    for rank in (2, 3):
        membership.leave(rank)
    assert membership.form() == [1]
    assert membership.blocks == {1: (2, 3, 4)}
    assert membership.spare == {5}


def test_a_rank_that_dies_on_its_way_is_not_awaited():
    membership = shrinking(4, 3)
    membership.disband(0)
    for rank in (1, 2):
        membership.leave(rank)
    membership.lose([3, 1])
    assert membership.form() == [1]
    assert membership.blocks == {1: (2,)}
    membership.lose([2])
    membership.disband(1)
    assert membership.form() == []
    assert not membership.groups


def test_blocks_hold_whole_models_also_after_a_loss():
    """9 ranks, 2 folds and 2 stages: a block of 8, then one of 4 of the 7 that are left, then none of 3."""
    membership = BlockMembership.of(BlockLayout.of(9, 8, 2, trials=10, stages=2))
    assert membership.blocks == {0: tuple(range(1, 9))}
    for lost, left in ((8, 4), (4, None)):
        (block,) = membership.lose([lost])
        for rank in membership.disband(block):
            membership.leave(rank)
        if left is None:
            membership.lose([5, 6, 7])
        formed = membership.form()
        assert [len(membership.blocks[block]) for block in formed] == ([left] if left else [])
    assert membership.is_empty


def test_the_ranks_of_two_blocks_form_one_when_all_have_left_theirs_and_are_divided_again():
    membership = two_blocks()
    membership.regroup([0, 1], [[1, 2, 3, 4]])
    for rank in (1, 2, 3):
        membership.leave(rank)
    assert membership.form() == []
    assert membership.is_moving(1)
    membership.leave(4)
    assert membership.form() == [2]
    assert membership.blocks == {2: (1, 2, 3, 4)}
    membership.regroup([2], [[1, 2], [3, 4]])
    for rank in (1, 2, 3, 4):
        membership.leave(rank)
    assert membership.form() == [3, 4]
    assert membership.blocks == {3: (1, 2), 4: (3, 4)}


def test_spare_ranks_join_no_block_before_a_rank_is_lost():
    membership = BlockMembership.of(BlockLayout(5, 1, spares=1))  # rank 4 is spare
    membership.regroup([0, 1], [[1, 2]])
    for rank in (1, 2):
        membership.leave(rank)
    assert membership.form() == [3]
    assert membership.spare == {4}
    assert membership.lose([3]) == [2]
    assert membership.disband(2) == []
    assert membership.form() == [4]
    assert membership.blocks == {3: (1, 2), 4: (4,)}
