"""The end of a search with ``search.confirm``: its best points and the default configuration run again with new seeds.

The figure of merit of the best of many trials is too good, because it was selected. New runs of the same point are not.
The runs are the trials of a study of their own, ``STUDY.confirmN`` after N trials: its trials are recorded, resumed and
shown as those of any study, and the trials of the search remain what they are.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpi_opt.configuration.plan import Plan
from mpi_opt.core.figures import Measured
from mpi_opt.core.search_space.space import Parameters
from mpi_opt.core.trial import TrialRecord
from mpi_opt.store import Store
from mpi_opt.store.records import StudyRecord
from mpi_opt.strategies.make_strategy import CONFIRMATION
from mpi_opt.strategies.points.constraint import constraints_of
from mpi_opt.study.reading import is_finished
from mpi_opt.study.recommendation import costs, longest

N_BEST = 3
"""The number of best points that run again."""


@dataclass(frozen=True)
class ConfirmedPoint:
    """A point that has run again.

    Attributes:
        parameters: The point.
        trial: The trial of the search with this point; None for a default configuration that the search has not tried.
        is_default: Whether the point is the default configuration.
        figures: The figures of merit of the new runs.
    """

    parameters: Parameters
    trial: TrialRecord | None
    is_default: bool
    figures: tuple[float, ...]

    @property
    def mean(self) -> Measured:
        """The mean of the new runs, and their standard deviation as its uncertainty; None of one run."""
        spread = statistics.stdev(self.figures) if len(self.figures) > 1 else None
        return Measured(statistics.fmean(self.figures), spread)


@dataclass(frozen=True)
class Confirmation:
    """The new runs of the best points of a search.

    Attributes:
        study: The name of the study that has them.
        points: The points, those of the search first, from the best to the worst expected value.
        probability: The probability that the first of them has a better expected value than the default configuration;
            None if it is the default configuration, or with too few runs.
    """

    study: str
    points: tuple[ConfirmedPoint, ...]
    probability: float | None

    @property
    def winner(self) -> ConfirmedPoint:
        """The point of the search with the best expected value, by the search and the new runs."""
        return self.points[0]


def name_of_confirmation(study: StudyRecord) -> str:
    """The name of the study that confirms `study` as it is now."""
    return f"{study.name}.confirm{study.n_ended}"


def is_confirmed(store: Store, study: StudyRecord) -> bool:
    """Whether a study needs no new runs of its best points, or has them all."""
    if study.configuration.get("search", {}).get("confirm") is None or study.best is None:
        return True
    found = store.study(name_of_confirmation(study))
    return found is not None and has_ended(store, found)


def has_ended(store: Store, again: StudyRecord) -> bool:
    """Whether all new runs have ended, of the study `again` that has them.

    If all of them have failed, the study is not finished, but more runs are not wanted.
    """
    return is_finished(store, again) or again.n_ended >= again.configuration["search"]["trials"]


def confirmation_plan(plan: Plan, study: StudyRecord, trials: Sequence[TrialRecord], store: Store) -> Plan:
    """The plan of the study that confirms a finished one, which has a complete trial.

    A default configuration that violates the constraints does not run: the option ``default`` is empty.
    """
    name, search = name_of_confirmation(study), plan.configuration.search
    if (begun := store.study(name)) is not None:
        options = begun.configuration["search"]["options"]
    else:
        points = [one.parameters for one in best_points(study, trials)]
        default = plan.space.default()
        constraints = constraints_of(search.strategy, search.options, plan.space)
        if not all(constraint.is_met(default) for constraint in constraints):
            default = {}
        elif default not in points:
            points.append(default)
        first = 1 + max(one.number for one in trials)
        of_points = {"points": points, "default": default, "times": search.confirm}
        options = of_points | {"first": first, "confirms": study.name}
        if (budget := longest(study, trials)[0].budget) is not None:  # halving sets the length of each trial
            options["budget"] = budget
    n_trials = len(options["points"]) * options["times"]
    changed = {"pruning": "none", "strategy": CONFIRMATION, "options": options, "trials": n_trials}
    without = dict.fromkeys(("confirm", "target", "transfer", "keep"))
    folds = plan.configuration.folds.model_copy(update={"stop_early": False})
    configuration = plan.configuration.model_copy(
        update={"study": name, "search": search.model_copy(update=changed | without), "folds": folds}
    )
    return replace(plan, configuration=configuration)


def best_points(study: StudyRecord, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The best trials with different points: by their expected values if there is noise, else by their figures."""
    from mpi_opt.strategies.surrogates.fitting import ExpectedValues

    complete = longest(study, trials)
    values = costs(study, complete)
    expected = ExpectedValues(study.space, [one.parameters for one in complete], values)
    means = expected.means.tolist() if expected.are_noisy else values
    chosen: list[TrialRecord] = []
    for index in sorted(range(len(complete)), key=lambda index: (means[index], values[index], index)):
        if len(chosen) < N_BEST and complete[index].parameters not in [one.parameters for one in chosen]:
            chosen.append(complete[index])
    return chosen


