"""What goes into the store and what comes out of it, as plain values. Times are UTC ISO-8601 text."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mpi_opt.core.figures_of_merit import Merits
from mpi_opt.core.space import Parameters, Space
from mpi_opt.core.trial import Outcome, State, TrialRecord


@dataclass(frozen=True, slots=True)
class Start:
    """A trial begins on a block.

    Attributes:
        number: The trial.
        parameters: Its active hyperparameters.
        attempt: 1-based.
        block: The block's index.
        ranks: The block's world ranks, e.g. ``"1-4"``.
        hosts: The hosts of these ranks, each once, separated by commas.
        budget: Epochs granted, or None.
        resume_from: The trial whose checkpoint it goes on from, or None.
    """

    number: int
    parameters: Parameters
    attempt: int
    block: int
    ranks: str
    hosts: str
    budget: float | None = None
    resume_from: int | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """A trial ended on a block.

    Attributes:
        outcome: What the block said.
        attempt: 1-based.
        block: The block's index.
    """

    outcome: Outcome
    attempt: int
    block: int


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study as the store knows it.

    Attributes:
        id: In the store.
        name: Unique in the store.
        direction: ``minimize`` or ``maximize``; of several figures of merit that of the first.
        strategy: Its name.
        seed: Of the study.
        created_at: UTC ISO-8601 text.
        configuration: The effective YAML.
        space: The search space.
        view: The name of its SQL view.
        counts: State -> number of trials; states without any are left out.
        best: The best complete trial, if there is one; with several figures of merit that of the front with the best
            first figure.
        merits: The figures of merit.
    """

    id: int
    name: str
    direction: str
    strategy: str
    seed: int
    created_at: str
    configuration: dict[str, Any]
    space: Space
    view: str
    counts: dict[State, int] = field(default_factory=dict)
    best: TrialRecord | None = None
    merits: Merits = field(default_factory=Merits)

    @property
    def key(self) -> str:
        """Tells this study from all others, also from one of the same name in another store: digits of `created_at`."""
        return "".join(filter(str.isdigit, self.created_at[:26]))

    @property
    def maximize(self) -> bool:
        """Whether more is better."""
        return self.direction == "maximize"


@dataclass(frozen=True, slots=True)
class FoldRecord:
    """One fold of a trial that ended."""

    number: int
    fold: int
    figure_of_merit: float | None
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class CurveRecord:
    """One metric of one fold of a trial, epoch by epoch (0-based); NaN where there was none."""

    number: int
    fold: int
    name: str
    values: list[float]


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One run of a trial on a block; `outcome` is ``complete``, ``pruned``, ``failed`` or ``lost``; None: it runs."""

    number: int
    attempt: int
    block: int
    ranks: str
    hosts: str
    started_at: str
    finished_at: str | None
    outcome: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Something that happened to a search, e.g. ``rank_lost``, ``block_retired``, ``study_resumed``."""

    at: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The search that runs a study.

    Attributes:
        token: Of this search alone.
        host: Its host's name.
        machine: Names the kernel and process namespace in which `process` is valid.
        process: The id of the process that writes the store.
        process_began: When that process began, in clock ticks since the machine's start; None if that is not known.
        since: When the search took the study, UTC ISO-8601 text.
        renewed_at: Its last sign of life, by its own clock.
    """

    token: str
    host: str
    machine: str
    process: int
    process_began: int | None
    since: str
    renewed_at: str


@dataclass(frozen=True)
class Earlier:
    """A trial of an earlier study, converted for a new one.

    Attributes:
        parameters: The hyperparameters that both studies have; values outside of the new range are moved to its end.
        figure_of_merit: In the new study's direction.
    """

    parameters: Parameters
    figure_of_merit: float


def now() -> str:
    """The time, UTC, as ISO-8601 text with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
