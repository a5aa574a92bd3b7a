"""The verdict on a search none of whose trials has succeeded."""

from __future__ import annotations

import pytest

from mpi_opt.coordinator.trials.first_failures import FirstFailures
from mpi_opt.core.limits import reason_of
from tests.mpi_opt.outcomes import an_outcome


def failures(*errors: str, duration_s: float = 1.0) -> FirstFailures:
    found = FirstFailures()
    for number, error in enumerate(errors):
        found.add(an_outcome(number, "failed", duration_s=duration_s, error=error))
    return found


@pytest.mark.parametrize(
    ("errors", "are_enough"),
    [
        (["ValueError: no"] * 9, False),
        (["ValueError: no"] * 10, True),
        ([f"rank {n} on host{n}: MemoryError: {n}.5 GiB\nTraceback {n}" for n in range(10)], True),
        (["MemoryError"] * 9 + ["ValueError: no"] * 9 + ["nan"] * 9, False),
        (["MemoryError"] * 9 + ["ValueError: no"] * 10, True),
        ([f"bad {'x' * n}" for n in range(29)], False),
        ([f"bad {'x' * n}" for n in range(30)], True),
    ],
)
def test_failures_are_counted_by_reason(errors, are_enough):
    assert failures(*errors).are_enough is are_enough


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            "rank 3 on node17: ValueError: loss is nan after 1,200 steps\nTraceback",
            "ValueError: loss is # after # steps",
        ),
        ("rank 0 on a.b: MemoryError: 2.31 GiB of 1e9", "MemoryError: # GiB of #"),
        (None, ""),
        ("TypeError: not <Net object at 0x7f12ab0c>", "TypeError: not <Net object at #>"),
        ("FloatingPointError: -0.5 and +3e-4", "FloatingPointError: # and #"),
        ("bad values [-1. nan -inf]", "bad values [# # #]"),
        ("ranks 1-3 of info nano", "ranks #-# of info nano"),
        ("TypeError: not array([1. , 0.25, 12. ])", "TypeError: not array([#, #, #])"),
    ],
)
def test_a_reason_has_neither_place_nor_numbers(error, reason):
    assert reason_of(error) == reason


@pytest.mark.parametrize(
    ("n_failed", "duration_s", "ages_s", "may_start"),
    [
        (9, 1.0, [0.5], True),  # too few
        (10, 1.0, [9.0, 9.0, 9.0], False),  # the running trials are young
        (10, 1.0, [9.0, 10.5], True),  # one has survived
        (19, 1.0, [9.0, 10.5], True),
        (20, 1.0, [9.0, 10.5], False),  # and allows ten more
        (20, 1.0, [10.5, 10.5], True),
        (10, 3600.0, [3700.0, 4300.0], False),  # slow failures
        (10, 3600.0, [3700.0, 4330.0], True),
    ],
)
def test_trials_start_meanwhile_only_if_others_survive_longer_than_failures_take(
    n_failed, duration_s, ages_s, may_start
):
    assert failures(*["no"] * n_failed, duration_s=duration_s).allow_another(ages_s) is may_start


def test_a_single_slow_failure_does_not_decide_what_survival_is():
    found = failures(*["no"] * 10)
    found.add(an_outcome(10, "failed", duration_s=7200.0, error="no"))
    assert found.allow_another([11.0])


def test_the_reasons_are_listed_with_their_counts():
    assert str(failures("ValueError: no")) == "the first trial failed"
    assert str(failures(*["ValueError: no"] * 3)) == "the first 3 trials all failed"
    found = failures(*["MemoryError: 3 GiB"] * 2, *["ValueError: no"] * 3, "a", "b")
    assert (
        str(found)
        == "the first 7 trials all failed (3 × ValueError: no, 2 × MemoryError: # GiB, 1 × a, 1 × other reasons)"
    )
