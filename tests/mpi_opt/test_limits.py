"""When another trial may begin, and which block fails trials that would not fail elsewhere."""

from __future__ import annotations

import pytest

from mpi_opt.core.limits import Luck, TimeLimit


@pytest.mark.parametrize(("elapsed_s", "may_begin"), [(89.0, True), (91.0, False)])
def test_a_trial_begins_if_nine_of_ten_would_end_in_time(elapsed_s, may_begin):
    limit = TimeLimit(100.0)
    for duration_s in (4, 10, 1, 7, 2, 9, 3, 8, 5, 6):
        limit.take(float(duration_s))
    assert limit.has_time_for_one(elapsed_s) is may_begin


def test_a_success_ends_a_row_of_failures():
    luck = Luck()
    for has_failed in (True, True, True, False, True, True):
        luck.take(7, has_failed)
    assert luck.in_a_row(7) == 2


def test_a_block_is_sick_if_it_fails_what_other_blocks_complete():
    luck = Luck()
    for _ in range(50):
        luck.take(1, has_failed=False)
    for n_failed in range(1, 6):
        luck.take(2, has_failed=True)
        assert luck.is_sick(2) is (n_failed == 5)
    assert not luck.is_sick(1)
