"""When the first folds of a trial are enough: it is clearly worse than the best trial was on the same folds.

Let f_i be the figures of merit (to minimise) of the m folds of K that a trial has run, b_i those of the best complete
trial, and d_i = f_i - b_i. Both saw the same samples, so how hard a fold is cancels in d_i. What the trial would end
with is worse than the best if the mean of all K differences is positive. If they scatter normally around a common mean,
the mean of K lies around d̄, the mean of m of them, with the standard error of a sample of a finite population, and

    t = d̄ / (s̃ √((1/m) (1 - m/K)))

is Student-distributed: the probability of a larger t is that of the trial becoming the best nevertheless. Few folds
tell little of how differences scatter; other trials tell more, so that s̃² is moderated (Smyth, Stat. Appl. Genet. Mol.
Biol. 3(1), 2004, section 3, and section 6.2 for ν₀ and s₀²):

    s̃² = (ν₀ s₀² + (m - 1) s²) / (ν₀ + m - 1),    with ν₀ + m - 1 degrees of freedom.

Here s² is the variance of the trial's own m differences; s₀² and ν₀ come from how the complete trials' differences from
the best scatter. Of these the better half counts: what must be rare is that a trial is stopped which would have become
the best, and differences of good trials scatter less than those of bad ones.

The trial is stopped after the fold at which that probability is below `ERROR` / (K - 1); there are K - 1 folds after
which it may be (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mpi_opt.core.trial import Proposal

ERROR = 0.05
"""Of the trials that are stopped so many, at most, would have become the best one."""

FEWEST_OTHERS = 4
"""Before so many trials beside the best one are complete, nobody knows how differences scatter: no trial is stopped."""

LEAST_SCATTER = 1e-9
"""Differences scatter at least so much, as a part of the best trial's largest value: rounding is no certainty."""


