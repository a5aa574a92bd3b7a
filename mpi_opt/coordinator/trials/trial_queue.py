"""The trials of a study that wait, run or have just ended, and the number of those that have begun."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from mpi_opt.core.attempt import Attempt
from mpi_opt.core.trial import Outcome, Proposal
from mpi_opt.study.reading import PastTrials

STRANDED_S = 10.0
"""Seconds in which a block must answer after a rank of it has failed. Its other ranks may be waiting for that one."""


@dataclass
class TrialQueue:
    """The trials of a study on their way through this search. Only its methods change them; others read them.

    Attributes:
        n_trials: Number of trials of the study.
        code: The number of the code that runs the trials, as in `Attempt`.
        waiting: Trials to run before the strategy is asked for others.
        running: Trial number -> the trial on its block.
        held: Trials that have failed, perhaps because of their hosts. The store has them queued.
        ended: Trials whose outcomes are not committed yet.
        n_begun: Number of trials that run or have ended.
    """

    n_trials: int
    code: int | None = None
    waiting: list[Attempt] = field(default_factory=list)
    running: dict[int, Attempt] = field(default_factory=dict)
    held: list[Attempt] = field(default_factory=list)
    ended: list[Attempt] = field(default_factory=list)
    n_begun: int = 0
    _next_due_s: float = math.inf  # no running trial is overdue before

    @property
    def has_begun_all(self) -> bool:
        """Whether all trials of the study run or have ended."""
        return self.n_begun >= self.n_trials and not (self.waiting or self.held)

    @property
    def n_left(self) -> int:
        """Number of trials for which the strategy has not been asked."""
        return self.n_trials - self.n_begun - len(self.waiting)

    @property
    def continuing(self) -> list[Attempt]:
        """The waiting trials that continue from an epoch that ranks keep."""
        return [one for one in self.waiting if one.holders]

    def running_on(self, block: int) -> Attempt | None:
        """The trial that runs on a block; None if there is none."""
        return next((one for one in self.running.values() if one.block == block), None)

    def overdue(self, now_s: float) -> list[Attempt]:
        """The trials whose blocks should have answered before `now_s`."""
        if now_s <= self._next_due_s:  # the loop asks in every round, and there may be thousands of trials
            return []
        self._next_due_s = min((one.due_s for one in self.running.values()), default=math.inf)
        return [one for one in self.running.values() if one.due_s < now_s]

    def resume(self, past: PastTrials, not_started: Iterable[Attempt] = ()) -> None:
        """Queues the unfinished trials of the study, except those that run on a block or in a workload system.

        Those that this search knows, in `waiting` or as `not_started`, still continue from their last epoch.
        """
        running = past.external | set(self.running)
        known = {(one.number, one.attempt): one for one in (*self.waiting, *not_started)}
        self.waiting = [
            known.get((record.number, record.attempts + 1)) or self._new(record.proposal, record.attempts + 1)
            for record in past.unfinished
            if record.number not in running
        ]
        self.held.clear()  # they are queued in the store
        self.n_begun = len(past.ended) + len(running)

    def take(self, count: int, ask: Callable[[int], list[Proposal]]) -> list[Attempt]:
        """At most `count` trials to start: waiting ones first, then new ones from `ask`. They count as begun."""
        n_left = self.n_left
        first = self._take([one for one in self.waiting if not one.holders][:count])
        wanted = min(count - len(first), n_left)
        asked = ask(wanted) if wanted > 0 else []
        self.n_begun += len(asked)
        return first + [self._new(proposal, 1) for proposal in asked]

    def take_continuing(self, count: int, may_start: Callable[[Attempt], bool]) -> list[Attempt]:
        """At most `count` trials that `may_start`, each to continue from its last epoch on ranks that keep it."""
        return self._take([one for one in self.waiting if one.holders and may_start(one)][:count])

    def _take(self, chosen: list[Attempt]) -> list[Attempt]:
        taken = set(chosen)  # a list would make the start of thousands of trials quadratic in their number
        self.waiting = [attempt for attempt in self.waiting if attempt not in taken]
        self.n_begun += len(chosen)
        return chosen

    def mark_running(self, started: Iterable[Attempt]) -> None:
        """Records that trials run on their blocks."""
        for attempt in started:
            self.running[attempt.number] = attempt
            self._next_due_s = min(self._next_due_s, attempt.due_s)

    def end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Takes a trial that has ended off its block."""
        self.running.pop(attempt.number, None)
        attempt.outcome = outcome
        self.ended.append(attempt)

    def fail(self, attempt: Attempt, now_s: float, error: str) -> None:
        """Takes a trial off its block that has failed at `now_s`, without a message of the block."""
        self.end(attempt, Outcome(attempt.number, "failed", duration_s=attempt.seconds(now_s), error=error))

    def forget_committed(self, ended: Sequence[Attempt]) -> None:
        """Removes trials that have ended; to be called once the store has their outcomes."""
        committed = set(ended)
        self.ended = [attempt for attempt in self.ended if attempt not in committed]

    def mark_requeued(self, attempts: Iterable[Attempt]) -> None:
        """Records that running trials are queued in the store."""
        for attempt in attempts:
            attempt.is_requeued = True

    def put_back(self, attempt: Attempt, holders: Sequence[int] = (), before_s: float = 0.0) -> None:
        """Queues a trial again whose attempt has ended without a result, on a block or in a workload system.

        Args:
            holders: The world ranks from which it may continue.
            before_s: See `Attempt`.
        """
        self.running.pop(attempt.number, None)
        again = self._new(attempt.proposal, attempt.attempt + 1)
        again.holders, again.before_s = tuple(holders), before_s
        self.waiting.append(again)
        self.n_begun -= 1

    def hold(self, attempt: Attempt, outcome: Outcome) -> None:
        """Takes a trial off its block that has failed, perhaps because of its host."""
        del self.running[attempt.number]
        attempt.outcome, attempt.is_held = outcome, True
        self.held.append(attempt)

    def put_held_back(self) -> None:
        """Queues the held trials again: their hosts have failed."""
        for attempt in self.take_held():
            self.put_back(attempt)

    def take_held(self) -> list[Attempt]:
        """Removes and returns the held trials."""
        held, self.held = self.held, []
        return held

    def expect_end_soon(self, block: int, number: int, error: str, now_s: float) -> None:
        """Records that a trial has failed on one rank. The block then has `STRANDED_S` to answer."""
        running = self.running.get(number)
        if running is not None and running.block == block:
            running.error, running.due_s = error, min(running.due_s, now_s + STRANDED_S)
            self._next_due_s = min(self._next_due_s, running.due_s)

    def _new(self, proposal: Proposal, attempt: int) -> Attempt:
        return Attempt(proposal, attempt, code=self.code)
