from __future__ import annotations

import math
import sys
from statistics import variance

import numpy as np
import pytest
from scipy import stats
from scipy.special import polygamma

from mpi_opt.core.folds.fold_stopping import (
    MAX_WRONG_STOP_PROBABILITY,
    CompleteTrials,
    ReferenceTrial,
    fitted_variance_prior,
)
from mpi_opt.core.trial import Proposal

K = 5
NO_PRIOR = 1e-9
BEST = (0.1, 0.9, 0.4, 0.2, 0.4)  # folds that differ much more than trials do


def trial(number: int, budget: float | None = None) -> Proposal:
    return Proposal(number, {}, budget)


def complete(trials, *, sign=1.0, lag=None) -> CompleteTrials:
    complete_trials = CompleteTrials(K, sign, lag)
    for number, figures in enumerate(trials):
        complete_trials.add(trial(number), float(np.mean(figures)), dict(enumerate(figures)))
    return complete_trials


def test_without_other_trials_it_is_the_paired_test_of_a_finite_population():
    rng, reference = np.random.default_rng(0), ReferenceTrial(0.4, BEST, 1.0, NO_PRIOR)
    decisions = []
    for _ in range(300):
        n_run = int(rng.integers(2, K))
        figures = np.array(BEST[:n_run]) + rng.normal(rng.uniform(0, 1), 0.05, n_run)
        t = stats.ttest_rel(figures, BEST[:n_run]).statistic / np.sqrt(1 - n_run / K)
        decisions.append(stats.t.sf(t, n_run - 1) < MAX_WRONG_STOP_PROBABILITY / (K - 1))
        assert reference.is_clearly_worse(figures) == decisions[-1]
    assert 30 < sum(decisions) < 270


def test_with_a_known_scatter_one_fold_may_be_enough():
    reference = ReferenceTrial(0.4, BEST, 0.01, 200.0)
    enough = 0.01 * np.sqrt(1 - 1 / K) * stats.t.isf(MAX_WRONG_STOP_PROBABILITY / (K - 1), 200)
    assert not reference.is_clearly_worse([BEST[0] + 0.99 * enough])
    assert reference.is_clearly_worse([BEST[0] + 1.01 * enough])


def test_one_fold_is_not_enough_when_the_scatter_is_unknown():
    assert not ReferenceTrial(0.4, BEST, 0.01, NO_PRIOR).is_clearly_worse([BEST[0] + 100.0])


def test_a_fold_that_is_hard_for_every_trial_stops_none():
    assert not ReferenceTrial(0.4, BEST, 0.05, 20.0).is_clearly_worse([0.1, 0.9])
    assert ReferenceTrial(0.4, BEST, 0.05, 20.0).is_clearly_worse([0.5, 0.8])


def test_huge_differences_between_earlier_trials_stop_none():
    reference = ReferenceTrial(0.4, BEST, sys.float_info.max, 3.0)
    assert not reference.is_clearly_worse([1.0, 1.0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e165, 1e-170, 1e-310])
def test_values_whose_squares_are_no_floats_are_compared(scale):
    trials = [[scale * (number + fold / 8) for fold in range(K)] for number in range(1, 7)]
    reference = complete(trials).reference_for(trial(6))
    assert not reference.is_clearly_worse([figure - scale / 2 for figure in trials[0][:2]])
    assert isinstance(reference.is_clearly_worse([8 * scale, 8 * scale]), bool)
    assert 0.0 < reference.uncertainty([8 * scale, 8 * scale]) < math.inf


def test_the_estimate_of_a_stopped_trial_is_the_best_plus_the_mean_difference_of_its_folds():
    assert ReferenceTrial(0.4, BEST, 0.05, 20.0).expected([0.3, 1.3]) == pytest.approx(0.4 + (0.2 + 0.4) / 2)
    larger = tuple(1 - figure for figure in BEST)
    maximized = ReferenceTrial(0.6, larger, 0.05, 20.0, sign=-1.0)
    assert maximized.expected([larger[0] - 0.2, larger[1] - 0.4]) == pytest.approx(0.6 - 0.3)
    assert maximized.is_clearly_worse([larger[0] - 0.9])
    assert not maximized.is_clearly_worse([larger[0] + 0.9])


@pytest.mark.parametrize("prior", [2.0, 8.0])
def test_the_distribution_of_variances_is_found(prior):
    rng = np.random.default_rng(1)
    true = 0.3**2 * prior / rng.chisquare(prior, 20_000)
    measured = true * rng.chisquare(K - 1, 20_000) / (K - 1)
    scatter, degrees_of_freedom = fitted_variance_prior(measured, K - 1)
    assert scatter == pytest.approx(0.3, rel=0.05)
    assert degrees_of_freedom == pytest.approx(prior, rel=0.1)


def test_degrees_of_freedom_of_a_few_variances_are_those_of_the_paper():
    """Smyth 2004, section 6.2: ψ'(ν₀/2) is the mean of (e - ē)² n/(n - 1) - ψ'(ν/2), with e = log s² + constants."""
    logs = np.array([-1.0, 0.5, 2.0, 3.5])
    _, degrees_of_freedom = fitted_variance_prior(np.exp(logs), K - 1)
    expected = ((logs - logs.mean()) ** 2).mean() * 4 / 3 - polygamma(1, (K - 1) / 2)
    assert polygamma(1, degrees_of_freedom / 2) == pytest.approx(expected)


def test_equal_variances_count_for_no_more_than_was_measured():
    assert fitted_variance_prior(np.full(6, 0.25), 4)[1] == 24


