"""How folds are aggregated, when a target is reached, and which values an objective may return."""

import math

import numpy as np
import pytest

from mpi_opt.core.figures_of_merit import FiguresOfMerit, read_figures_of_merit, read_target
from mpi_opt.core.trial import TrialRecord, is_usable
from mpi_opt.errors import ConfigurationError
from tests.mpi_opt.outcomes import a_fold, an_outcome, several_figures

FOLDS = [0.1, 0.4, 0.2, 0.9, 0.15]
TWO = FiguresOfMerit(("accuracy", "seconds"), ("maximize", "minimize"))


def outcomes(values):
    return [a_fold(index, value, 1.0) for index, value in enumerate(values)]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("mean", lambda values, sign: np.mean(values)),
        ("median", lambda values, sign: np.median(values)),
        ("mean+std", lambda values, sign: np.mean(values) + sign * np.std(values, ddof=1)),
    ],
)
def test_folds_are_aggregated_by_the_selection_and_keep_their_standard_deviation(selection, direction, expected):
    figures_of_merit = FiguresOfMerit(directions=(direction,), selection=selection)
    figure = figures_of_merit.aggregate_folds(outcomes(FOLDS)).main
    assert figure == pytest.approx(expected(FOLDS, figures_of_merit.sign))
    assert figure.uncertainty == pytest.approx(np.std(FOLDS, ddof=1))


def test_mean_plus_std_is_pessimistic_in_both_directions():
    for direction, is_worse in (("minimize", float.__gt__), ("maximize", float.__lt__)):
        figures_of_merit = FiguresOfMerit(directions=(direction,), selection="mean+std")
        assert is_worse(figures_of_merit.aggregate_folds(outcomes(FOLDS)).main, float(np.mean(FOLDS)))


@pytest.mark.parametrize("selection", ["mean", "mean+std", "median"])
def test_one_fold_is_its_own_figure_without_uncertainty(selection):
    figure = FiguresOfMerit(selection=selection).aggregate_folds(outcomes([0.3])).main
    assert (figure, figure.uncertainty) == (0.3, None)


def test_a_strategy_receives_a_reported_uncertainty():
    cost = FiguresOfMerit().measured_cost(an_outcome(0, "complete", 1.0, 2.0, 1.0), 1)
    assert (cost, cost.uncertainty) == (1.0, 2.0)


def test_the_standard_deviation_over_folds_is_no_uncertainty_for_a_strategy():
    """It contains the difficulty of the folds, which is the same for all trials."""
    cost = FiguresOfMerit().measured_cost(an_outcome(0, "complete", 1.0, 2.0, 1.0), 5)
    assert (cost, type(cost)) == (1.0, float)


def test_each_of_several_figures_is_averaged_separately():
    figures = TWO.aggregate_folds([a_fold(i, TWO.read(both)) for i, both in enumerate([(0.8, 3.0), (0.6, 5.0)])])
    assert figures == pytest.approx({"accuracy": 0.7, "seconds": 4.0})
    record = TrialRecord(0, "complete", {}, figures)
    assert record.uncertainties == pytest.approx({"accuracy": 0.2 / 2**0.5, "seconds": 2**0.5})
    cost = TWO.measured_cost(record, 1)
    assert cost == pytest.approx((-0.7, 4.0))
    assert [one.uncertainty for one in cost] == list(record.uncertainties.values())
    assert TWO.measured_cost(record, 2) == pytest.approx((-0.7, 4.0))


def test_first_of_several_figures_is_that_of_the_trial():
    record = TrialRecord(0, "complete", {}, several_figures({"accuracy": 0.7, "seconds": 4.0}, {"accuracy": 0.1}))
    assert (record.figure_of_merit, record.uncertainty) == (0.7, 0.1)
    assert record.uncertainties == {"accuracy": 0.1}
    assert (TrialRecord(0, "failed", {}).figure_of_merit, TrialRecord(0, "failed", {}).uncertainty) == (None, None)


@pytest.mark.parametrize(
    "value", [(0.9, 12), [0.9, 12.0], np.array([0.9, 12.0]), {"seconds": 12.0, "accuracy": 0.9}], ids=repr
)
def test_several_numbers_may_come_in_order_or_by_name(value):
    assert list(TWO.read(value).items()) == [("accuracy", 0.9), ("seconds", 12.0)]


@pytest.mark.parametrize(
    "value", [0.9, "ab", None, (0.9,), (0.9, 1.0, 2.0), {"accuracy": 1.0}, (0.9, math.nan), {0.9, 1.0}]
)
def test_wrong_number_of_figures_fails_the_trial(value):
    with pytest.raises((TypeError, ValueError)):
        TWO.read(value)


