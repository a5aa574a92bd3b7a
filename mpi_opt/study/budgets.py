"""Trials of one study that were trained for different numbers of epochs, as by `halving`."""

from __future__ import annotations

import math

from mpi_opt.core.counted import plural
from mpi_opt.core.trial import TrialRecord


def epochs(trial: TrialRecord) -> float:
    """The number of epochs after which a training ends; infinite without a budget: all epochs of the configuration."""
    return math.inf if trial.budget is None else trial.budget


def shorter_training_note(best: TrialRecord | None, of_longest: TrialRecord | None) -> str:
    """A sentence if the best trial was trained for fewer epochs than others, so that their figures are not comparable.

    Args:
        best: The best complete trial.
        of_longest: The best of the complete trials with the most epochs.
    """
    if best is None or of_longest is None or epochs(best) >= epochs(of_longest):
        return ""
    most = "all epochs" if of_longest.budget is None else f"{of_longest.budget:g} epochs"
    return (
        f"trial {best.number} was trained for {best.budget:g} {plural('epoch', int(best.budget or 0))} only; "
        f"the best trial with {most} is trial {of_longest.number}: {of_longest.figure_of_merit:.6g}"
    )
