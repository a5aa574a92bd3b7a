from __future__ import annotations

import pytest

from mpi_opt.core.block_layout import BlockLayout, even_parts, fold_groups, folds_of_group
from mpi_opt.errors import ConfigurationError


@pytest.mark.parametrize("n_ranks", [2, 3, 5, 8, 17, 256])
@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 7, 300])
def test_every_rank_but_the_coordinator_is_in_exactly_one_block(n_ranks, block_size):
    blocks = BlockLayout(n_ranks, block_size).blocks
    assert [rank for block in blocks for rank in block] == list(range(1, n_ranks))
    sizes = [len(block) for block in blocks]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= min(block_size, n_ranks - 1)


def test_one_rank_does_everything():
    layout = BlockLayout(1, 4, n_folds=3)
    assert layout.is_serial
    assert layout.blocks == [range(1)]


def test_spare_ranks_are_in_no_block():
    layout = BlockLayout(8, 2, spares=3)
    assert layout.blocks == [range(1, 3), range(3, 5)]
    assert layout.spare_ranks == range(5, 8)
    with pytest.raises(ConfigurationError, match="leave none to train"):
        BlockLayout(4, 1, spares=3)


def test_folds_cut_a_block_that_is_large_enough_and_take_turns_in_a_small_one():
    assert fold_groups(6, 3) == [range(2), range(2, 4), range(4, 6)]
    assert fold_groups(5, 3) == [range(2), range(2, 4), range(4, 5)]
    assert fold_groups(2, 3) == [range(2)]
    assert list(folds_of_group(1, 3, 3)) == [1]
    assert list(folds_of_group(0, 1, 3)) == [0, 1, 2]


@pytest.mark.parametrize("n_ranks", range(1, 12))
@pytest.mark.parametrize("folds", range(1, 7))
def test_every_fold_is_trained_exactly_once(n_ranks, folds):
    groups = fold_groups(n_ranks, folds)
    trained = [fold for group in range(len(groups)) for fold in folds_of_group(group, len(groups), folds)]
    assert sorted(trained) == list(range(folds))


def test_auto_leaves_every_block_about_ten_trials():
    assert len(BlockLayout.of(257, "auto", 1, trials=160).blocks) == 16
    assert len(BlockLayout.of(9, "auto", 1, trials=1000).blocks) == 8
    assert len(BlockLayout.of(256, "auto", 5, trials=10_000).blocks[0]) == 5


def test_impossible_numbers_are_refused():
    with pytest.raises(ConfigurationError, match="block_size must be at least 1"):
        BlockLayout(4, 0)


def test_the_first_of_even_parts_are_the_longer_ones():
    assert [len(run) for run in even_parts(11, 4)] == [3, 3, 3, 2]


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (BlockLayout(1, 1), "one process"),
        (BlockLayout(4, 1), "3 blocks of 1 rank"),
        (BlockLayout(3, 5), "1 block of 2 ranks"),
        (BlockLayout(12, 5), "2 blocks of 5 or 6 ranks"),
    ],
    ids=str,
)
def test_a_layout_as_text_has_the_number_of_blocks_and_their_sizes(layout, text):
    assert str(layout) == text


@pytest.mark.parametrize("n_ranks", [3, 5, 8, 17, 20, 33])
@pytest.mark.parametrize("size", [1, 2, 4, 7, 8])
@pytest.mark.parametrize(("folds", "stages"), [(1, 2), (2, 2), (5, 2), (3, 4)])
def test_each_fold_has_whole_models(n_ranks, size, folds, stages):
    if n_ranks - 1 < (stages if stages < folds and size < folds else stages * folds):
        with pytest.raises(ConfigurationError, match=f"{stages} stages needs"):
            BlockLayout.of(n_ranks, size, folds, trials=10, stages=stages)
        return
    layout = BlockLayout.of(n_ranks, size, folds, trials=10, stages=stages)
    groups = [group for block in layout.blocks for group in fold_groups(len(block), folds)]
    assert groups
    assert all(len(group) % stages == 0 for group in groups)
    assert len({len(block) for block in layout.blocks}) == 1
    assert sum(map(len, layout.blocks)) + layout.spares == n_ranks - 1


def test_a_single_rank_holds_all_stages():
    assert BlockLayout.of(1, 4, 2, trials=10, stages=2).is_serial
