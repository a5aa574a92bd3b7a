"""Proposals, trials and their outcomes as plain values. No MPI or SQL.

A *proposal* is a point that a strategy wants to evaluate. A *trial* is a proposal that was started, with the same
number. An *outcome* is the result of a trial that ended, or of one of its folds; a failure is a value, not an
exception. A `Trial` is the argument of a user's objective.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from numbers import Real
from operator import attrgetter
from typing import Any, Literal, Protocol

import numpy as np

from mpi_opt.core.arrays import Ints
from mpi_opt.core.figures import Figures, real_number
from mpi_opt.core.folds import fold_splits
from mpi_opt.core.search_space.space import Parameters

State = Literal["queued", "running", "complete", "pruned", "failed"]
FINISHED: tuple[State, ...] = ("complete", "pruned", "failed")
UNFINISHED: tuple[State, ...] = ("queued", "running")

TRIALS_PER_STUDY = 10**9
"""The numbers of trials are smaller. The store computes the keys of trials with it."""

MAX_STEP = 2**31 - 1
"""The largest step of `Trial.report`. The store has columns of 32 bits for epochs."""

REPORTED = "report"
"""The name of the metric that `Trial.report` records."""


@dataclass(frozen=True, slots=True)  # rank 0 keeps those of all trials
class Proposal:
    """A point that a strategy wants to evaluate.

    Attributes:
        number: 0-based consecutive number, which the trial shares.
        parameters: The active hyperparameters.
        budget: Number of epochs at which the training ends; None for the number in the configuration.
        resume_from: Number of the trial from whose checkpoint the training resumes; None for a new training.
    """

    number: int
    parameters: Parameters
    budget: float | None = None
    resume_from: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The outcome of a trial without a figure of merit.

    Attributes:
        reason: Why the trial failed, in one line. The store has the whole error.
    """

    reason: str


@dataclass(slots=True)
class Outcome:
    """The result of a trial that ended, or of one of its folds.

    Attributes:
        number: The number of the trial.
        state: ``complete``, ``pruned`` or ``failed``; or ``queued`` if the trial has left its block after an epoch, to
            continue on another number of ranks.
        figures_of_merit: In the user's direction; empty if failed. Those of a trial aggregate its folds (see
            `mpi_opt.core.figures`). Their uncertainties are the sample standard deviations over the
            folds (K - 1 degrees of freedom), unknown with one fold.
        duration_s: Seconds on the block's own clock.
        folds: Of a trial: the outcomes of the folds that have figures of merit.
        error: Reason, rank, host and traceback of a failure as text.
        host_fault: The kind of fault of a host that has caused a failure, such as a full disk; empty if there is none.
        is_consequence: Whether the failure is only the consequence of another rank's failure.
        fold: Of a fold: its 0-based index.
        history: Of a fold: metric name -> one value per epoch.
        reported: Of a fold: step -> value that a user's function reported.
    """

    number: int
    state: State
    figures_of_merit: Figures = field(default_factory=Figures)
    duration_s: float = 0.0
    folds: list[Outcome] = field(default_factory=list)
    error: str | None = None
    host_fault: str = ""
    is_consequence: bool = False
    fold: int = 0
    history: dict[str, list[float]] = field(default_factory=dict)
    reported: dict[int, float] = field(default_factory=dict)

    @property
    def figure_of_merit(self) -> float | None:
        """The first figure of merit; None if failed."""
        return self.figures_of_merit.main

    def curves(self) -> Iterator[tuple[str, Iterable[tuple[int, float]]]]:
        """The name of each metric, and its epochs with their values; ``report`` for the values that were reported."""
        for name, values in self.history.items():
            yield name, enumerate(values)
        if self.reported:
            yield REPORTED, self.reported.items()

    def __reduce__(self) -> tuple[Any, ...]:
        # the default pickles the names of all attributes, which takes rank 0 17 µs for each outcome instead of 11 µs
        return Outcome, VALUES_OF_OUTCOME(self)