@pytest.mark.parametrize("prior", [1.0, 4.0, 1e6])  # from scatter that hardly has a scale to the same for all trials
def test_few_trials_are_stopped_that_would_have_become_the_best(prior):
    """Studies of 20 complete trials, and then one that is about as good as their best."""
    rng, n_better, n_wrong, n_stopped = np.random.default_rng(2), 0, 0, 0
    difficulty = 5.0 * rng.standard_normal(K)
    for _ in range(1500):
        scatter = np.sqrt(0.1**2 * prior / rng.chisquare(prior, 21))[:, None]
        figures = difficulty + rng.normal(0, 0.05, 21)[:, None] + scatter * rng.standard_normal((21, K))
        reference = complete(figures[:20]).reference_for(trial(20))
        is_stopped = any(reference.is_clearly_worse(figures[20, :m]) for m in range(1, K))
        is_better = figures[20].mean() < figures[:20].mean(axis=1).min()
        n_better, n_stopped, n_wrong = (
            n_better + is_better,
            n_stopped + is_stopped,
            n_wrong + (is_stopped and is_better),
        )
    assert n_stopped > 500
    assert n_wrong <= MAX_WRONG_STOP_PROBABILITY * n_stopped
    assert n_better > 40
    assert n_wrong <= MAX_WRONG_STOP_PROBABILITY * n_better or prior == 1.0


def test_nothing_is_stopped_before_the_scatter_is_known():
    trials = np.array(BEST) + np.random.default_rng(3).normal(0, 0.01, (5, K))  # the best and four others
    assert complete(trials[:-1]).reference_for(trial(90)) is None
    assert complete(trials).reference_for(trial(90)) is not None
    assert CompleteTrials().reference_for(trial(90)) is None


def test_scatter_is_estimated_from_the_better_half_of_the_trials():
    rng = np.random.default_rng(4)
    better, worse = (level + scatter * rng.standard_normal((10, K)) for level, scatter in ((0.0, 0.01), (50.0, 1.0)))
    assert complete(np.vstack([worse, better])).reference_for(trial(20)).scatter < 0.05


def test_scatter_is_fitted_to_the_sample_variances_of_the_differences():
    differences = [1.0, -1.0, 0.0, 2.0, -2.0]  # of all other trials, except for a constant
    reference = complete([np.array(BEST) + n + (n > 0) * np.array(differences) for n in range(5)]).reference_for(
        trial(5)
    )
    assert reference.scatter == pytest.approx(fitted_variance_prior(np.full(4, variance(differences)), K - 1)[0])


def test_a_trial_that_lacks_a_fold_is_no_reference():
    complete_trials = complete(np.tile(BEST, (4, 1)))
    complete_trials.add(trial(4), 0.0, dict(enumerate(BEST[:3])))
    assert complete_trials.reference_for(trial(5)) is None


def test_with_a_lag_later_trials_change_nothing():
    trials = np.array(BEST) + np.random.default_rng(4).normal(0, 0.01, (30, K))
    assert (
        complete(trials, lag=8).reference_for(trial(20))
        == complete(trials[:13]).reference_for(trial(20))
        == complete(trials[:13], lag=8).reference_for(trial(20))
    )
    assert complete(trials, lag=8).reference_for(trial(20)) != complete(trials).reference_for(trial(20))


def test_the_reference_is_that_of_the_trials_that_are_known_at_each_time():
    """With a lag, two trials may know as many others, but not the same ones."""
    trials = np.array(BEST) + np.random.default_rng(4).normal(0, 0.1, (17, K))
    trials[16] -= 1.0  # the best one, which trial 19 must not know
    complete_trials, late = CompleteTrials(K, lag=4), 3
    for number in [*range(late), *range(late + 1, 17), late]:
        if number == late:  # its first attempt was lost
            assert complete_trials.reference_for(trial(20)) is not None
        complete_trials.add(trial(number), float(trials[number].mean()), dict(enumerate(trials[number])))
    assert complete_trials.reference_for(trial(19)) == complete(trials[:16]).reference_for(trial(19))


def test_the_reference_is_renewed_when_a_better_trial_is_complete():
    complete_trials = complete(np.array(BEST) + np.arange(1.0, 9.0)[:, None])
    assert complete_trials.reference_for(trial(9)).figure_of_merit == pytest.approx(np.mean(BEST) + 1)
    complete_trials.add(trial(8), float(np.mean(BEST)), dict(enumerate(BEST)))
    assert complete_trials.reference_for(trial(9)).figure_of_merit == pytest.approx(np.mean(BEST))


def test_folds_that_always_differ_by_the_same_stop_every_worse_trial_after_the_first():
    reference = complete([np.array(BEST) + number for number in range(8)]).reference_for(trial(8))
    assert reference.is_clearly_worse([BEST[0] + 1e-3])
    assert not reference.is_clearly_worse([BEST[0]])


def test_a_trial_with_a_budget_is_run_to_its_end_and_is_no_reference():
    complete_trials = complete(np.tile(BEST, (4, 1)))
    complete_trials.add(trial(4, budget=3), 0.0, dict(enumerate(BEST)))
    assert complete_trials.reference_for(trial(5)) is None
    assert complete(np.tile(BEST, (9, 1))).reference_for(trial(9, budget=3)) is None


@pytest.mark.parametrize("n_run", [1, 3])
def test_uncertainty_of_a_stopped_trial_is_the_error_of_its_estimate(n_run):
    """Trials whose differences from the best scatter as the reference says, run to their end."""
    rng, reference = np.random.default_rng(5), ReferenceTrial(0.4, BEST, 0.2, 1e6)
    trials = np.array(BEST) + rng.normal(0.5, 0.2, (4000, K))
    off = np.std([reference.expected(figures[:n_run]) - figures.mean() for figures in trials])
    claimed = reference.uncertainty(trials[0, :n_run]) ** 2 - np.var(BEST, ddof=1)
    assert np.sqrt(claimed / K) == pytest.approx(off, rel=0.05)
