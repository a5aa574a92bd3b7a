"""When another trial may start."""

from __future__ import annotations

import pytest

from mpi_opt.core.limits import TimeLimit


@pytest.mark.parametrize(("elapsed_s", "may_begin"), [(89.0, True), (91.0, False)])
def test_a_trial_begins_if_nine_of_ten_would_end_in_time(elapsed_s, may_begin):
    limit = TimeLimit(100.0)
    for duration_s in (4, 10, 1, 7, 2, 9, 3, 8, 5, 6):
        limit.add_duration(float(duration_s))
    assert limit.has_time_for_one(elapsed_s) is may_begin