@pytest.mark.parametrize("value", [True, "0.5", None, math.inf, (0.5, 0.6)])
def test_value_that_is_no_number_fails_the_trial_of_one_figure(value):
    with pytest.raises((TypeError, ValueError)):
        FiguresOfMerit().read(value)


def test_names_and_numbers_that_were_returned_are_shown():
    with pytest.raises(ValueError, match=r"must return 2 numbers \(accuracy, seconds\); found accuracy, time"):
        TWO.read({"accuracy": 0.5, "time": 3.0})
    with pytest.raises(ValueError, match="must be a finite number, not nan"):
        FiguresOfMerit().read(math.nan)


def test_several_numbers_where_one_is_wanted_say_how_they_are_named():
    with pytest.raises(TypeError, match=r"figure_of_merit=\['loss', 'acc'\]"):
        FiguresOfMerit().read({"loss": 0.5, "acc": 3.0})


@pytest.mark.parametrize("value", [np.array([0.1, 0.2]), np.array([])])
def test_value_that_is_not_one_number_is_named_in_the_error(value):
    with pytest.raises(TypeError, match="the figure of merit must be a number, not array"):
        FiguresOfMerit().read(value)


@pytest.mark.parametrize(
    ("target", "figures", "is_reached"),
    [
        ((0.9, 10.0), (0.95, 9.0), True),
        ((0.9, 10.0), (0.95, 11.0), False),
        ((0.9, None), (0.95, 1e9), True),
        ((0.9, None), (0.85, 1.0), False),
        (None, (1.0, 0.0), False),
    ],
)
def test_target_of_several_figures_is_reached_by_one_trial_in_all_of_them(target, figures, is_reached):
    record = TrialRecord(0, "complete", {}, TWO.read(figures))
    assert TWO.reaches(target, record) is is_reached


@pytest.mark.parametrize(
    ("figure", "direction", "names"),
    [
        ("val_loss", "minimize", ("val_loss",)),
        (["val_accuracy", "seconds"], ["maximize", "minimize"], ("val_accuracy", "seconds")),
        (["val_loss", "merit.py:cost"], ["minimize", "minimize"], ("val_loss", "cost")),
        ("merit.py:both", ["maximize", "minimize"], ("both_1", "both_2")),
    ],
)
def test_names_come_from_metrics_and_functions(figure, direction, names):
    assert read_figures_of_merit(figure, direction, "mean", is_training=True).names == names


def test_values_of_a_users_function_are_called_as_the_user_wants():
    assert read_figures_of_merit("val_loss", "minimize", "mean", is_training=False).names == ("figure_of_merit",)
    assert read_figures_of_merit(["a", "b"], ["minimize"] * 2, "mean", is_training=False).names == ("a", "b")
    unnamed = read_figures_of_merit("val_loss", ["minimize"] * 2, "mean", is_training=False)
    assert unnamed.names == ("figure_of_merit_1", "figure_of_merit_2")


@pytest.mark.parametrize(
    ("figure", "direction", "where"),
    [
        (["val_loss", "seconds"], "minimize", "direction"),
        (["val_loss", "seconds"], ["minimize"] * 3, "direction"),
        ("val_loss", ["minimize", "maximize"], "direction"),
        (["a.py:f", "b.py:f"], ["minimize"] * 2, "figure_of_merit"),
        ("a.py:f", [], "direction"),
        ([], ["minimize"], "figure_of_merit"),
    ],
)
def test_names_and_directions_that_do_not_go_together_are_refused(figure, direction, where):
    with pytest.raises(ConfigurationError) as caught:
        read_figures_of_merit(figure, direction, "mean", is_training=True)
    assert caught.value.where == where
    assert caught.value.cure


def test_targets_that_do_not_go_with_the_figures_are_refused():
    assert read_target([0.9, None], TWO) == (0.9, None)
    assert read_target(0.9, FiguresOfMerit()) == (0.9,)
    with pytest.raises(ConfigurationError, match="a target for each of accuracy, seconds; found 1"):
        read_target(0.9, TWO)
    with pytest.raises(ConfigurationError, match="a target for each of accuracy, seconds; found 3"):
        read_target([0.9, None, 0.1], TWO)
    with pytest.raises(ConfigurationError, match="found 2"):
        read_target([0.9, None], FiguresOfMerit())


@pytest.mark.parametrize("value", [0, -1.5, 10**300, np.float32(2.0), np.int64(3)])
def test_finite_real_number_can_be_a_figure_of_merit(value):
    assert is_usable(value)


@pytest.mark.parametrize("value", [10**400, -(10**400), math.inf, np.float32(math.nan), True, None, "1", 1j])
def test_value_that_no_finite_float_can_hold_is_no_figure_of_merit(value):
    assert not is_usable(value)