def read_confirmation(store: Store, study: StudyRecord, trials: Sequence[TrialRecord]) -> Confirmation | None:
    """The new runs of the best points of a study in its store; None if there are none."""
    if study.configuration.get("search", {}).get("confirm") is None:
        return None
    found = store.study(name_of_confirmation(study))
    return None if found is None else confirmation(study, trials, found, store.trials(found.id, ("complete",)))


def confirmation(
    study: StudyRecord, trials: Sequence[TrialRecord], again: StudyRecord, runs: Sequence[TrialRecord]
) -> Confirmation | None:
    """What the complete trials `runs` of the study `again` say about the best points of `study`; None without runs."""
    from mpi_opt.strategies.surrogates.fitting import ExpectedValues

    complete, runs = longest(study, trials), longest(again, runs)
    options = again.configuration["search"]["options"]
    listed: list[Parameters] = options["points"]
    values = costs(study, complete) + costs(again, runs)
    expected = ExpectedValues(study.space, [one.parameters for one in (*complete, *runs)], values)
    found: list[tuple[float, int, ConfirmedPoint]] = []
    for point in listed:
        trial = min(
            (one for one in complete if one.parameters == point),
            key=lambda one: study.figures_of_merit.sign * (one.figure_of_merit or 0.0),
            default=None,
        )
        indices = [len(complete) + index for index, run in enumerate(runs) if run.parameters == point]
        if indices:
            figures = tuple(study.figures_of_merit.sign * float(values[index]) for index in indices)
            cost = expected.means[indices[0]] if expected.are_noisy else statistics.fmean(values[i] for i in indices)
            found.append((float(cost), indices[0], ConfirmedPoint(point, trial, point == options["default"], figures)))
    if not found:
        return None
    # the default configuration may be no trial of the search: it is compared, but cannot win
    ranked = sorted(found, key=lambda each: (each[2].trial is None, each[0], each[1]))
    points = tuple(point for _, _, point in ranked)
    return Confirmation(again.name, points, _probability(points, study.figures_of_merit.sign))


def _probability(points: Sequence[ConfirmedPoint], sign: float) -> float | None:
    """The probability of `Confirmation`, from the new runs alone.

    The winner was selected, partly by its new runs. Its mean is therefore shrunk towards that of all points of the
    search, as far as the means do not differ by more than their noise explains (empirical Bayes: Efron and Morris, J.
    Am. Stat. Assoc. 70, 1975). The difference has Student's distribution, with the variance pooled over all points.
    """
    default = next((point for point in points if point.is_default), None)
    winner, n_runs = points[0], sum(len(point.figures) for point in points)
    if default is None or default is winner or n_runs == len(points):
        return None
    degrees = n_runs - len(points)
    variance = sum(statistics.variance(one.figures) * (len(one.figures) - 1) for one in points if one.figures[1:])
    variance /= degrees
    of_search = [sign * float(point.mean) for point in points if not point.is_default]
    centre, of_mean = statistics.fmean(of_search), variance / len(winner.figures)
    spread = statistics.variance(of_search) - of_mean if len(of_search) > 1 else math.inf
    # the part of the differences between the means that is not noise; without it, the luckiest of equal points wins
    kept = spread / (spread + of_mean) if 0 < spread < math.inf and of_mean > 0 else float(spread > 0 or of_mean == 0)
    mean = centre + kept * (sign * float(winner.mean) - centre)
    total = of_mean * (kept + (1.0 - kept) / len(of_search)) + variance / len(default.figures)
    difference = sign * float(default.mean) - mean
    if total == 0:
        return 0.5 + 0.5 * ((difference > 0) - (difference < 0))
    from scipy.special import stdtr

    return float(stdtr(degrees, difference / math.sqrt(total)))
