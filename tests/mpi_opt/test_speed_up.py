"""The speed-up curve of a study, learnt from trainings on several numbers of ranks."""

from __future__ import annotations

import pytest

from mpi_opt.core.scalability import SpeedUp


def amdahl(n: int, serial: float) -> float:
    return 1 / (serial + (1 - serial) / n)


def test_before_any_measurement_more_ranks_are_expected_to_be_faster():
    assert 1.5 < SpeedUp().factor(1, 2) < 2
    assert SpeedUp().most_ranks(1) == 2, "the curve is not used far beyond what was measured"


@pytest.mark.parametrize("serial", [0.0, 0.1, 0.5])
def test_the_curve_passes_through_the_mean_of_the_measurements(serial):
    curve = SpeedUp()
    for noise in (0.9, 1.0, 1.1):
        for n in (2, 4, 8):
            curve.add(n // 2, n, noise * amdahl(n, serial) / amdahl(n // 2, serial))
    for n in (2, 4, 8):
        assert curve.factor(n // 2, n) == pytest.approx(amdahl(n, serial) / amdahl(n // 2, serial), rel=0.12)
    assert curve.factor(1, 8) == pytest.approx(amdahl(8, serial), rel=0.15)


def test_ranks_that_did_not_make_a_training_faster_are_not_expected_to_do_so_again():
    curve = SpeedUp()
    curve.add(2, 4, 0.9)
    assert curve.factor(2, 4) < 0.95
    assert curve.factor(4, 8) < 1
    curve.add(4, 2, 1 / 0.9)
    assert curve.factor(2, 4) < 0.95, "a change to fewer ranks counts like one to more"


def test_the_curve_is_used_up_to_twice_the_largest_number_of_ranks_that_was_measured():
    curve = SpeedUp()
    curve.add(1, 6, 3.0)
    assert curve.most_ranks(1) == 12
    assert curve.most_ranks(8) == 16
