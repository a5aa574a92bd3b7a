"""Sorts the trials of a study from best to worst."""

from __future__ import annotations

from collections.abc import Sequence

from mpi_opt.core.merit.figures_of_merit import FiguresOfMerit
from mpi_opt.core.trial import State, TrialRecord

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


def _fronts(trials: Sequence[TrialRecord], costs: dict[int, tuple[float, ...]]) -> dict[int, int]:
    """Trial number -> its front among the trials of its state, 0 for the Pareto front; only of trials with costs."""
    import numpy as np

    from mpi_opt.core.merit.pareto import ranks

    found: dict[int, int] = {}
    for state in {trial.state for trial in trials}:
        known = {t.number: costs[t.number] for t in trials if t.state == state and t.number in costs}
        if known:
            found |= dict(zip(known, ranks(np.array(list(known.values()))).tolist(), strict=True))
    return found
