"""The present state of a search, read from its store alone: by another process, possibly on another host."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from mpi_opt.core.trial import State
from mpi_opt.store import Store
from mpi_opt.store.events import SEARCH_RESTARTED
from mpi_opt.store.records import AttemptRecord, EventRecord, LeaseRecord, StudyRecord, time_of
from mpi_opt.study.confirmation import is_confirmed, name_of_confirmation
from mpi_opt.study.opening.lease import GONE_S, OwnerWatch, machine
from mpi_opt.study.reading import is_finished, read_record

N_RECENT = 200
"""The speed of a search is measured over this number of trials that have ended last, or more with many blocks."""

N_WAVES = 5
"""It is measured over at least this number of trials for each that runs at present. Trials that start together also end
together: the time between the first and the last of them is not that between such groups."""

N_EVENTS = 10
"""The number of recent events."""

Activity = Literal["running", "silent", "not running", "finished"]
"""``silent``: the search has not renewed its lease for `GONE_S`, and its process is on another host."""


@dataclass(frozen=True, slots=True)
class BlockStatus:
    """A block of the present search that has run a trial.

    Attributes:
        block: Its index.
        ranks: Its ranks, such as ``1-3``.
        hosts: Their hosts, separated by commas.
        number: The number of the trial that it runs; None if it is idle.
        since: The time at which that trial started; if it is idle, at which the last one ended.
    """

    block: int
    ranks: str
    hosts: str
    number: int | None
    since: str


@dataclass(frozen=True, slots=True)
class NewRuns:
    """The new runs of the best points (``search.confirm``).

    Attributes:
        study: The name of the study whose trials they are.
        n_ended: The number of them that have ended.
        wanted: Their number.
    """

    study: str
    n_ended: int
    wanted: int


@dataclass(frozen=True, slots=True)
class SearchStatus:
    """The status of a study and of the search that runs it. Times are UTC ISO-8601 text.

    While the best points run again, speed, duration, times and blocks are those of these runs.

    Attributes:
        study: The name of the study.
        activity: What its search does.
        wanted: The number of trials that are wanted.
        trials: State -> number of trials.
        figures_of_merit: The names of the figures of merit.
        best: The best value of the first one; None without a complete trial.
        best_number: The number of the best trial.
        trials_per_hour: The speed of the present search over its latest trials; None before one has ended.
        median_duration_s: The median duration of these trials, in seconds.
        last_ended_at: The time at which a trial has ended last.
        expected_end: The time at which the last trial will probably end; None if no search runs.
        host: The host of rank 0 of the search that runs the study, or that ran it and has not ended in order.
        process: The id of its process.
        since: The start of this search.
        sign_of_life: Its last sign of life.
        silent_s: Seconds since then, by the clock of this host.
        hosts: The hosts of the blocks.
        blocks: The blocks of this search; none if its process does not exist any more.
        n_restarts: How often the job of a search of this study was started again.
        events: The latest events, the last one first.
        new_runs: The new runs of the best points; None if there are none yet.
    """

    study: str
    activity: Activity
    wanted: int
    trials: dict[State, int]
    best: float | None
    best_number: int | None
    trials_per_hour: float | None
    median_duration_s: float | None
    last_ended_at: str | None
    expected_end: str | None
    host: str | None
    process: int | None
    since: str | None
    sign_of_life: str | None
    silent_s: float | None
    hosts: list[str]
    blocks: list[BlockStatus]
    n_restarts: int
    events: list[EventRecord]
    figures_of_merit: Sequence[str]
    new_runs: NewRuns | None = None

    @property
    def n_ended(self) -> int:
        """The number of trials that have ended."""
        return sum(n for state, n in self.trials.items() if state not in ("queued", "running"))

    @classmethod
    def read(cls, store: Store, name: str | None) -> SearchStatus:
        """Reads the status of the study `name`; None for the only study of the store.

        Raises:
            StoreError: There is no such study, or the store has several and `name` is None.
        """
        study = read_record(store, name)
        status, search = cls._of_trials(store, study), study.configuration.get("search", {})
        if search.get("confirm") is None or (again := store.study(name_of_confirmation(study))) is None:
            return status
        runs = cls._of_trials(store, again)
        of_runs = NewRuns(again.name, runs.n_ended, runs.wanted)
        if runs.activity not in ("running", "silent"):
            return replace(status, new_runs=of_runs)
        return replace(
            status,
            trials_per_hour=runs.trials_per_hour,
            median_duration_s=runs.median_duration_s,
            last_ended_at=runs.last_ended_at or status.last_ended_at,
            expected_end=runs.expected_end,
            hosts=runs.hosts,
            blocks=runs.blocks,
            new_runs=of_runs,
        )

    @classmethod
    def _of_trials(cls, store: Store, study: StudyRecord) -> SearchStatus:
        """The status of `study` and its own trials."""
        owner, events = store.leases.read(study.id), store.events(study.id)
        silent_s = None if owner is None else max(_seconds_between(owner.renewed_at, time_of(_now_s())), 0.0)
        activity = _activity(store, study, owner, silent_s)
        # the block of a trial is in its attempt: those of running and of recently ended trials show every active block
        running = [trial.number for trial in store.trials(study.id, ("running",))]
        latest = store.latest_ended(study.id, N_RECENT)
        per_hour, blocks = None, []
        if owner is not None and activity in ("running", "silent"):
            numbers = sorted({*running, *(trial.number for trial in latest)})
            blocks = _blocks(store.attempts(study.id, numbers), owner.since)
            count = max(N_RECENT, N_WAVES * len(running))
            per_hour = _trials_per_hour(store.latest_times(study.id, count), count, owner)
        wanted = study.configuration.get("search", {}).get("trials", study.n_trials)
        durations = [trial.duration_s for trial in latest if trial.duration_s is not None]
        is_ending = study.n_ended >= wanted  # at the end of the last trial, or because the best points run again
        return cls(
            study=study.name,
            activity=activity,
            wanted=wanted,
            trials=study.counts,
            best=None if study.best is None else study.best.figure_of_merit,
            best_number=None if study.best is None else study.best.number,
            trials_per_hour=per_hour,
            median_duration_s=statistics.median(durations) if durations else None,
            last_ended_at=latest[0].finished_at if latest else None,
            expected_end=_expected_end(study, wanted, per_hour) if activity == "running" and not is_ending else None,
            host=None if owner is None else owner.host,
            process=None if owner is None else owner.process,
            since=None if owner is None else owner.since,
            sign_of_life=None if owner is None else owner.renewed_at,
            silent_s=silent_s,
            hosts=sorted({host for block in blocks for host in block.hosts.split(",")}),
            blocks=blocks,
            n_restarts=sum(event.kind == SEARCH_RESTARTED for event in events),
            events=events[: -N_EVENTS - 1 : -1],
            figures_of_merit=study.figures_of_merit.names,
        )


def _now_s() -> float:
    return datetime.now(UTC).timestamp()


def _seconds_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def _activity(store: Store, study: StudyRecord, owner: LeaseRecord | None, silent_s: float | None) -> Activity:
    """The state of a search. On its own host its process is looked up."""
    if owner is None or silent_s is None or (owner.machine == machine() and OwnerWatch().is_gone(owner)):
        has_finished = is_finished(store, study) and is_confirmed(store, study)  # may read all trials
        return "finished" if has_finished else "not running"
    return "running" if owner.machine == machine() or silent_s < GONE_S else "silent"


def _trials_per_hour(latest: Sequence[tuple[str, str]], count: int, owner: LeaseRecord) -> float | None:
    """The speed since the first trial of the search began; if the search has ended `count` trials, since the first of
    them ended.

    `latest` are start and end of the latest `count` trials, the last one first, by the clock of rank 0.
    """
    times = [(began, ended) for began, ended in latest if ended > owner.since]
    if not times:
        return None
    n, since = len(times) - 1, times[-1][1]
    if len(times) < count:
        # imports and measurements precede the first trial; a trial that was queued again may have begun before
        n, since = len(times), min((began for began, _ in times if began > owner.since), default=owner.since)
    return 3600.0 * n / max(_seconds_between(since, max(owner.renewed_at, times[0][1])), 1e-3)


def _expected_end(study: StudyRecord, wanted: int, per_hour: float | None) -> str | None:
    if not per_hour:
        return None
    left_s = 3600.0 * (wanted - study.n_ended) / per_hour
    return (datetime.now(UTC) + timedelta(seconds=left_s)).isoformat(timespec="seconds")


def _blocks(attempts: Sequence[AttemptRecord], since: str) -> list[BlockStatus]:
    """The blocks that have run one of `attempts` in the search that began at `since`, by index.

    A block of which another one has a rank since was dissolved.
    """
    latest: dict[int, AttemptRecord] = {}
    block_of: dict[str, int] = {}
    for attempt in sorted(attempts, key=lambda one: one.started_at, reverse=True):
        if attempt.started_at < since:
            break
        owners = [block_of.setdefault(rank, attempt.block) for rank in attempt.ranks.split(",")]
        if all(owner == attempt.block for owner in owners):
            latest.setdefault(attempt.block, attempt)
    return [
        BlockStatus(
            block,
            one.ranks,
            one.hosts,
            one.number if one.outcome is None else None,
            one.started_at if one.finished_at is None else one.finished_at,
        )
        for block, one in sorted(latest.items())
        if not one.is_given_up
    ]
