"""The time of a search by the size of its blocks, from measured times of trainings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mpi_learn.training.timing.times import TrainingTimes
from mpi_opt.core.block_layout import BlockLayout
from mpi_opt.core.scalability import Scalability, ScalingCurve, candidate_sizes, distinct_layouts, mean_times
from mpi_opt.views.series.scalability import scalability_page, scalability_text

STEP = TrainingTimes(
    start_s=0, compute_s=8, communication_s=0, waiting_s=0, validation_s=0, rest_s=0, epochs=1, n_steps=100,
    most_ranks=1000,
)  # fmt: skip


def modelled(n: int, *, is_total: bool) -> TrainingTimes:
    """An epoch with 80 s of shared work, 0.4 s of other work, and 3 ms · log2 n + 1 ms in each step on n > 1 ranks."""
    n_steps = 100 if is_total else 100 / n
    several = 1 if n > 1 else 0
    return TrainingTimes(
        start_s=2.0, compute_s=80 / n + 0.4, communication_s=several * n_steps * 0.003 * math.log2(n),
        waiting_s=several * n_steps * 0.001, validation_s=6 / n + 1, rest_s=0.01, epochs=10, n_steps=n_steps,
        most_ranks=1000,
    )  # fmt: skip


def ideal(n: int, seconds: float = 8.0) -> TrainingTimes:
    """A training without any cost of communication."""
    return replace(STEP, compute_s=seconds / n)


def layouts(n_ranks: int, sizes, n_folds: int = 1) -> list[BlockLayout]:
    return distinct_layouts(lambda size: BlockLayout(n_ranks, size, n_folds), sizes)


@pytest.mark.parametrize("is_total", [True, False])
def test_times_on_more_ranks_follow_the_model_that_was_fitted(is_total):
    curve = ScalingCurve({n: modelled(n, is_total=is_total) for n in (1, 2, 4)})
    for n in (8, 64):
        found, expected = curve.times(n), modelled(n, is_total=is_total)
        assert found.epoch_s == pytest.approx(expected.epoch_s, rel=1e-6)
        assert found.communication_s == pytest.approx(expected.communication_s, rel=1e-6)
        assert found.training_s == pytest.approx(2 + 10 * expected.epoch_s, rel=1e-6)


def test_measured_times_are_used_as_they_are_and_others_are_between_them():
    curve = ScalingCurve({1: ideal(1), 2: ideal(2), 4: replace(ideal(4), compute_s=9.0)})
    assert curve.times(4).epoch_s == 9.0
    assert 4.0 < curve.times(3).epoch_s < 9.0


def test_no_time_is_extrapolated_below_zero():
    curve = ScalingCurve({1: ideal(1), 2: replace(ideal(2), compute_s=1.0)})  # three times too fast
    assert curve.times(64).compute_s >= 0


def test_the_search_takes_as_long_as_its_trials_one_after_the_other_on_each_block():
    curves = [ScalingCurve({1: ideal(1, seconds)}) for seconds in (6.0, 1.0, 2.0)]
    (found,) = Scalability.of(curves, layouts(3, [1]), n_trials=5).sizes
    # trials 0 and 4 run on one block until 7, trials 1, 2 and 3 on the other one until 9
    assert found.search_s == 9.0
    assert found.trial_s == 3.0


def test_wider_blocks_are_better_only_if_the_search_ends_sooner():
    perfect = ScalingCurve({n: ideal(n) for n in (1, 2, 4)})
    many = Scalability.of([perfect], layouts(5, [1, 2, 4]), n_trials=40)
    assert [size.search_s for size in many.sizes] == [80, 80, 80]
    assert many.best.n_ranks == 1
    few = Scalability.of([perfect], layouts(5, [1, 2, 4]), n_trials=1)
    assert few.best.n_ranks == 4
    assert few.best.speed_up == 4
    assert "4.00 times sooner" in few.reason
    poor = ScalingCurve({1: ideal(1), 2: replace(ideal(2), communication_s=6.0), 4: replace(ideal(4), waiting_s=9.0)})
    assert Scalability.of([poor], layouts(5, [1, 2, 4]), n_trials=1).best.n_ranks == 1


def test_the_time_to_build_a_model_is_not_divided_by_the_ranks():
    curve = ScalingCurve({n: replace(ideal(n, 4.0), start_s=20.0) for n in (1, 2, 4)})
    assert Scalability.of([curve], layouts(5, [1, 2, 4]), n_trials=8).best.n_ranks == 1


def test_folds_run_in_turn_on_narrow_blocks_and_at_once_on_wide_ones():
    curve = ScalingCurve({n: ideal(n, 12.0) for n in (1, 2, 3, 4)})
    found = Scalability.of([curve], layouts(13, [2, 3, 12], n_folds=3), n_trials=1)
    assert {size.n_ranks: size.trial_s for size in found.sizes} == {2: 18.0, 3: 12.0, 12: 3.0}


def test_blocks_have_at_most_as_many_ranks_as_a_step_has_shards():
    curve = ScalingCurve({n: replace(ideal(n), most_ranks=3) for n in (1, 2)})
    assert [size.n_ranks for size in Scalability.of([curve], layouts(9, [1, 2, 4, 8]), 10).sizes] == [1, 2]


def test_one_measured_number_of_ranks_says_nothing_of_others():
    found = Scalability.of([ScalingCurve({1: ideal(1)})], layouts(9, [1, 2, 4]), n_trials=3)
    assert [size.n_ranks for size in found.sizes] == [1]
    assert "more cores" in found.note


def test_sizes_include_multiples_of_folds_and_stages_and_one_block_per_trial():
    assert candidate_sizes(63, 10, 1) == [1, 2, 4, 6, 8, 16, 32, 63]
    assert candidate_sizes(10, 100, 5) == [1, 2, 4, 5, 8, 10]
    assert candidate_sizes(8, 100, 1, unit=2) == [1, 2, 4, 8]


def test_the_mean_of_times_is_that_of_each_part():
    assert mean_times([ideal(1, 2.0), ideal(1, 4.0)]) == ideal(1, 3.0)


def test_the_report_has_a_row_for_each_size_and_marks_what_is_extrapolated():
    curve = ScalingCurve({n: modelled(n, is_total=True) for n in (1, 2)})
    found = Scalability.of([curve], layouts(9, [1, 2, 4, 8]), n_trials=2)
    text = scalability_text("digits", found, depends_on_ranks=True)
    rows = [line.split() for line in text.splitlines()[3:7]]
    assert [row[0] for row in rows] == ["1", "2", "4*", "8*"]
    assert [row[-1] == "best" for row in rows] == [size is found.best for size in found.sizes]
    assert f"recommended: --block-size {found.best.n_ranks}: " in text
    assert "measure on more cores" in text
    assert "other results" in text
    assert "other results" not in scalability_text("digits", found, depends_on_ranks=False)


def test_the_page_needs_no_other_file_and_escapes_the_name():
    curve = ScalingCurve({n: modelled(n, is_total=True) for n in (1, 2)})
    page = scalability_page("<b>", Scalability.of([curve], layouts(3, [1, 2]), 2), depends_on_ranks=False)
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert not any(word in page for word in ("http://", "https://", "<script", "src="))
