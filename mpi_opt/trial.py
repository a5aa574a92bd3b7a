"""What a search is about, as plain values: proposal, outcome, trial. No MPI, no SQL, no clock.

A *proposal* is what a strategy wants tried. A *trial* is a proposal that was started; it has the proposal's number. An
*outcome* is what a block says of a trial that ended, well or not: a failure is a value here, never an exception.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from mpi_opt.space import Parameters

State = Literal["queued", "running", "complete", "pruned", "failed"]
FINISHED: tuple[State, ...] = ("complete", "pruned", "failed")


@dataclass(frozen=True)
class Proposal:
    """What a strategy wants tried.

    Attributes:
        number: 0-based and dense in the order of asking; the trial gets the same number.
        parameters: The active hyperparameters.
        budget: How much to spend, in epochs of the training (None: what the configuration says).
        resume_from: The number of the trial whose checkpoint to go on from (None: from scratch).
    """

    number: int
    parameters: Parameters
    budget: float | None = None
    resume_from: int | None = None


@dataclass(frozen=True)
class Failed:
    """The outcome of a proposal that gave no figure of merit."""

    reason: str


@dataclass(slots=True)
class FoldOutcome:
    """What one fold of a trial gave.

    Attributes:
        fold: 0-based.
        figure_of_merit: In the user's direction; None if the fold failed.
        duration_s: Seconds on the block's own clock.
        history: Metric name -> one value an epoch (``reports`` for a user's function that reported).
    """

    fold: int
    figure_of_merit: float | None
    duration_s: float
    history: dict[str, list[float]] = field(default_factory=dict)


@dataclass(slots=True)
class Outcome:
    """What a block says of a trial that ended.

    Attributes:
        number: The trial.
        state: ``complete``, ``pruned`` or ``failed``.
        figure_of_merit: Mean over the folds, in the user's direction; None if failed.
        uncertainty: Standard deviation over the folds; None with one fold.
        duration_s: Seconds from start to end on the block's own clock.
        folds: One for each fold that ended.
        error: Why it failed: reason, rank, host and traceback as text.
    """

    number: int
    state: State
    figure_of_merit: float | None
    uncertainty: float | None
    duration_s: float
    folds: list[FoldOutcome] = field(default_factory=list)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial as the store knows it; times are UTC ISO-8601 text."""

    number: int
    state: State
    parameters: Parameters
    figure_of_merit: float | None = None
    uncertainty: float | None = None
    started_at: str | None = None
    finished_at: str | None = None
    duration_s: float | None = None
    attempts: int = 0
    error: str | None = None


def is_usable(value: object) -> bool:
    """Whether `value` can be a figure of merit: a finite real number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
