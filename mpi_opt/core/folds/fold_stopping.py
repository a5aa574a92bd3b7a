"""Early stopping of folds: a trial is stopped if its first folds are clearly worse than those of the best trial.

Let f_i be the figures of merit (to be minimised) of the first m of K folds of a trial, b_i those of the best complete
trial, and d_i = f_i - b_i. Both trials have the same samples in fold i, so the difficulty of a fold cancels in d_i. The
trial will be worse than the best one if D, the mean of all K differences, is positive. D is estimated by d̄, the mean of
the first m differences. If the differences are normally distributed around a common mean,

    t = (d̄ - D) / (s̃ √((1/m) (1 - m/K)))

has a Student distribution. The factor 1 - m/K corrects for the finite number of folds. The probability that the trial
still becomes the best one (D < 0) is therefore the probability that a variable with this distribution exceeds
d̄ / (s̃ √((1/m) (1 - m/K))).

The variance of a few differences is uncertain. It is therefore moderated by the variances of other trials (Smyth, Stat.
Appl. Genet. Mol. Biol. 3(1), 2004, section 3, and section 6.2 for ν₀ and s₀²):

    s̃² = (ν₀ s₀² + (m - 1) s²) / (ν₀ + m - 1),    with ν₀ + m - 1 degrees of freedom.

Here s² is the variance of the trial's own m differences. s₀² and ν₀ are estimated from the differences between the
better half of the complete trials and the best one. The better half is used because a trial that would become the best
must rarely be stopped, and differences of good trials have smaller variances than those of bad ones.

A trial is stopped as soon as the probability is below `MAX_WRONG_STOP_PROBABILITY` / (K - 1), the Bonferroni correction
for K - 1 tests.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpi_opt.core.arrays import Floats
from mpi_opt.core.trial import Proposal

MAX_WRONG_STOP_PROBABILITY = 0.05
"""Largest probability of stopping a trial that would become the best one."""

MIN_COMPARED_TRIALS = 4
"""Fewest complete trials besides the best one from which variances are estimated. With fewer no trial is stopped."""

MIN_SCATTER = 1e-9
"""Least standard deviation of differences, relative to the largest value of the best trial, because of rounding."""

MIN_VARIANCE, MAX_VARIANCE = sys.float_info.min, sys.float_info.max
"""Variances of extreme figures of merit are moved into this range, so that they are neither 0 nor infinite."""


@dataclass(frozen=True, slots=True)
class ReferenceTrial:
    """The best complete trial, with which the folds of another trial are compared. It is sent with the trial.

    Attributes:
        figure_of_merit: Its figure of merit, in the user's direction.
        folds: The figures of merit of its K folds, in order.
        scatter: s₀, the standard deviation of a difference.
        degrees_of_freedom: ν₀, the degrees of freedom of s₀.
        sign: -1 if the figure of merit is maximised, else 1.
    """

    figure_of_merit: float
    folds: tuple[float, ...]
    scatter: float
    degrees_of_freedom: float
    sign: float = 1.0

    def is_clearly_worse(self, figures: Sequence[float]) -> bool:
        """Whether to stop a trial whose first m folds have the figures of merit `figures`: shape (m,), 1 ≤ m < K."""
        from scipy.special import stdtr

        n_run, n_all = len(figures), len(self.folds)
        differences = self._differences(figures)
        mean, degrees_of_freedom = float(differences.mean()), self.degrees_of_freedom + n_run - 1
        if mean <= 0.0:
            return False
        error = math.sqrt(self._variance(differences) * (1.0 / n_run - 1.0 / n_all))
        probability = float(stdtr(degrees_of_freedom, -mean / error))  # of a larger t
        return probability < MAX_WRONG_STOP_PROBABILITY / (n_all - 1)

    def expected(self, figures: Sequence[float]) -> float:
        """The expected figure of merit of a trial with these folds, in the user's direction: that of the best plus d̄.

        Unlike the mean of `figures`, it does not depend on the difficulty of the first folds.
        """
        return self.figure_of_merit + self.sign * float(self._differences(figures).mean())

    @np.errstate(over="ignore")
    def uncertainty(self, figures: Sequence[float]) -> float:
        """√K times the standard error of `expected`, comparable with the standard deviation over K folds.

        `expected` is a sum. Its first term, the mean of the best trial, has the variance of that trial's K folds
        divided by K. Its second term, the mean difference, has the variance s̃² (1/m - 1/K).
        """
        missing = len(self.folds) / len(figures) - 1.0
        variance = float(np.var(self.folds, ddof=1)) + self._variance(self._differences(figures)) * missing
        return math.sqrt(min(variance, MAX_VARIANCE))

    @np.errstate(over="ignore")
    def _variance(self, differences: Floats) -> float:
        """s̃²."""
        own = float(((differences - differences.mean()) ** 2).sum())
        prior = self.degrees_of_freedom * self.scatter * self.scatter  # scatter**2 may raise OverflowError
        return (prior + own) / (self.degrees_of_freedom + len(differences) - 1)

    def _differences(self, figures: Sequence[float]) -> Floats:
        differences: Floats = self.sign * (np.asarray(figures, dtype=float) - np.asarray(self.folds[: len(figures)]))
        return differences


class CompleteTrials:
    """The complete trials of a study, from which the references of later trials are estimated.

    Args:
        n_folds: K. With one fold no trial is ever stopped.
        sign: -1 if the figure of merit is maximised, else 1.
        lag: Trial k is compared with trials 0 to k - lag only, so that a search is reproducible regardless of timing.
            None: with all trials that have ended.
    """

    def __init__(self, n_folds: int = 1, sign: float = 1.0, lag: int | None = None) -> None:
        self.n_folds, self.sign, self.lag = n_folds, sign, lag
        self._trials: dict[int, tuple[float, tuple[float, ...]]] = {}
        self._latest: tuple[set[int], ReferenceTrial | None] = set(), None

    def add(self, proposal: Proposal, figure_of_merit: float, folds: Mapping[int, float | None]) -> None:
        """Adds a complete trial; `folds` are the figures of merit of its folds by their index.

        A trial with missing folds or with a budget is ignored.
        """
        figures = [figure for _, figure in sorted(folds.items()) if figure is not None]
        if self.n_folds > 1 and len(figures) == self.n_folds and proposal.budget is None:
            self._trials[proposal.number] = (figure_of_merit, tuple(figures))

    def reference_for(self, proposal: Proposal) -> ReferenceTrial | None:
        """The reference of a trial; None if too few trials are complete.

        None also for a trial with a budget, because other trials may resume from the checkpoints of all of its folds.
        """
        known = self._trials
        if self.lag is not None:
            known = {other: trial for other, trial in known.items() if other <= proposal.number - self.lag}
        if len(known) <= MIN_COMPARED_TRIALS or proposal.budget is not None:
            return None
        if self._latest[0] != known.keys():
            self._latest = set(known), self._reference(known)
        return self._latest[1]

    @np.errstate(over="ignore", invalid="ignore")
    def _reference(self, known: dict[int, tuple[float, tuple[float, ...]]]) -> ReferenceTrial:
        ranked = sorted(known, key=lambda number: (self.sign * known[number][0], number))
        figure, folds = known[ranked[0]]
        others = ranked[1 : 1 + max(MIN_COMPARED_TRIALS, len(ranked) // 2)]
        differences = np.array([known[number][1] for number in others]) - np.array(folds)
        least = MIN_SCATTER * max(abs(value) for value in folds) or MIN_SCATTER
        least_variance = max(least * least, MIN_VARIANCE)  # least**2 may raise OverflowError
        variances = np.nan_to_num(differences.var(axis=1, ddof=1), nan=MAX_VARIANCE).clip(least_variance, MAX_VARIANCE)
        scatter, degrees_of_freedom = fitted_variance_prior(variances, self.n_folds - 1)
        return ReferenceTrial(figure, folds, scatter, degrees_of_freedom, self.sign)


def fitted_variance_prior(variances: Floats, degrees_of_freedom: int) -> tuple[float, float]:
    """Fits a distribution to variances that were each estimated with a few degrees of freedom.

    Args:
        variances: Shape (n,), n ≥ 2, all positive.
        degrees_of_freedom: Degrees of freedom of each variance.

    Returns:
        s₀ and ν₀ of the scaled inverse χ² distribution (Smyth 2004, section 6.2). ν₀ is at most
        n · `degrees_of_freedom`.
    """
    from scipy.optimize import brentq
    from scipy.special import polygamma, psi

    logs = np.log(variances) - psi(degrees_of_freedom / 2) + math.log(degrees_of_freedom / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, degrees_of_freedom / 2))
    most = float(degrees_of_freedom * len(variances))
    prior = most
    if excess > float(polygamma(1, most / 2)):
        prior = math.exp(brentq(lambda log: float(polygamma(1, math.exp(log) / 2)) - excess, -20.0, math.log(most)))
    level = float(logs.mean() + psi(prior / 2) - math.log(prior / 2))
    return math.exp(level / 2), prior
