"""Rank 0 of a search: asks the strategy, assigns trials to blocks, and records their outcomes.

This is the only module that uses both the strategy and the store. An outcome is committed before its block receives the
next trial. Figures of merit are in the user's direction; only strategies receive values to minimise.
"""

from __future__ import annotations

import math
from collections import Counter

from mpi_opt.coordinator.block_health import BlockHealth
from mpi_opt.coordinator.block_pool import TICK_S, BlockPool
from mpi_opt.coordinator.retrying_store import RetryingStore
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.coordinator.study_state import StudyState
from mpi_opt.coordinator.trial_queue import RunningTrial
from mpi_opt.core.trial import Outcome, Proposal, TrialRecord
from mpi_opt.errors import RanksLost, SearchFailed
from mpi_opt.messages.messages import Abandoned, Assignment, Broken, Freed, Lost, Ready, Report, Stop, ToCoordinator
from mpi_opt.store.store import Store
from mpi_opt.strategies.strategy import Strategy
from mpi_opt.study.past_trials import EXTERNAL_BLOCK, PastTrials
from mpi_opt.study.study import SEARCH_FINISHED, SEARCH_STOPPED, STUDY_FINISHED, STUDY_RESUMED

STOPPING_S = 3.0
"""Time that running trials have to end after a request to stop the search, in seconds."""