VALUES_OF_OUTCOME = attrgetter(*(field.name for field in fields(Outcome)))
"""The values of all attributes of an outcome, in order."""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial in the store. Times are UTC ISO-8601 text. `ended` is its position in the order of ending, 0-based.

    `figures_of_merit` is a mapping from their names. In a study with several, `figure_of_merit` and `uncertainty` are
    those of the first one, and `pareto` is whether the trial is on the Pareto front. `code` is the number of the code
    that its latest attempt ran with, see ``Study.codes``.
    """

    number: int
    state: State
    parameters: Parameters
    figures_of_merit: Figures = field(default_factory=Figures)
    started_at: str | None = None
    finished_at: str | None = None
    duration_s: float | None = None
    attempts: int = 0
    error: str | None = None
    budget: float | None = None
    resume_from: int | None = None
    ended: int | None = None
    note: str | None = None
    pareto: bool | None = None
    code: int | None = None

    @property
    def figure_of_merit(self) -> float | None:
        """The first figure of merit; None without a result."""
        for figure in self.figures_of_merit.values():  # faster than `main`; a report asks for it a million times
            return float(figure)
        return None

    @property
    def uncertainty(self) -> float | None:
        """The uncertainty of the first figure of merit; None if it is unknown."""
        main = self.figures_of_merit.main
        return None if main is None else main.uncertainty

    @property
    def uncertainties(self) -> dict[str, float]:
        """The known uncertainties of the figures of merit, by name."""
        return self.figures_of_merit.uncertainties

    @property
    def proposal(self) -> Proposal:
        """The proposal of the strategy."""
        return Proposal(self.number, self.parameters, self.budget, self.resume_from)

    @property
    def outcome(self) -> Outcome:
        """The outcome of a trial that has ended, without its folds."""
        return Outcome(self.number, self.state, self.figures_of_merit, self.duration_s or 0.0, error=self.error)


def is_usable(value: object) -> bool:
    """Whether `value` can be a figure of merit: a finite real number, including those of NumPy."""
    if type(value) is float:  # the usual case; a report asks for each trial many times
        return math.isfinite(value)
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond the largest float
        return False


class Reporter(Protocol):
    """Receives the intermediate values of running trials and knows which trials must stop."""

    def report(self, number: int, fold: int, step: int, value: float) -> None:
        """Sends an intermediate value without waiting."""

    def progress(self, number: int, done: float, total: float, most_ranks: int, elapsed_s: float) -> None:
        """Sends how much of the trial is done, without waiting."""

    def is_stopped(self, number: int) -> bool:
        """Whether the trial must stop."""

    def must_leave(self, number: int) -> bool:
        """Whether the trial must leave its block, to continue on another number of ranks."""

    def abandon(self, block: int, number: int, error: str) -> None:
        """Reports that one rank of the trial has failed, while other ranks may still wait for its messages."""


class TrialLeft(BaseException):
    """Raised by `Trial.resize` through the user's function, which is called again on other ranks.

    Attributes:
        done: The work that is done.
        state: From what the function continues.
        reported: Step -> value that the function has reported; the same on all ranks.
    """

    def __init__(self, done: float, state: Any, reported: dict[int, float]) -> None:
        super().__init__("the trial continues on another number of ranks")
        self.done, self.state, self.reported = done, state, reported


class Trial:
    """The argument of an objective: one trial, or one fold of it. The same on every rank of its communicator.

    Attributes:
        parameters: The active hyperparameters.
        comm: The mpi4py communicator of this trial, or of this fold if there are several.
        proposal: The proposal of the strategy.
        study: A key of the study that is unique, also among studies with the same name in other stores.
        attempt: The number of the attempt to run the trial, from 1.
        fold: 0-based index of this fold.
        folds: Number of folds of the trial.
        was_stopped: Whether `should_stop` has been True.
        is_elastic: Whether `resize` has an effect.
        state: The `state` of the call of `resize` after which the trial continues, the same on all ranks; None if it
            begins.
        has_left: Whether the trial has ended after an epoch, to continue on another number of ranks.
        is_parallel: Whether its folds run at the same time, on ranks of their own.
        speaks: Whether this fold tells the search how much of the trial is done.
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
        attempt: int = 1,
        is_parallel: bool = False,
        began_s: float | None = None,
    ) -> None:
        self.proposal, self.study, self.attempt = proposal, study, attempt
        self.is_parallel, self.speaks = is_parallel, True
        self.parameters = dict(proposal.parameters)
        self.comm, self.fold, self.folds = comm, fold, folds
        self.was_stopped = self.has_left = self.is_elastic = False
        self.state: Any = None
        self._began_s = time.perf_counter() if began_s is None else began_s
        self.reported: dict[int, float] = {}
        self._study_seed, self._reporter = study_seed, reporter

    @property
    def number(self) -> int:
        """0-based number in the study."""
        return self.proposal.number

    @property
    def budget(self) -> float | None:
        """Number of epochs at which the training ends; None if the strategy sets no limit.

        It includes the epochs of the trial from which this one resumes.
        """
        return self.proposal.budget

    @property
    def resume_from(self) -> int | None:
        """Number of the trial from whose checkpoint this one resumes; None for a new training."""
        return self.proposal.resume_from

    @cached_property
    def seed(self) -> int:
        """A seed for this trial, a function of the study's seed and the trial's number."""
        return trial_seed(self._study_seed, self.number)

    def __repr__(self) -> str:
        return f"Trial(number={self.number}, fold={self.fold}, parameters={self.parameters})"

    def split(self, n_samples: int, labels: np.ndarray | None = None) -> tuple[Ints, Ints]:
        """The training and the validation samples of this fold, the same for every trial.

        Args:
            n_samples: Number of samples.
            labels: Shape (n_samples,) of classes or (n_samples, n_classes) one-hot, for stratified folds.

        Returns:
            Indices of training samples and of validation samples, int64, both sorted.
        """
        return fold_splits.split(n_samples, self.fold, self.folds, self._study_seed, labels)

    def report(self, step: int, value: float) -> None:
        """Reports an intermediate value in the user's direction. Any rank may call it; the value of rank 0 is used.

        Args:
            step: A whole number of 0 or more, for example the epoch, counted from 0. Of several values with the same
                step, the first one counts.
            value: A real number; NaN or infinite if there is none.

        Raises:
            TypeError: `step` is not a whole number, or `value` is not a real number.
            ValueError: `step` is negative or more than `MAX_STEP`.
        """
        if self.comm.rank != 0:
            return
        step = _step(step)
        try:
            value = real_number(value)
        except TypeError as error:
            raise TypeError(f"trial.report(step, value): for the value, {error}") from None
        self.reported.setdefault(step, value)
        if self._reporter is not None:
            self._reporter.report(self.number, self.fold, step, value)

    def should_stop(self) -> bool:
        """Whether the strategy prunes this trial; once True it remains True. Collective over `comm`."""
        stopped = self.was_stopped
        if self.comm.rank == 0 and not stopped and self._reporter is not None:
            stopped = self._reporter.is_stopped(self.number)
        self.was_stopped = self.comm.bcast(stopped, root=0) if self.comm.size > 1 else stopped
        return self.was_stopped

    def resize(self, done: float, total: float, state: Callable[[], Any], most_ranks: int = MAX_STEP) -> None:
        """Allows the search to change the number of ranks here, with ``blocks: {elastic: true}``. Collective.

        If the number changes, this call does not return. The function is called again on the new ranks, with the value
        of `state` as the attribute `state`. To be called at regular intervals, such as after each epoch. The result
        must not depend on the number of ranks.

        Args:
            done, total: The work that is done and the whole work, such as numbers of epochs.
            state: Returns from what the function continues, the same on all ranks; called only if the number changes.
            most_ranks: The largest number of ranks that the trial can use.

        Raises:
            TypeError, ValueError: `done`, `total` or `most_ranks` is not a finite number.
        """
        if not self.is_elastic:
            return
        done, total, most_ranks = _amount("done", done), _amount("total", total), int(_amount("most_ranks", most_ranks))
        if self.must_leave(done, total, most_ranks):
            raise TrialLeft(done, state(), self.comm.bcast(self.reported, root=0))

    def must_leave(self, done: float, total: float, most_ranks: int) -> bool:
        """Whether the trial must end now, to continue on another number of ranks. Collective over `comm`.

        The arguments are those of `resize`.
        """
        must_leave = False
        if self.comm.rank == 0 and self._reporter is not None:
            if self.speaks:
                done = done if self.is_parallel else (self.fold * total + done) / self.folds  # epochs of all folds
                elapsed_s = time.perf_counter() - self._began_s
                self._reporter.progress(self.number, done, total, most_ranks, elapsed_s)
            must_leave = self._reporter.must_leave(self.number)
        return bool(self.comm.bcast(must_leave, root=0))


def _amount(name: str, value: object) -> float:
    """An argument of `Trial.resize` as a float."""
    try:
        number = real_number(value)
    except TypeError as error:
        raise TypeError(f"trial.resize(done, total, state): for {name}, {error}") from None
    if not math.isfinite(number):
        raise ValueError(f"trial.resize(done, total, state): {name} must be a finite number, not {value!r}")
    return number


def _step(step: object) -> int:
    """The argument `step` of `Trial.report` as an int."""
    try:
        number = real_number(step)
    except TypeError:
        number = math.nan
    if not number.is_integer():  # also False for NaN
        raise TypeError(
            f"trial.report(step, value): the step must be a whole number of 0 or more, not {step!r}; "
            "the first argument is the step, the second one the value"
        )
    if not 0 <= number <= MAX_STEP:
        raise ValueError(f"trial.report(step, value): the step must be between 0 and {MAX_STEP:,}, not {step!r}")
    return int(number)


def trial_seed(study_seed: int, number: int) -> int:
    """A seed in [0, 2³¹), a function of the study's seed and the trial's number."""
    return int(np.random.SeedSequence([study_seed, number]).generate_state(1)[0] >> 1)
