"""How the intermediate values of folds become values of their trial."""

from __future__ import annotations

import math

import pytest

from mpi_opt.coordinator.trials.intermediate_values import IntermediateValues
from mpi_opt.core.figures_of_merit import FiguresOfMerit


def test_values_of_later_folds_are_not_used_although_the_first_fold_ended_early():
    reports = IntermediateValues(1, FiguresOfMerit())
    values = [reports.add(fold, step, 10.0 * fold + step) for fold, n in ((0, 2), (1, 4)) for step in range(n)]
    assert values == [0.0, 1.0, None, None, None, None]


def test_parallel_folds_are_aggregated_when_all_have_reported():
    reports = IntermediateValues(2, FiguresOfMerit())
    assert [reports.add(fold, 3, float(fold)) for fold in (0, 1)] == [None, 0.5]


@pytest.mark.parametrize("selection", ["mean", "median", "mean+std"])
def test_value_of_a_fold_that_is_not_finite_makes_the_value_of_the_trial_nan(selection):
    reports = IntermediateValues(2, FiguresOfMerit(selection=selection))
    assert [reports.add(fold, 0, value) for fold, value in enumerate((1.0, math.nan))] == [
        None,
        pytest.approx(math.nan, nan_ok=True),
    ]
