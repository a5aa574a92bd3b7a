"""The trials of a study from best to worst, and the recommended one if figures of merit are noisy.

The figure of merit of a training depends on its seed. Of many trials, the one with the best figure of merit has mostly
had luck: the expected value of its point is worse, and another point is often better. A model of all trials (see
`mpi_opt.strategies.surrogates.fitting`) estimates the expected value of each point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from mpi_opt.core.figures import Measured
from mpi_opt.core.figures_of_merit import IN_STAGES, FiguresOfMerit, rank_of_length
from mpi_opt.core.folds.fold_splits import number_of_folds
from mpi_opt.core.limits import MIN_VALUES_WITH_NOISE
from mpi_opt.core.trial import State, TrialRecord, is_usable
from mpi_opt.store.records import StudyRecord

STATES: tuple[State, ...] = ("complete", "pruned", "failed", "running", "queued")


def ranked(
    trials: Sequence[TrialRecord], figures: FiguresOfMerit, states: tuple[str, ...] = STATES
) -> list[TrialRecord]:
    """The trials in one of `states`, sorted by state in this order, then from best to worst.

    Several figures of merit are compared by nondominated sorting: first the trials of the Pareto front, then those that
    only these dominate, and so on; within such a front by the first figure.
    """
    chosen = [trial for trial in trials if trial.state in states]
    costs = {t.number: figures.costs(t.figures_of_merit) for t in chosen if t.figures_of_merit}
    front = _fronts(chosen, costs) if figures.are_several else {}

    def key(trial: TrialRecord) -> tuple[int, int, bool, tuple[float, ...], int]:
        own = costs.get(trial.number, ())
        return states.index(trial.state), front.get(trial.number, len(chosen)), not own, own, trial.number

    return sorted(chosen, key=key)


class SortedTrials:
    """The trials of a study in each order in which they were asked for; a report asks for the same a dozen times.

    Attributes:
        trials: The trials.
    """

    def __init__(self, study: StudyRecord, trials: list[TrialRecord]) -> None:
        self._study, self.trials = study, trials
        self._ranked: dict[tuple[tuple[str, ...], bool], list[TrialRecord]] = {}

    @cached_property
    def recommendation(self) -> Recommendation | None:
        """As the function `recommendation`."""
        return recommendation(self._study, self.trials)

    def ranked(self, states: tuple[str, ...], *, finite: bool) -> list[TrialRecord]:
        """As the function `ranked`, in a new list; with `finite` only trials whose first figure of merit is finite."""
        if (states, finite) not in self._ranked:
            if finite:
                found = [one for one in self.ranked(states, finite=False) if is_usable(one.figure_of_merit)]
            else:
                found = ranked(self.trials, self._study.figures_of_merit, states)
            self._ranked[states, finite] = found
        return list(self._ranked[states, finite])


def _fronts(trials: Sequence[TrialRecord], costs: dict[int, tuple[float, ...]]) -> dict[int, int]:
    """Trial number -> its front among the trials of its state, 0 for the Pareto front; only of trials with costs."""
    import numpy as np

    from mpi_opt.core.figures_of_merit import ranks

    found: dict[int, int] = {}
    for state in {trial.state for trial in trials}:
        known = {t.number: costs[t.number] for t in trials if t.state == state and t.number in costs}
        if known:
            found |= dict(zip(known, ranks(np.array(list(known.values()))).tolist(), strict=True))
    return found


@dataclass(frozen=True)
class Recommendation:
    """The recommended trial of a study whose figures of merit are noisy.

    Attributes:
        trial: The complete trial with the best expected value.
        expected: Its expected value, the posterior mean, with the standard deviation as its uncertainty.
        luckiest: The complete trial with the best figure of merit; it may be the same.
    """

    trial: TrialRecord
    expected: Measured
    luckiest: TrialRecord

    def __str__(self) -> str:
        """A sentence for users."""
        expected = f"{self.expected:.6g} ± {self.expected.uncertainty:.2g}"
        text = f"the figures of merit are noisy: a repetition of trial {self.trial.number} would give about {expected}"
        if self.luckiest.number == self.trial.number:
            return text
        lucky = f"trial {self.luckiest.number} with the best figure of merit, {self.luckiest.figure_of_merit:.6g},"
        return f"{text}; {lucky} was probably lucky"


def recommendation(study: StudyRecord, trials: Sequence[TrialRecord]) -> Recommendation | None:
    """The recommended one of `trials`, all trials of a study.

    Returns:
        None if the figures of merit are not noisy, or too few to know, or if there are several for each trial.
    """
    if study.figures_of_merit.are_several or study.strategy in IN_STAGES:
        return None
    complete = longest(study, trials)
    if len(complete) < MIN_VALUES_WITH_NOISE:
        return None
    from mpi_opt.strategies.surrogates.fitting import ExpectedValues  # imports SciPy

    sign = study.figures_of_merit.sign
    expected = ExpectedValues(study.space, [one.parameters for one in complete], costs(study, complete))
    if not expected.are_noisy:
        return None
    best = int(expected.means.argmin())
    luckiest = min(complete, key=lambda one: (sign * (one.figure_of_merit or 0.0), one.number))
    return Recommendation(complete[best], Measured(sign * expected.means[best], expected.stds[best]), luckiest)


def longest(study: StudyRecord, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The complete ones of `trials` that were trained for the most epochs."""
    complete = [one for one in trials if one.state == "complete" and one.figure_of_merit is not None]
    length = min((rank_of_length(one.budget, study.strategy) for one in complete), default=0.0)
    return [one for one in complete if rank_of_length(one.budget, study.strategy) == length]


def costs(study: StudyRecord, complete: Sequence[TrialRecord]) -> list[float]:
    """The costs of complete trials of a study with one figure of merit."""
    n_folds = number_of_folds(study.configuration)
    found = [study.figures_of_merit.measured_cost(one, n_folds) for one in complete]
    return [cost for cost in found if isinstance(cost, float)]
