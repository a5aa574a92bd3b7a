"""Which blocks fail trials that would not fail on other blocks."""

from __future__ import annotations

import pytest

from mpi_opt.coordinator.blocks.faults import BlockHealth


def test_a_success_ends_a_row_of_failures():
    health = BlockHealth()
    for has_failed in (True, True, True, False, True, True):
        health.record(7, has_failed)
    assert health.in_a_row(7) == 2


def test_a_block_is_unhealthy_if_trials_fail_on_it_and_succeed_on_other_blocks():
    health = BlockHealth()
    for _ in range(50):
        health.record(1, has_failed=False)
    for n_failed in range(1, 6):
        health.record(2, has_failed=True)
        assert health.is_unhealthy(2) is (n_failed == 5)
    assert not health.is_unhealthy(1)


@pytest.mark.parametrize(("share", "is_unhealthy"), [(10, True), (2, False)])
def test_a_row_of_failures_counts_only_if_trials_rarely_fail_on_other_blocks(share, is_unhealthy):
    health = BlockHealth()
    for n in range(100):
        health.record(0, n % share == 0)
    for _ in range(10):
        health.record(1, has_failed=True)
    assert health.is_unhealthy(1) is is_unhealthy
    assert not health.is_unhealthy(0)


@pytest.mark.parametrize(("n_ended_elsewhere", "is_unhealthy"), [(13, False), (14, True)])
def test_five_failures_are_enough_if_their_probability_is_below_one_in_a_million(n_ended_elsewhere, is_unhealthy):
    """The rate is (0 + 1) / (n + 2): 1/15 to the fifth is 1.3e-6, 1/16 to the fifth 0.95e-6."""
    health = BlockHealth()
    for _ in range(n_ended_elsewhere):
        health.record(0, has_failed=False)
    for _ in range(5):
        health.record(1, has_failed=True)
    assert health.is_unhealthy(1) is is_unhealthy


@pytest.mark.parametrize("has_failed_elsewhere", [(), (True,)])
def test_no_block_is_unhealthy_before_a_trial_has_succeeded_on_another_block(has_failed_elsewhere):
    health = BlockHealth()
    for has_failed in has_failed_elsewhere:
        health.record(0, has_failed)
    for _ in range(100):
        health.record(1, has_failed=True)
    assert not health.is_unhealthy(1)
    health.record(0, has_failed=False)
    assert health.is_unhealthy(1)
