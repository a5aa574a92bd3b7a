"""The values that the store reads and writes. Times are UTC ISO-8601 text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.core.trial import FINISHED, State, TrialRecord

CHOSEN = "chosen"
"""The key of `StudyRecord.chosen` in the configuration of a study."""

GivenUp = Literal["lost", "killed", "moved"]
"""The outcome of an attempt without a result.

``lost``: its ranks were lost, or it was stopped or given back. ``killed``: its search was, or may have been, killed.
``moved``: the next attempt continues it on another number of ranks.
"""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A running trial whose result `mpi-opt tell` reports as lost: its attempt, and why it must run again."""

    number: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study in the store.

    Attributes:
        id: The key in the store.
        name: The name, unique in the store.
        direction: ``minimize`` or ``maximize``; with several figures of merit the direction of the first.
        strategy: The name of the strategy.
        seed: The seed of the study.
        created_at: The time of creation.
        configuration: The effective YAML.
        space: The search space.
        view: The name of the SQL view.
        counts: State -> number of trials; states without trials are left out.
        best: The best complete trial, or None, as `mpi_opt.study.study.Study.best`.
        figures_of_merit: The figures of merit.
        n_codes: The number of different codes that trials have run with, see `CodeRecord`.
        has_budgets: Whether trials have been trained for different numbers of epochs, which the strategy has chosen.
        commands: The different commands with which users ran trials, the latest last.
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
    figures_of_merit: FiguresOfMerit = field(default_factory=FiguresOfMerit)
    n_codes: int = 0
    has_budgets: bool = False
    commands: tuple[str, ...] = ()

    @property
    def chosen(self) -> dict[str, Any]:
        """Values of the section ``training:`` that a search has chosen by measurement for all trials."""
        found: dict[str, Any] = self.configuration.get(CHOSEN, {})
        return found

    @property
    def training(self) -> dict[str, Any] | None:
        """The section ``training:`` of the trials, with `chosen`; None if they run a function."""
        written: dict[str, Any] | None = self.configuration.get("training")
        return written and written | self.chosen

    @property
    def unique_name(self) -> str:
        """The digits of `created_at`: identifies the study also among studies of the same name in other stores."""
        return "".join(filter(str.isdigit, self.created_at[:26]))

    @property
    def maximize(self) -> bool:
        """Whether larger figures of merit are better."""
        return self.direction == "maximize"

    @property
    def n_trials(self) -> int:
        """The number of trials in any state."""
        return sum(self.counts.values())

    @property
    def n_ended(self) -> int:
        """The number of finished trials."""
        return sum(self.counts.get(state, 0) for state in FINISHED)


@dataclass(frozen=True, slots=True)
class FoldRecord:
    """One fold of a finished trial."""

    number: int
    fold: int
    figure_of_merit: float | None
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class CurveRecord:
    """One metric of one fold of a trial.

    Attributes:
        number: The number of the trial.
        fold: 0-based index of the fold.
        name: The name of the metric; ``report`` for the values of ``trial.report(step, value)``.
        values: One value per epoch or step, NaN for missing values.
        steps: The epoch or step of each value, ascending; empty if they are 0, 1, 2, ….
    """

    number: int
    fold: int
    name: str
    values: list[float]
    steps: list[int] = field(default_factory=list)

    def points(self) -> Iterator[tuple[int, float]]:
        """The epochs or steps and their values."""
        return zip(self.steps or range(len(self.values)), self.values, strict=True)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt to run a trial; `outcome` is a finished `State` or a `GivenUp`, None while the attempt runs."""

    number: int
    attempt: int
    block: int
    ranks: str
    hosts: str
    started_at: str
    finished_at: str | None
    outcome: str | None
    error: str | None
    code: int | None = None

    @property
    def duration_s(self) -> float | None:
        """Seconds from start to end; None while the attempt runs."""
        if self.finished_at is None:
            return None
        return (datetime.fromisoformat(self.finished_at) - datetime.fromisoformat(self.started_at)).total_seconds()

    @property
    def is_given_up(self) -> bool:
        """Whether the attempt ended without a result."""
        return self.outcome in get_args(GivenUp)


@dataclass(frozen=True, slots=True)
class CodeRecord:
    """The code that trials of a study ran with.

    Attributes:
        files: Python file of the user -> SHA-256 of its content. Files in the folder of the study have relative paths.
        packages: Package -> version; also ``Python``.
        data: Place of data, as in the configuration -> ``files``, ``bytes``, ``changed`` (time of the last change) and
            ``digest`` (of the names, sizes and times of its files).
        git_commit: The commit of the folder of the study; None without a repository.
        objective: For a function of Python: its ``name``, ``file`` and ``digest``; None if the configuration names it.
        number: Its number in the study, 1-based.
        since: The time at which the first search used it.
    """

    files: dict[str, str]
    packages: dict[str, str]
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    git_commit: str | None = None
    objective: dict[str, Any] | None = None
    number: int = 0
    since: str = ""

    @property
    def digest(self) -> str:
        """Identifies files, packages, data and the code of the objective. A commit or a moved file changes nothing."""
        objective = None if self.objective is None else (self.objective["name"], self.objective["digest"])
        content = json.dumps([self.files, self.packages, self.data, objective], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event of a search, of the kind ``rank_lost``, ``block_retired``, ``study_resumed``, …."""

    at: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The search that owns a study.

    Attributes:
        token: Identifies the search.
        host: The name of its host.
        machine: Identifies the kernel and the process namespace in which `process` is valid.
        process: The id of the process that writes the store.
        process_began: The start of that process, in clock ticks since the start of the machine; None if unknown.
        since: The time at which the search took the lease.
        renewed_at: The time of the last renewal, by the clock of the search.
    """

    token: str
    host: str
    machine: str
    process: int
    process_began: int | None
    since: str
    renewed_at: str


@dataclass(frozen=True)
class EarlierTrial:
    """A trial of an earlier study, converted for a new one.

    Attributes:
        parameters: The hyperparameters that both studies have; values outside the new range become its nearest limit.
        figure_of_merit: The figure of merit in the direction of the new study.
    """

    parameters: Parameters
    figure_of_merit: float


def now() -> str:
    """The time, UTC, as ISO-8601 text with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def time_of(seconds: float) -> str:
    """A time in seconds since 1970 as `now` writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def readable(time: str) -> str:
    """A time of the store for people: ``2026-01-31 12:00:00``."""
    return time[:19].replace("T", " ")