class Coordinator:
    """Runs a study until it is finished or the search must end. `strategy` is new: it has received no trials."""

    def __init__(
        self, pool: BlockPool, strategy: Strategy, store: Store, study_id: int, settings: SearchSettings
    ) -> None:
        self.pool, self.link = pool, pool.link
        self.settings, self.limits = settings, settings.limits
        self.progress, self.stopping = settings.progress, settings.stopping
        self.store = RetryingStore(store, study_id, self.progress, self.stopping.is_due)
        self.state = StudyState(self.store, strategy, settings)
        self.queue = self.state.queue
        self.is_stopping, self.why_stopped, self.has_reached_target = False, "", False
        self._outcomes: list[tuple[RunningTrial, Outcome]] = []
        self._n_lost_attempts: Counter[int] = Counter()  # trial number -> lost attempts in this search
        self._health, self._stop_by_s = BlockHealth(), math.inf

    def run(self) -> None:
        """Runs the search loop until the search is over, then dismisses every rank.

        Raises:
            UserError, TrainingError: A block could not prepare its objective.
            SearchFailed: The first trials all failed, or no block could be formed.
            RanksLost: No rank can run a trial any more.
        """
        try:
            self._resume()
            self.pool.assemble()
            while not self._is_over():
                for rank, message in self.pool.receive(TICK_S, self._must_stop):
                    self._handle(rank, message)
                for record in self.state.changed_external():
                    self._handle_external(record)
                self._give_up_unresponsive()
                self._stop_if_due()
                self._stop_without_ranks()
                self.settings.check_lease()
                self._record()
                self._dispatch()
                self.progress.tick()
            self._conclude()
        except Exception as error:  # also of the user's strategy
            self.state.save_after(error, self._outcomes)
            raise
        finally:
            self.pool.dismiss({running.block for running in self.queue.running.values()})

    def _resume(self) -> None:
        """Continues from the trials of the study in the store."""
        if past := self.state.resume():
            self._stop_if_reached(past, "the target was reached before")
            self._event(STUDY_RESUMED, str(past))

    def _stop_if_reached(self, past: PastTrials, why: str) -> None:
        """Stops the search if one of the trials that were read from the store reaches the target."""
        if any(self.limits.reaches_target(record) for record in past.ended):
            self.has_reached_target = True
            self._start_no_more(why)
            self._stop_running()

    def _conclude(self) -> None:
        """Records whether the study is finished."""
        is_complete = not self.queue.running and (self.queue.is_done or not self.why_stopped)
        if self.has_reached_target or (is_complete and not self.state.n_external):
            self.store.event(STUDY_FINISHED, self.why_stopped or "all trials have ended")
        elif is_complete:
            self.store.event(SEARCH_FINISHED, f"a workload system still runs {self.state.n_external} of the trials")
        else:
            self.store.event(SEARCH_STOPPED, self.why_stopped)

    def _is_over(self) -> bool:
        if self.queue.running and self.pool.now_s < self._stop_by_s:
            return False
        return self.is_stopping or self.queue.is_done or self.state.is_exhausted

    def _handle(self, rank: int, message: ToCoordinator) -> None:
        match message:
            case Outcome():
                self._handle_outcome(rank, message)
            case Report():
                self._handle_report(rank, message)
            case Ready():
                if self.pool.mark_ready(message):
                    self.progress.ready(message.block)
            case Freed():
                self.pool.mark_freed(rank)
            case Abandoned():
                self.queue.abandon(message.block, message.number, message.error, self.pool.now_s)
            case Broken():
                self._handle_broken(message)
            case Lost():
                self._handle_losses(message.ranks)

    def _handle_outcome(self, rank: int, outcome: Outcome) -> None:
        running = self.queue.running.get(outcome.number)
        if running is None or rank != self.pool.ranks(running.block)[0]:
            return  # the block was given up; the trial runs again
        if outcome.state != "complete" and (why := self.stopping.reason):  # the stop may have caused the failure
            self._requeue(running, f"the search ended: {why}")
            return
        del self.queue.running[outcome.number]
        self._outcomes.append((running, outcome))

    def _handle_report(self, rank: int, report: Report) -> None:
        """Passes an intermediate value to the strategy, and stops the trial if the strategy prunes it."""
        running = self.queue.running.get(report.number)
        if running is None or rank not in self.pool.fold_leaders(running.block, self.settings.folds):
            return  # the block was given up; the trial runs again
        if self.state.prunes(running, report):
            self._stop_trial(running)

    def _handle_broken(self, broken: Broken) -> None:
        if broken.block in self.pool:
            self.pool.mark_broken(broken)
            self._event("block_lost", f"the ranks of block {broken.block} cannot communicate: {broken.reason}")
            self._give_up(broken.block, "the ranks of its block could not communicate")

    def _handle_losses(self, ranks: frozenset[int]) -> None:
        for rank in self.pool.not_yet_lost(ranks):  # ranks that were given up have been reported already
            self._event("rank_lost", f"rank {rank}, {self.pool.describe(rank)}")
        for block in self.pool.lose(ranks):
            self._give_up(block, "a rank of its block was lost")

    def _record(self) -> None:
        """Commits the outcomes; only then passes them to the strategy and frees the blocks."""
        outcomes, self._outcomes = self.state.finish(self._outcomes), []
        if not outcomes:
            return
        for running, outcome in outcomes:
            self._tell(running.proposal, outcome)
            self._free(running.block, outcome)
            self.progress.finished(running.block, outcome, running.proposal.parameters)
        if obsolete := self.state.obsolete():
            self.settings.discard(self.settings.study, obsolete)
        if self.state.is_hopeless:
            raise SearchFailed(f"the first {self.state.n_failed} trials all failed; the last one:\n{outcome.error}")

    def _tell(self, proposal: Proposal, outcome: Outcome) -> None:
        self.state.tell(proposal, outcome)
        if self.limits.reaches_target(outcome):
            self.has_reached_target = True
            self._start_no_more(f"trial {proposal.number} reached the target")
            self._stop_running()

    def _free(self, block: int, outcome: Outcome) -> None:
        """Frees the block of a trial that has ended, or retires the block if too many of its trials fail."""
        if block not in self.pool:
            return
        self.stopping.add_duration(outcome.duration_s)
        self._health.record(block, outcome.state == "failed")
        if len(self.pool) > 1 and self._health.is_unhealthy(block):
            self._event("block_retired", f"block {block} failed {self._health.in_a_row(block)} trials in a row")
            self.pool.retire(block)
            self.progress.given_up(block)
        else:
            self.pool.free.append(block)

    def _dispatch(self) -> None:
        """Assigns a trial to every free block, as far as there are trials."""
        if self.is_stopping or not self.pool.free:
            return
        if not self.stopping.has_time_for_one():
            self._start_no_more("another trial would likely end after the time limit")
            return
        trials = self.state.ask(len(self.pool.free))
        if not trials:  # the search is over unless a result can change what the strategy proposes
            self.is_stopping = not self.state.is_waiting_for_results
            return
        pairs = zip(trials, self.pool.free, strict=False)
        started = [
            self.pool.new_running_trial(proposal, attempt, block, self.settings) for (proposal, attempt), block in pairs
        ]
        past = self.state.begin([self.pool.start_of(running) for running in started])
        if past is not None:  # a workload system has received one of these trials
            self._stop_if_reached(past, "a trial of a workload system reached the target")
            return
        del self.pool.free[: len(started)]
        for running in started:
            self.queue.running[running.number] = running
            assignment = Assignment(running.proposal, self.settings.study, self.state.reference(running.proposal))
            self.link.send(self.pool.ranks(running.block)[0], assignment)
            self.progress.started(running.block, running.number)

    def _give_up(self, block: int, why: str) -> None:
        """Disbands a block. Its trial is queued again, or fails if no attempt is left."""
        self.pool.disband(block)
        self.progress.given_up(block)
        running = self.queue.running_on(block)
        if running is None or self._has_failed(running, why):
            return
        self._n_lost_attempts[running.number] += 1
        if self._n_lost_attempts[running.number] <= self.limits.retries or self.stopping.may_explain_a_loss():
            self._requeue(running, why)
        else:
            attempts = f"attempt {running.attempt} was the last (trial.retries: {self.limits.retries})"
            self._fail(running, f"{why}; {attempts}")

    def _has_failed(self, running: RunningTrial, why: str) -> bool:
        """Fails a trial that raised an exception or exceeds its timeout, because a retry would lose more ranks."""
        if (error := running.failure(self.pool.now_s, self.limits, why)) is not None:
            self._fail(running, error)
        return error is not None

    def _fail(self, running: RunningTrial, error: str) -> None:
        duration_s = self.pool.now_s - running.started_at_s
        del self.queue.running[running.number]
        self._outcomes.append((running, Outcome(running.number, "failed", duration_s=duration_s, error=error)))

    def _requeue(self, running: RunningTrial, why: str) -> None:
        """Puts a trial back. If it has cost the search its last rank, its attempt counts as one that killed the search.

        It does not if the job is being cancelled.
        """
        if not running.is_requeued:
            is_suspect = self.pool.is_empty and not self.stopping.may_explain_a_loss()
            self.state.requeue([running], why, "killed" if is_suspect else "lost")
        self.queue.put_back(running.proposal, running.attempt)

    def _handle_external(self, record: TrialRecord) -> None:
        """Handles a trial of a workload system that has ended, or was given back and must run again."""
        if record.state == "queued":
            self.queue.put_back(record.proposal, record.attempts)
            return
        self._tell(record.proposal, record.outcome)
        self.progress.finished(EXTERNAL_BLOCK, record.outcome, record.parameters)

    def _give_up_unresponsive(self) -> None:
        """Gives up ranks that do not leave their block and blocks that do not answer."""
        for rank in sorted(self.pool.give_up_unresponsive()):
            self._event("rank_lost", f"rank {rank} did not leave its block")
        for running in [one for one in self.queue.running.values() if one.due_s < self.pool.now_s]:
            self._event("block_lost", f"block {running.block} hangs in trial {running.number}")
            self._give_up(running.block, "its block does not answer")

    def _stop_without_ranks(self) -> None:
        """Stops the search if no rank can run a trial any more.

        Raises:
            RanksLost: No rank can run a trial any more.
            SearchFailed: No rank ever could.
        """
        if not self.pool.is_empty or self._is_over():
            return
        why = self.pool.why_empty
        if not self.pool.has_been_ready:
            raise SearchFailed(why)
        self.store.event(SEARCH_STOPPED, why)
        raise RanksLost(f"{why}; the same command continues the study")

    def _must_stop(self) -> bool:
        """Whether the search must end and has not been stopped yet."""
        return self._stop_by_s == math.inf and self.stopping.is_due()

    def _stop_if_due(self) -> None:
        """Stops the search, once, on request or at its time limit."""
        if self._must_stop() and (why := self.stopping.reason):
            self._requeue_running(why)
            self._start_no_more(why)
            self._stop_running()
            self._stop_by_s = self.pool.now_s + STOPPING_S

    def _requeue_running(self, why: str) -> None:
        """Requeues the running trials in the store.

        This is done first: after a signal, ``mpirun`` may kill this process within 0.25 s.
        """
        is_suspect = not self.link.is_protected and self.stopping.may_be_a_death()
        why = f"the search ended: {self.why_stopped or why}"
        failed = [running for running in list(self.queue.running.values()) if self._has_failed(running, why)]
        self.state.requeue(list(self.queue.running.values()), why, "killed" if is_suspect else "lost")
        for running in failed:  # the ranks of its block may hang and never receive their dismissal
            self.pool.disband(running.block)

    def _start_no_more(self, why: str) -> None:
        """Starts no more trials."""
        if not self.is_stopping:
            self.is_stopping, self.why_stopped = True, why
            self.progress.note(f"no more trials start: {why}")

    def _stop_running(self) -> None:
        """Asks the running trials to end at the next opportunity."""
        for running in self.queue.running.values():
            self._stop_trial(running)

    def _stop_trial(self, running: RunningTrial) -> None:
        """Asks the first rank of each fold group, which decides whether its fold continues, to stop a trial."""
        for rank in self.pool.fold_leaders(running.block, self.settings.folds):
            self.link.send(rank, Stop(running.number))

    def _event(self, kind: str, detail: str) -> None:
        self.progress.note(f"{kind.replace('_', ' ')}: {detail}")
        self.store.event(kind, detail)
