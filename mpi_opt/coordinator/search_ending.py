"""When a search ends: all trials have ended, the target is reached, or a request, a limit or a loss stops it."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from mpi_opt.coordinator.blocks.block_pool import BlockPool
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.coordinator.study_state import StudyState
from mpi_opt.coordinator.trials.trial_queue import TrialQueue
from mpi_opt.core.attempt import Attempt
from mpi_opt.errors import RanksLost, SearchFailed
from mpi_opt.store.errors import StoreNotReadyError
from mpi_opt.store.events import SEARCH_FINISHED, SEARCH_STOPPED, STUDY_FINISHED
from mpi_opt.study.reading import PastTrials

STOPPING_S = 3.0
"""Time that running trials have to end after a request to stop the search or at its time limit, in seconds."""


@dataclass(frozen=True)
class SearchEnd:
    """Why a search starts no more trials.

    Attributes:
        kind: No trial is left, a trial has reached the target, or a limit or a request has stopped the search.
        why: The reason, for the user.
    """

    kind: Literal["no trials left", "target", "stopped"]
    why: str


NO_TRIALS_LEFT = SearchEnd("no trials left", "all trials have ended")


class SearchEnding:
    """Decides whether a search starts more trials and whether it is over, and records how it ended.

    Args:
        pool: The blocks.
        queue: The trials.
        state: The study.
        settings: The settings of the search.
    """

    def __init__(self, pool: BlockPool, queue: TrialQueue, state: StudyState, settings: SearchSettings) -> None:
        self.pool, self.queue, self.state, self.settings = pool, queue, state, settings
        self.limits, self.progress, self.stop_condition = settings.limits, settings.progress, settings.stop_condition
        self._end: SearchEnd | None = None
        self._leave_running_at_s = math.inf
        self._has_nothing_to_do = False  # the study was finished before, and still is: nothing is recorded
        self._suspects: list[Attempt] = []  # requeued as trials that may have killed the search

    @property
    def may_start_trials(self) -> bool:
        """Whether more trials may start."""
        return self._end is None

    def resume(self, past: PastTrials) -> bool:
        """Considers the trials of the study in the store; returns whether the search has something to do.

        A study all of whose trials have failed is over, but not finished: `conclude` raises an error.
        """
        self.stop_if_reached(past, "the target was reached before")
        self._has_nothing_to_do = self.settings.was_finished and self.state.n_usable > 0 and self.is_over()
        return not self._has_nothing_to_do

    def stop_if_reached(self, past: PastTrials, why: str) -> None:
        """Stops the search if one of the trials that were read from the store reaches the target."""
        if any(self.limits.reaches_target(record) for record in past.ended):
            self.start_no_more(SearchEnd("target", why))
            self.stop_running()

    def conclude(self) -> None:
        """Records whether the study is finished.

        Raises:
            SearchFailed: All trials have ended, and none has a figure of merit.
        """
        if self._has_nothing_to_do:
            return
        end = self._end or NO_TRIALS_LEFT
        no_trials_left = self.queue.has_begun_all or self.state.is_exhausted or end.kind == "no trials left"
        if end.kind == "target":
            self.state.event(STUDY_FINISHED, end.why)
        # the order matters: trials that were stopped, or that a workload system runs, keep a study unfinished
        elif self.queue.running or not no_trials_left:
            self.state.event(SEARCH_STOPPED, end.why)
        elif self.state.external:
            self.state.event(SEARCH_FINISHED, f"a workload system still runs {len(self.state.external)} of the trials")
        elif self.state.ended and not self.state.n_usable:
            raise SearchFailed(
                f"all {len(self.state.ended)} trials of the study have failed, and they are not run again"
                '\n  → correct the cause, and start a new study: --study NAME, or in Python study="NAME"'
            )
        elif self.queue.has_begun_all:
            self.state.event(STUDY_FINISHED, "all trials have ended")
        else:
            n, n_trials = self.queue.n_begun, self.limits.n_trials
            why = f"the strategy has no more points: {n} of {n_trials} trials have run"
            self.progress.note(why)
            self.state.event(STUDY_FINISHED, why)
        if (n_repeated := self.state.n_repeated) and not self.settings.repeats_points:
            self.progress.note(
                f"{n_repeated} of {len(self.state.ended)} trials have repeated the point of an earlier one"
            )

    def is_over(self) -> bool:
        """Whether no trial runs that this search waits for, and none will start."""
        # outcomes are to be committed first; after a stop, running trials have `STOPPING_S`
        if self.queue.ended or (self.queue.running and self.pool.now_s < self._leave_running_at_s):
            return False
        return self._end is not None or self.queue.has_begun_all or self.state.is_exhausted

    def stop_without_ranks(self) -> None:
        """Stops the search if no rank can run a trial any more.

        Raises:
            RanksLost: No rank can run a trial any more.
            SearchFailed: No rank ever could.
        """
        if not self.pool.is_empty or self.is_over():
            return
        why = self.pool.why_empty
        if not self.pool.may_work_later:
            raise SearchFailed(why)
        self.state.event(SEARCH_STOPPED, why)
        raise RanksLost(f"{why}; the same command continues the study")

    def is_interrupted(self) -> bool:
        """Whether something other than a message needs an answer at once."""
        return self._must_stop() or self._must_clear_suspects()

    def _must_stop(self) -> bool:
        """Whether the search must end and has not been stopped yet."""
        return self._leave_running_at_s == math.inf and self.stop_condition.is_due()

    def stop_if_due(self) -> None:
        """Stops the search, once, on request or at its time limit."""
        if self._must_stop() and (why := self.stop_condition.reason):
            self._requeue_running(why)
            self.start_no_more(SearchEnd("stopped", why))
            self.stop_running()
            self._leave_running_at_s = self.pool.now_s + STOPPING_S

    def _requeue_running(self, why: str) -> None:
        """Requeues the running trials in the store.

        This is done first, before it is known whether a batch system cancels the job: after a signal, ``mpirun`` may
        kill this process within 0.25 s. See `clear_suspects`.
        """
        is_suspect = not self.pool.link.is_protected and self.stop_condition.may_be_death_of_a_rank()
        why = f"the search ended: {self._end.why if self._end else why}"
        failed = []
        for running in list(self.queue.running.values()):
            if (error := running.failure(self.pool.now_s, self.limits, why)) is not None:
                self.queue.fail(running, self.pool.now_s, error)
                failed.append(running)
        requeued = list(self.queue.running.values())
        self.state.requeue(requeued, why, "killed" if is_suspect else "lost")
        self._suspects = requeued if is_suspect else []
        for running in failed:  # the ranks of its block may hang and never receive their dismissal
            self.pool.disband(running.block)

    def _must_clear_suspects(self) -> bool:
        """Whether trials are recorded as suspects, although the job is being cancelled."""
        return bool(self._suspects) and self.stop_condition.request.has_copies

    def clear_suspects(self) -> None:
        """Corrects the record of trials that may have killed the search, once it is clear that the job is cancelled."""
        if self._must_clear_suspects():
            with suppress(StoreNotReadyError):  # not worth an error: the next call tries again
                self.state.mark_lost(self._suspects)
                self._suspects = []

    def await_verdict_on_suspects(self) -> None:
        """Waits shortly for the sign that the job is cancelled, if trials are recorded as suspects."""
        if self._suspects:
            self.stop_condition.await_copy()
            self.clear_suspects()

    def start_no_more(self, end: SearchEnd) -> None:
        """Starts no more trials. If a running trial then reaches the target, this becomes the reason."""
        if self._end is None and end.kind != "no trials left":
            self.progress.note(f"no more trials start: {end.why}")
        if self._end is None or end.kind == "target":
            self._end = end

    def stop_running(self) -> None:
        """Asks the running trials to end at the next opportunity."""
        for running in self.queue.running.values():
            self.pool.stop(running, self.settings.n_folds)
