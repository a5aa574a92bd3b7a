"""Intermediate values: what `Trial.report` accepts, and how steps and values reach the store and figures."""

from __future__ import annotations

import math
import sqlite3

import numpy as np
import pytest
from mpi4py import MPI

import mpi_opt
from mpi_opt.core.figures import real_number
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.trial import Proposal, Trial
from tests.optional_packages import needs

SETTINGS = {"space": {"x": mpi_opt.Real(0, 1)}, "strategy": "random", "study": "s"}


def trial() -> Trial:
    return Trial(Proposal(0, {"x": 0.5}), comm=MPI.COMM_SELF, study_seed=1)


@pytest.mark.parametrize("step", [0, 7, np.int64(7), np.uint8(7), np.array(7), 7.0, 2**31 - 1])
def test_a_whole_number_is_a_step(step):
    one = trial()
    one.report(step, 0.5)
    assert one.reported == {int(step): 0.5}
    assert type(next(iter(one.reported))) is int


@pytest.mark.parametrize("step", [0.37, np.float32(0.5), True, np.True_, "3", None, math.nan, math.inf, 1j, [1]])
def test_other_steps_are_refused_with_the_order_of_the_arguments(step):
    with pytest.raises(TypeError, match=r"the step must be a whole number .*; the first argument is the step"):
        trial().report(step, 3)


@pytest.mark.parametrize("step", [-1, np.int64(-3), 2**31])
def test_a_step_outside_of_its_range_is_refused(step):
    with pytest.raises(ValueError, match="the step must be between 0 and 2,147,483,647, not"):
        trial().report(step, 0.5)


@pytest.mark.parametrize("value", [0.25, np.float32(0.25), np.array(0.25), np.array([[0.25]]), math.nan, -math.inf, 3])
def test_a_real_number_is_a_value(value):
    one = trial()
    one.report(0, value)
    assert one.reported[0] == np.asarray(value).item() or math.isnan(one.reported[0])


def test_a_number_beyond_the_floats_and_a_masked_one_are_not_finite():
    assert (real_number(10**400), real_number(-(10**400))) == (math.inf, -math.inf)
    for masked in (np.ma.masked, np.ma.array([1.0], mask=[True])):
        with pytest.warns(UserWarning, match="masked"):
            assert math.isnan(real_number(masked))


NOT_REAL = [np.complex128(1 + 2j), np.array(1 + 2j), 1j, True, np.True_, np.array(True), "0.5", b"1", None, [1.0, 2.0]]


@pytest.mark.parametrize("value", NOT_REAL, ids=repr)
def test_what_is_no_real_number_is_no_value_and_no_figure_of_merit(value):
    with pytest.raises(TypeError, match="a real number is needed"):
        trial().report(0, value)
    with pytest.raises(TypeError, match="the figure of merit must be a number, not"):
        FiguresOfMerit().read(value)


@needs("torch")
def test_tensors_that_are_no_real_numbers_are_refused():
    import torch

    assert list(FiguresOfMerit().read(torch.tensor(0.5)).values()) == [0.5]
    for value in (torch.tensor(True), torch.tensor(1 + 2j)):
        with pytest.raises(TypeError, match="must be a number"):
            FiguresOfMerit().read(value)


@needs("matplotlib")
def test_the_steps_are_stored_and_are_the_abscissa_of_curves(tmp_path):
    from mpi_opt.views.figures import plots

    def objective(trial):
        for step in (0, 4, 8, 1_000_000):
            trial.report(step, 1.0 / (1 + step) if step else math.nan)
        trial.report(4, 7.0)  # the first value of a step counts
        return 1.0

    study = mpi_opt.search(objective, trials=1, store=f"sqlite:///{tmp_path}/a.db", **SETTINGS)
    with sqlite3.connect(tmp_path / "a.db") as database:
        rows = database.execute("SELECT epoch, name, value FROM metrics ORDER BY epoch").fetchall()
    assert rows == [(0, "report", None), (4, "report", 0.2), (8, "report", 1 / 9), (1_000_000, "report", 1 / 1_000_001)]
    (curve,) = study.curves()
    assert curve.steps == [0, 4, 8, 1_000_000]
    assert [step for step, value in curve.points() if math.isfinite(value)] == [4, 8, 1_000_000]
    (line,) = plots.curves(study).axes[0].lines
    assert list(line.get_xdata()) == [4, 8, 1_000_000]


def test_consecutive_steps_need_no_list(tmp_path):
    def objective(trial):
        for step in range(3):
            trial.report(step, float(step))
        return 1.0

    study = mpi_opt.search(objective, trials=1, store=f"sqlite:///{tmp_path}/a.db", **SETTINGS)
    (curve,) = study.curves()
    assert (curve.values, curve.steps) == ([0.0, 1.0, 2.0], [])
    assert list(curve.points()) == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_exchanged_arguments_fail_the_trial_with_the_reason(tmp_path):
    def objective(trial):
        trial.report(0.5, 0)
        return 1.0

    with pytest.raises(mpi_opt.errors.SearchFailed, match=r"the step must be a whole number of 0 or more, not 0\.5"):
        mpi_opt.search(objective, trials=1, store=f"sqlite:///{tmp_path}/a.db", **SETTINGS)
