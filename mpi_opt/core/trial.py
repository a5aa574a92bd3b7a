"""What a search is about, as plain values: proposal, outcome, trial. No MPI, no SQL, no clock.

A *proposal* is what a strategy wants tried. A *trial* is a proposal that was started; it has the proposal's number. An
*outcome* is what a block says of a trial that ended, well or not: a failure is a value here, never an exception. A
`Trial` is the running thing that a user's objective is called with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any, Literal, Protocol

import numpy as np

from mpi_opt.core import cross_validation
from mpi_opt.core.space import Parameters

State = Literal["queued", "running", "complete", "pruned", "failed"]
FINISHED: tuple[State, ...] = ("complete", "pruned", "failed")
UNFINISHED: tuple[State, ...] = ("queued", "running")


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


class Measured(float):
    """A value to tell a strategy together with how well it is known.

    Attributes:
        uncertainty: One standard deviation of the value (of a mean over folds: their standard deviation / √folds).
    """

    uncertainty: float

    def __new__(cls, value: float, uncertainty: float) -> Measured:
        """The value, with its uncertainty."""
        made = super().__new__(cls, value)
        made.uncertainty = float(uncertainty)
        return made


@dataclass(slots=True)
class FoldOutcome:
    """What one fold of a trial gave.

    Attributes:
        fold: 0-based.
        figure_of_merit: In the user's direction; None if the fold failed.
        duration_s: Seconds on the block's own clock.
        history: Metric name -> one value an epoch (``report`` for a user's function that reported).
        figures_of_merit: All by name, if there are several; the first is `figure_of_merit`, too.
    """

    fold: int
    figure_of_merit: float | None
    duration_s: float
    history: dict[str, list[float]] = field(default_factory=dict)
    figures_of_merit: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Outcome:
    """What a block says of a trial that ended.

    Attributes:
        number: The trial.
        state: ``complete``, ``pruned`` or ``failed``.
        figure_of_merit: The aggregate over the folds (see `mpi_opt.core.figures_of_merit`), in the user's direction;
            None if failed.
        uncertainty: Sample standard deviation over the folds (K - 1 degrees of freedom); None with one fold.
        duration_s: Seconds from start to end on the block's own clock.
        folds: One for each fold that ended.
        error: Why it failed: reason, rank, host and traceback as text.
        figures_of_merit: All by name, if there are several; the first is `figure_of_merit`, too.
        uncertainties: Likewise.
    """

    number: int
    state: State
    figure_of_merit: float | None
    uncertainty: float | None
    duration_s: float
    folds: list[FoldOutcome] = field(default_factory=list)
    error: str | None = None
    figures_of_merit: dict[str, float] = field(default_factory=dict)
    uncertainties: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial as the store knows it; times are UTC ISO-8601 text.

    Where a study has several figures of merit, `figures_of_merit` and `uncertainties` have all by name, the first ones
    are `figure_of_merit` and `uncertainty`, too, and `pareto` says whether the trial is on the Pareto front.
    """

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
    budget: float | None = None
    resume_from: int | None = None
    pareto: bool | None = None
    figures_of_merit: dict[str, float] = field(default_factory=dict)
    uncertainties: dict[str, float] = field(default_factory=dict)


def is_usable(value: object) -> bool:
    """Whether `value` can be a figure of merit: a finite real number, also one of numpy's."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


class Reporter(Protocol):
    """Where a running trial's intermediate values go, and whence the word to stop comes."""

    def report(self, number: int, fold: int, step: int, value: float) -> None:
        """Passes an intermediate value on; does not wait."""

    def is_stopped(self, number: int) -> bool:
        """Whether the trial was told to stop."""

    def abandon(self, block: int, number: int, error: str) -> None:
        """Says that a rank of the trial has failed, where it cannot free the others that may wait for it."""


class Trial:
    """What an objective is called with: one trial, or one fold of it. The same on every rank of its communicator.

    Attributes:
        parameters: The active hyperparameters.
        comm: This trial's mpi4py communicator; this fold's, when there are several.
        proposal: What the strategy wants tried.
        study: The study's key, which no other study has, also none of the same name in another store.
        fold: 0-based index of this fold.
        folds: How many folds the trial has.
    """

    def __init__(
        self,
        proposal: Proposal,
        *,
        comm: Any,
        study_seed: int,
        fold: int = 0,
        folds: int = 1,
        reporter: Reporter | None = None,
        study: str = "",
    ) -> None:
        self.proposal, self.study = proposal, study
        self.parameters = dict(proposal.parameters)
        self.comm, self.fold, self.folds = comm, fold, folds
        self.was_stopped = False
        self.reported: list[float] = []
        self._study_seed, self._reporter = study_seed, reporter

    @property
    def number(self) -> int:
        """0-based number in the study."""
        return self.proposal.number

    @property
    def budget(self) -> float | None:
        """Epochs that the strategy grants, or None."""
        return self.proposal.budget

    @property
    def resume_from(self) -> int | None:
        """The trial whose checkpoint to resume from, or None."""
        return self.proposal.resume_from

    @cached_property
    def seed(self) -> int:
        """Differs from trial to trial; a function of the study's seed and the number alone."""
        return trial_seed(self._study_seed, self.number)

    def __repr__(self) -> str:
        return f"Trial(number={self.number}, fold={self.fold}, parameters={self.parameters})"

    def split(self, n_samples: int, labels: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The (training, validation) indices of this fold, the same for every trial.

        See `mpi_opt.core.cross_validation.split`.
        """
        return cross_validation.split(n_samples, self.fold, self.folds, self._study_seed, labels)

    def report(self, step: int, value: float) -> None:
        """Tells the strategy an intermediate value, in the user's direction. Any rank may call it; rank 0's counts."""
        if self.comm.rank != 0:
            return
        self.reported.append(float(value))
        if self._reporter is not None:
            self._reporter.report(self.number, self.fold, int(step), float(value))

    def should_stop(self) -> bool:
        """Whether the strategy prunes this trial. Collective over `comm`; once True it stays True."""
        stopped = self.was_stopped
        if self.comm.rank == 0 and not stopped and self._reporter is not None:
            stopped = self._reporter.is_stopped(self.number)
        self.was_stopped = self.comm.bcast(stopped, root=0) if self.comm.size > 1 else stopped
        return self.was_stopped


def trial_seed(study_seed: int, number: int) -> int:
    """A seed in [0, 2³¹) that depends on the study's seed and the trial's number alone."""
    return int(np.random.SeedSequence([study_seed, number]).generate_state(1)[0] >> 1)