class Fold(Protocol):
    """One fold of a trial, as an outcome or as the store has it."""

    fold: int
    figure_of_merit: float | None


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What the folds of a trial are compared with; goes to a block with the trial.

    Attributes:
        figure_of_merit: The best complete trial's, in the user's direction.
        folds: Its folds', in the order of the folds; shape (K,).
        scatter: s₀, one standard deviation of a difference from it.
        freedom: ν₀, for how many differences s₀ stands.
        sign: -1 if more is better, else 1.
    """

    figure_of_merit: float
    folds: tuple[float, ...]
    scatter: float
    freedom: float
    sign: float = 1.0

    def is_clearly_worse(self, figures: Sequence[float]) -> bool:
        """Whether a trial whose first folds, at least one and not all, gave `figures` need not run the others."""
        n_run, n_all = len(figures), len(self.folds)
        differences = self._differences(figures)
        mean, freedom = float(differences.mean()), self.freedom + n_run - 1
        if mean <= 0.0:
            return False
        error = math.sqrt(self._variance(differences) * (1.0 / n_run - 1.0 / n_all))
        return _tail(mean / error, freedom) < ERROR / (n_all - 1)

    def expected(self, figures: Sequence[float]) -> float:
        """What such a trial would come to, in the user's direction: as far from the best as on the folds it has run.

        The plain mean of `figures` would also say whether the first folds are easy ones.
        """
        return self.figure_of_merit + self.sign * float(self._differences(figures).mean())

    def uncertainty(self, figures: Sequence[float]) -> float:
        """√K times the standard error of `expected`, comparable with a complete trial's deviation over its folds.

        `expected` is the sum of the best trial's mean, whose variance is that of its K folds over K, and of the mean
        difference from it, whose variance is s̃² (1/m - 1/K).
        """
        missing = len(self.folds) / len(figures) - 1.0
        return math.sqrt(float(np.var(self.folds, ddof=1)) + self._variance(self._differences(figures)) * missing)

    def _variance(self, differences: np.ndarray) -> float:
        """s̃²."""
        own = float(((differences - differences.mean()) ** 2).sum())
        return (self.freedom * self.scatter**2 + own) / (self.freedom + len(differences) - 1)

    def _differences(self, figures: Sequence[float]) -> np.ndarray:
        return self.sign * (np.asarray(figures, dtype=float) - np.asarray(self.folds[: len(figures)]))


class Yardsticks:
    """Learns from the complete trials of a study what the next ones are to be compared with.

    Args:
        n_folds: K; with 1 there is nothing to stop early, and never a yardstick.
        sign: -1 if more is better, else 1.
        lag: Trial k is compared with trials 0 to k - lag only, whatever has ended meanwhile, so that a search can be
            repeated whatever the timing; None: with all that have ended.
    """

    def __init__(self, n_folds: int = 1, sign: float = 1.0, lag: int | None = None) -> None:
        self.n_folds, self.sign, self.lag = n_folds, sign, lag
        self._trials: dict[int, tuple[float, tuple[float, ...]]] = {}
        self._latest: tuple[int, Yardstick | None] = (0, None)

    def take(self, proposal: Proposal, figure_of_merit: float, folds: Iterable[Fold]) -> None:
        """Takes in a complete trial; one that lacks a fold or had a budget of its own does not count."""
        by_fold = {fold.fold: fold.figure_of_merit for fold in folds if fold.figure_of_merit is not None}
        if self.n_folds > 1 and len(by_fold) == self.n_folds and proposal.budget is None:
            self._trials[proposal.number] = (figure_of_merit, tuple(by_fold[fold] for fold in sorted(by_fold)))

    def of(self, proposal: Proposal) -> Yardstick | None:
        """What a trial is to be compared with; None as long as too few are known.

        None as well for one with a budget: others may go on from it, and need the checkpoints of all its folds.
        """
        known = self._trials
        if self.lag is not None:
            known = {other: trial for other, trial in known.items() if other <= proposal.number - self.lag}
        if len(known) <= FEWEST_OTHERS or proposal.budget is not None:
            return None
        if self._latest[0] != len(known):
            self._latest = len(known), self._made(known)
        return self._latest[1]

    def _made(self, known: dict[int, tuple[float, tuple[float, ...]]]) -> Yardstick:
        ranked = sorted(known, key=lambda number: (self.sign * known[number][0], number))
        figure, folds = known[ranked[0]]
        others = ranked[1 : 1 + max(FEWEST_OTHERS, len(ranked) // 2)]
        differences = np.array([known[number][1] for number in others]) - np.array(folds)
        least = LEAST_SCATTER * max(abs(value) for value in folds) or LEAST_SCATTER
        variances = np.maximum(differences.var(axis=1, ddof=1), least**2)
        scatter, freedom = pooled(variances, self.n_folds - 1)
        return Yardstick(figure, folds, scatter, freedom, self.sign)


def pooled(variances: np.ndarray, freedom: int) -> tuple[float, float]:
    """How variances are distributed of which each was measured with a few degrees of freedom.

    Args:
        variances: Shape (n,), n ≥ 2, all positive.
        freedom: Of each.

    Returns:
        s₀ and ν₀ of the scaled inverse χ² distribution (Smyth 2004, section 6.2); ν₀ is no more than all of them have.
    """
    from scipy.optimize import brentq
    from scipy.special import polygamma, psi

    logs = np.log(variances) - psi(freedom / 2) + math.log(freedom / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, freedom / 2))
    most = float(freedom * len(variances))
    prior = most
    if excess > float(polygamma(1, most / 2)):
        prior = math.exp(brentq(lambda log: float(polygamma(1, math.exp(log) / 2)) - excess, -20.0, math.log(most)))
    level = float(logs.mean() + psi(prior / 2) - math.log(prior / 2))
    return math.exp(level / 2), prior


def _tail(t: float, freedom: float) -> float:
    """The probability that Student's variable with so many degrees of freedom exceeds `t`."""
    from scipy.special import stdtr

    return float(stdtr(freedom, -t))
