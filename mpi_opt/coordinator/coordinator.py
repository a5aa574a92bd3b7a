"""Rank 0 of a search: ask the strategy, dispatch to blocks, receive, record, tell.

The only place that sees both strategy and store. A result is committed before its block gets its next trial. Figures of
merit are in the user's direction everywhere but here, where strategies are told values to minimise.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from mpi_opt.coordinator.block_health import BlockHealth
from mpi_opt.coordinator.block_pool import TICK_S, BlockPool
from mpi_opt.coordinator.fold_reports import Reports
from mpi_opt.coordinator.stopping import StopCondition
from mpi_opt.coordinator.study_state import SEARCH_KILLED, StudyState
from mpi_opt.coordinator.trial_queue import Running
from mpi_opt.core.fold_stopping import Yardsticks
from mpi_opt.core.limits import Rules
from mpi_opt.core.trial import Outcome, Proposal, TrialRecord
from mpi_opt.errors import SearchFailed
from mpi_opt.messages.messages import Abandoned, Assignment, Broken, Freed, Lost, Ready, Report, ToCoordinator
from mpi_opt.store.records import Finish
from mpi_opt.strategies.strategy import Strategy
from mpi_opt.study.external_trials import told
from mpi_opt.study.progress import Progress, Silence
from mpi_opt.study.retrying_store import PatientStore
from mpi_opt.study.study import SEARCH_STOPPED, STUDY_FINISHED, STUDY_RESUMED
from mpi_opt.worker.watchdog import STOPPING_S

if TYPE_CHECKING:
    from mpi_opt.store.store import Store
    from mpi_opt.study.lease import Lease

ELSEWHERE = -1
"""The block of trials that others run, as far as progress is concerned."""

TIMEOUT_SLACK_S = 20.0
"""A block that has not ended a trial so long after ``trial.timeout`` is given up: its own watch has failed."""


class Coordinator:
    """Runs a study to its end.

    Args:
        pool: The ranks that run trials.
        strategy: What to ask; knows nothing of earlier runs yet.
        store: Where to record.
        study_id: The study in the store.
        rules: When to end.
        folds: K.
        yardsticks: Learns from the complete trials what the folds of the next ones are compared with; None: nothing.
        progress: Whom to tell.
        stopping: When to end before all trials are done; None: at the time limit of `rules`.
        renew: Makes a strategy that knows nothing yet, for when others have changed the study (None: they must not).
        lease: The right to run the study (None: no other search can want it).
        study: The study's key; see `Trial.study`.
        discard: Removes checkpoints of trials from which no other will resume.
    """

    def __init__(
        self,
        pool: BlockPool,
        strategy: Strategy,
        store: Store,
        study_id: int,
        rules: Rules,
        *,
        folds: int = 1,
        yardsticks: Yardsticks | None = None,
        progress: Progress | None = None,
        stopping: StopCondition | None = None,
        renew: Callable[[], Strategy] | None = None,
        lease: Lease | None = None,
        study: str = "",
        discard: Callable[[str, list[int]], None] = lambda study, numbers: None,
    ) -> None:
        self._lease = lease
        self.pool, self.link = pool, pool.link
        self.rules, self.folds = rules, folds
        self.study, self._discard = study, discard
        self.progress = progress or Silence()
        self.stopping = stopping or StopCondition(time_limit_s=rules.time_limit_s)
        self.store = PatientStore(store, study_id, self.progress, self.stopping.is_due)
        self.state = StudyState(self.store, strategy, rules, folds, yardsticks or Yardsticks(), renew)
        self.queue = self.state.queue
        self.is_stopping, self.why_stopped, self.has_reached_target = False, "", False
        self._outcomes: list[tuple[Running, Outcome]] = []
        self._losses: Counter[int] = Counter()  # trial number -> lost attempts in this search
        self._health, self._stop_by = BlockHealth(), float("inf")

    def run(self) -> None:
        """The search loop; returns when the study is over and every rank has been dismissed.

        Raises:
            UserError: A block could not prepare its objective.
            SearchFailed: The first trials all failed, or no rank is left.
        """
        try:
            self._take_up()
            self.pool.assemble()
            while not self._is_over():
                for rank, message in self.pool.hear(TICK_S):
                    self._note(rank, message)
                self._watch()
                if self._lease is not None:
                    self._lease.check()
                self._record()
                self._dispatch()
                self.progress.tick()
            self._conclude()
        finally:
            self.pool.dismiss({running.block for running in self.queue.running.values()})

    def take_report(self, rank: int, report: Report) -> None:
        """Passes an intermediate value on to the strategy, and its decision back."""
        running = self.queue.running.get(report.number)
        if running is not None and self.state.prunes(running, rank, report):
            self.link.stop(report.number, sorted(running.reports.reporters))

    def _take_up(self) -> None:
        """Continues from what the store knows of this study."""
        past = self.state.take_up()
        if not past:
            return
        if any(self.rules.is_reached(record) for record in past.ended):
            self.has_reached_target = True
            self._stop("the target was reached before")
        self._event(STUDY_RESUMED, str(past))

    def _conclude(self) -> None:
        """Records whether the study is finished."""
        is_complete = not self.queue.running and (self.queue.is_done or not self.why_stopped)
        if is_complete or self.has_reached_target:
            self.store.event(STUDY_FINISHED, self.why_stopped or "all trials have ended")
        else:
            self.store.event(SEARCH_STOPPED, self.why_stopped)

    def _is_over(self) -> bool:
        if self.queue.running and time.monotonic() < self._stop_by:
            return False
        if self.is_stopping or self.queue.is_done:
            return True
        if self.pool.is_empty:
            raise SearchFailed(self.pool.why_empty)
        return self.state.strategy.finished and not self.queue.waiting

    def _note(self, rank: int, message: ToCoordinator) -> None:
        if isinstance(message, Outcome):
            running = self.queue.running.get(message.number)
            if running is None or rank != self.pool.ranks(running.block)[0]:
                return  # of a block that was given up: the trial is run again
            if message.state != "complete" and (why := self.stopping.reason):  # which may be why it failed
                self._requeue(running, f"the search ended: {why}")
                return
            del self.queue.running[message.number]
            self._outcomes.append((running, message))
        elif isinstance(message, Report):
            self.take_report(rank, message)
        elif isinstance(message, Ready):
            if self.pool.take_ready(message):
                self.progress.ready(message.block)
        elif isinstance(message, Freed):
            self.pool.take_freed(rank)
        elif isinstance(message, Abandoned):
            self.queue.abandon(message.block, message.number, message.error, self.pool.now_s)
        elif isinstance(message, Broken):
            if message.block in self.pool:
                self.pool.take_broken(message)
                self._event("block_lost", f"the ranks of block {message.block} cannot communicate: {message.reason}")
                self._give_up(message.block, "the ranks of its block could not communicate")
        elif isinstance(message, Lost):
            self._take_losses(message.ranks)

    def _record(self) -> None:
        """Commits what has ended, and only then tells the strategy and frees the blocks."""
        outcomes, self._outcomes = self._outcomes, []
        if not outcomes:
            return
        finished = [Finish(outcome, running.attempt, running.block) for running, outcome in outcomes]
        self.store.finish(finished)
        for running, outcome in outcomes:
            self._tell(running.proposal, outcome)
            self._free(running.block, outcome)
            self.progress.finished(running.block, outcome, running.proposal.parameters)
        self._discard_obsolete()
        if self.state.is_hopeless:
            raise SearchFailed(
                f"the first {self.state.n_failed} trials all failed; the last one:\n{outcomes[-1][1].error}"
            )

    def _discard_obsolete(self) -> None:
        if obsolete := self.state.strategy.obsolete():
            self._discard(self.study, obsolete)

    def _tell(self, proposal: Proposal, outcome: Outcome) -> None:
        self.state.tell(proposal, outcome)
        if outcome.state == "complete" and self.rules.is_reached(outcome):
            self.has_reached_target = True
            self._stop(f"trial {proposal.number} reached the target")
            self._stop_running()

    def _free(self, block: int, outcome: Outcome) -> None:
        """Frees the block of a trial that ended; one that fails again and again is given up."""
        if block not in self.pool:
            return
        self.stopping.take(outcome.duration_s)
        self._health.take(block, outcome.state == "failed")
        if len(self.pool) > 1 and self._health.is_unhealthy(block):
            self._event("block_retired", f"block {block} failed {self._health.in_a_row(block)} trials in a row")
            self.pool.dissolve(block)
            self.progress.given_up(block)
        else:
            self.pool.free.append(block)

    def _dispatch(self) -> None:
        """Gives every free block a trial, as far as there are any."""
        if self.is_stopping or not self.pool.free:
            return
        if not self.stopping.has_time_for_one():
            self._stop("another trial would likely end after the time limit")
            return
        trials = self.queue.next(len(self.pool.free), self.state.strategy.ask)
        if not trials:
            # nothing to wait for: the strategy has no more
            self.is_stopping = not self.state.is_waiting_for_results
            return
        since = self.pool.now_s
        due = since + (self.rules.timeout_s or float("inf")) + TIMEOUT_SLACK_S
        started = [
            Running(one, block, attempt, Reports(self.pool.n_groups(block, self.folds), self.rules.merits), since, due)
            for (one, attempt), block in zip(trials, self.pool.free, strict=False)
        ]
        if not self.state.begin([self.pool.start_of(running) for running in started]):
            return  # somebody else was given one of these trials
        del self.pool.free[: len(started)]
        for running in started:
            one = running.proposal
            self.queue.running[one.number] = running
            yardstick = self.state.yardstick(one)
            assignment = Assignment(one, self.study, yardstick)
            self.link.send(self.pool.ranks(running.block)[0], assignment)
            self.progress.started(running.block, one.number)

    def _take_losses(self, ranks: frozenset[int]) -> None:
        for rank in sorted(ranks - self.pool.membership.lost):  # others were given up, and so ended
            self._event("rank_lost", f"rank {rank}, {self.pool.part_of(rank)}")
        for block in self.pool.lose(ranks):
            self._give_up(block, "a rank of its block was lost")

    def _give_up(self, block: int, why: str) -> None:
        """Disbands a block; its trial goes back into the queue, or has failed when it was tried often enough."""
        self.pool.disband(block)
        self.progress.given_up(block)
        for running in self.queue.on(block):
            if self._has_failed(running, why):
                continue
            number, retries = running.proposal.number, self.rules.retries
            self._losses[number] += 1
            if self._losses[number] <= retries or self.stopping.may_explain_a_loss():
                self._requeue(running, why)
            else:
                self._fail(running, f"{why}; attempt {running.attempt} was the last (trial.retries: {retries})")

    def _has_failed(self, running: Running, why: str) -> bool:
        """Fails a trial that has raised, or takes longer than it may: it costs ranks, and would cost others."""
        error = running.error
        if error is None and self.rules.is_too_long(self.pool.now_s - running.since):
            error = f"the trial took longer than trial.timeout, {self.rules.timeout_s:g} s: {why}"
        if error is not None:
            self._fail(running, error)
        return error is not None

    def _fail(self, running: Running, error: str) -> None:
        number, lasted_s = running.proposal.number, self.pool.now_s - running.since
        del self.queue.running[number]
        self._outcomes.append((running, Outcome(number, "failed", None, None, lasted_s, error=error)))

    def _requeue(self, running: Running, why: str) -> None:
        self.store.requeue([running.proposal.number], why)
        self.queue.put_back(running)

    def _watch(self) -> None:
        """What is done when time passes: the trials of others, hanging blocks, the time limit, the wish to end."""
        for record in self.state.others.news():
            self._take_from_others(record)
        for rank in sorted(self.pool.watch()):
            self._event("rank_lost", f"rank {rank} did not leave its block")
        for running in [one for one in self.queue.running.values() if one.until < self.pool.now_s]:
            self._event("block_lost", f"block {running.block} hangs in trial {running.proposal.number}")
            self._give_up(running.block, "its block does not answer")
        if self._stop_by == float("inf") and (why := self.stopping.reason):
            self._stop(why)
            self._stop_running()
            self._put_back()
            self._stop_by = time.monotonic() + STOPPING_S

    def _put_back(self) -> None:
        """Requeues the running trials, at once: mpirun, asked to end, kills its ranks a quarter of a second later."""
        is_suspect = not self.link.is_protected and self.stopping.may_be_a_death()
        why = SEARCH_KILLED if is_suspect else f"the search ended: {self.why_stopped}"
        numbers = [one.proposal.number for one in [*self.queue.running.values()] if not self._has_failed(one, why)]
        if numbers:
            self.store.requeue(numbers, why)

    def _take_from_others(self, record: TrialRecord) -> None:
        if record.state == "queued":
            self.queue.take_back(record)
            return
        proposal, outcome = told(record)
        self._tell(proposal, outcome)
        self.progress.finished(ELSEWHERE, outcome, proposal.parameters)

    def _stop(self, why: str) -> None:
        """Starts no more trials."""
        if not self.is_stopping:
            self.is_stopping, self.why_stopped = True, why
            self.progress.note(f"no more trials start: {why}")

    def _stop_running(self) -> None:
        """Tells the trials that run to end at their next opportunity."""
        for number, running in self.queue.running.items():
            self.link.stop(number, sorted({self.pool.ranks(running.block)[0], *running.reports.reporters}))

    def _event(self, kind: str, detail: str) -> None:
        self.progress.note(f"{kind.replace('_', ' ')}: {detail}")
        self.store.event(kind, detail)
